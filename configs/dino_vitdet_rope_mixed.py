# DINO-ViTDet-B with RoPE-Mixed, COCO, 12 epochs; the paper reports 51.2 box AP (Table 1).
_base_ = './dino_vitdet/dino-vitdet_vit-b_rope-mixed_8xb2-90k_coco.py'
