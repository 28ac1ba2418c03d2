# DINO on Perception Encoder spatial B, fine-tuned, COCO, 12 epochs. No paper reports this run; its
# accuracy was not measured: it is the recipe of ../dino_vitdet_rope_mixed.py with the learning
# rates of detrex's DINO on EVA-02-B (1e-4, layer decay 0.7), and nothing was tuned to
# the weights. (The authors' detectors have size G: ViTDet with Mask R-CNN, and DETA, at 5e-5 with a
# decay of 0.9 over 50 blocks.)
# - Windows of 32 x 32 tokens, the grid of the pre-training, as in the authors' detectors. Theirs
#   have no class token, because G was trained without; B was trained with one, so it stays: window
#   blocks attend to a copy of it in each window.
# - PE spatial has no norm after its blocks; mean and std are those of its pre-training, 0.5.
_base_ = '../dino_vitdet/dino-vitdet_vit-b_rope-mixed_8xb2-90k_coco.py'

model = dict(
    data_preprocessor=dict(mean=[127.5, 127.5, 127.5], std=[127.5, 127.5, 127.5]),
    backbone=dict(
        arch='pe_spatial_base',
        rope='default',
        with_cls_token='default',
        window_size=32,
        window_prefix='copy',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_pe_spatial_base_patch16_512.fb'),
    ),
)
optim_wrapper = dict(paramwise_cfg=dict(_delete_=True, layer_decay=0.7))
