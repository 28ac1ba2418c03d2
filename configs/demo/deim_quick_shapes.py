# `make demo`: the real-time detector of ./deim_vit_rope_mixed_shapes.py with 500 iterations of 4
# images, five minutes on two CPU cores. Results: docs/evidence.md.
_base_ = './deim_vit_rope_mixed_shapes.py'

# Against duplicates, which short runs do not learn to suppress.
model = dict(bbox_head=dict(mal_gamma=1.0), test_cfg=dict(nms_iou=0.7))
train_dataloader = dict(batch_size=4)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.01, begin=0, end=50),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=0, T_max=500, eta_min=1e-6),
]
train_cfg = dict(max_iters=500, val_interval=500)
default_hooks = dict(checkpoint=dict(interval=500))
