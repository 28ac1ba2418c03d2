# UperNet-ViT-B with RoPE-Mixed, ADE20K, 160k iterations; the paper reports 49.6 mIoU, and 50.7 at
# several scales (Table 3).
_base_ = './upernet_vit/upernet_vit-b_rope-mixed_8xb2-160k_ade20k-512x512.py'
