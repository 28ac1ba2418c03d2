# Mask2Former-Swin-S with RoPE-Mixed, ADE20K, 160k iterations; the paper has 51.1 mIoU (Table 4).
_base_ = './mask2former_swin/mask2former_swin-s_rope-mixed_8xb2-160k_ade20k-512x512.py'
