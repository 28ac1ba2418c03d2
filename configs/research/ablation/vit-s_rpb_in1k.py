# ViT-S with relative position bias, the baseline of Tables 4 and 5. As published: 81.22 %.
_base_ = './vit-s_log-axial_k2_per-head_in1k.py'
model = dict(backbone=dict(rope=None, attention=dict(type='TableBias')))
