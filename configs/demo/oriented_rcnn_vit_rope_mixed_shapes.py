# mmrotate's Oriented R-CNN with the ViT and data of ./oriented_deim_vit_rope_mixed_shapes.py, in
# the same CPU time: ViTDet's pyramid of 64 channels, anchors of 16 to 128 pixels, fewer proposals
# and samples than for images of 1024 pixels, and NMS at 0.5, since these shapes overlap.
_base_ = './oriented_deim_vit_rope_mixed_shapes.py'

import copy

from mmengine.hub import get_config

import rope_dense.models.mmrotate  # or get_config would install what is missing

model = get_config(
    'mmrotate::oriented_rcnn/oriented-rcnn-le90_r50_fpn_1x_dota.py'
).model
model._delete_ = True
model.backbone = dict(_base_.model.backbone, out_indices=(3,))
model.neck = dict(
    type='PlainViTFPN',
    in_channels=96,
    out_channels=64,
    scale_factors=(2, 1, 0.5),
    num_outs=4,
)
model.rpn_head.update(in_channels=64, feat_channels=64)
model.rpn_head.anchor_generator.update(scales=[4], strides=[4, 8, 16, 32])
model.roi_head.bbox_roi_extractor.out_channels = 64
model.roi_head.bbox_head.update(in_channels=64, fc_out_channels=256, num_classes=4)
model.train_cfg.rpn.sampler.num = 128
model.train_cfg.rcnn.sampler.num = 64
for proposals in (model.train_cfg.rpn_proposal, model.test_cfg.rpn):
    proposals.update(nms_pre=300, max_per_img=100)
model.test_cfg.rcnn.update(
    max_per_img=20, nms=dict(type='nms_rotated', iou_threshold=0.5)
)
train_dataloader = dict(batch_size=4)
optim_wrapper = dict(optimizer=dict(lr=1e-3), clip_grad=dict(max_norm=35))
param_scheduler = copy.deepcopy(_base_.param_scheduler)
param_scheduler[1].T_max = 1800
train_cfg = dict(max_iters=1800, val_interval=1800)
del copy, get_config, proposals, rope_dense
