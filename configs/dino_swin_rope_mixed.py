# DINO-Swin-T with RoPE-Mixed, COCO, 12 epochs; the paper reports 51.8 box AP (Table 2).
_base_ = './dino_swin/dino_swin-t_rope-mixed_8xb2-90k_coco.py'
