# DINO-Swin-S with RoPE-Mixed, COCO, 12 epochs. The paper reports 53.3 box AP (Table 2).
# Recipe: detrex, projects/dino/configs/dino-swin/dino_swin_small_224_4scale_12ep.py: the Swin-T one
# with more drop path.
_base_ = './dino_swin-t_rope-mixed_8xb2-90k_coco.py'
model = dict(
    backbone=dict(
        arch='small',
        drop_path_rate=0.2,
        init_cfg=dict(
            checkpoint='hf-hub:naver-ai/swin_rope_mixed_small_patch4_window7_224'
        ),
    )
)
