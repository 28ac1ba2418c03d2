# ViTDet's Mask R-CNN on ViT-B with RoPE-Mixed, COCO, 100 epochs, for detectron2. No paper reports
# this run; its accuracy was not measured (detectron2: 51.6 box AP, 45.9 mask AP from MAE).
# Recipe: detectron2 at 02b5c4e, projects/ViTDet/configs/COCO/mask_rcnn_vitdet_b_100ep.py and
# ../common/coco_loader_lsj.py, with rotary instead of absolute and decomposed relative
# position embedding. Frequencies have no weight decay (the rule of their pre-training).
from functools import partial

import detectron2.data.transforms as T
from detectron2 import model_zoo
from detectron2.config import LazyCall as L
from detectron2.solver import WarmupParamScheduler
from fvcore.common.param_scheduler import MultiStepParamScheduler

from rope_dense.models.detectron2 import NO_WEIGHT_DECAY, get_rope_lr_decay_rate

from .backbones import vit_b

model = model_zoo.get_config('common/models/mask_rcnn_vitdet.py').model
model.backbone.net = vit_b
model.backbone.in_feature = 'last_feat'

dataloader = model_zoo.get_config('common/data/coco.py').dataloader
dataloader.train.total_batch_size = 64
dataloader.train.mapper.image_format = 'RGB'
dataloader.train.mapper.recompute_boxes = True
dataloader.train.mapper.augmentations = [
    L(T.RandomFlip)(horizontal=True),
    L(T.ResizeScale)(
        min_scale=0.1, max_scale=2.0, target_height=1024, target_width=1024
    ),
    L(T.FixedSizeCrop)(crop_size=(1024, 1024), pad=False),
]
dataloader.test.mapper.augmentations = [
    L(T.ResizeShortestEdge)(short_edge_length=1024, max_size=1024)
]

train = model_zoo.get_config('common/train.py').train
train.output_dir = './output/mask_rcnn_vitdet_b_rope_mixed_100ep'
train.max_iter = 184375
train.amp.enabled = True
train.ddp.fp16_compression = True
train.init_checkpoint = ''  # the backbone loads its weights itself

optimizer = model_zoo.get_config('common/optim.py').AdamW
optimizer.params.lr_factor_func = partial(
    get_rope_lr_decay_rate, lr_decay_rate=0.7, num_layers=12
)
optimizer.params.overrides = NO_WEIGHT_DECAY

lr_multiplier = L(WarmupParamScheduler)(
    scheduler=L(MultiStepParamScheduler)(
        values=[1.0, 0.1, 0.01], milestones=[163889, 177546], num_updates=train.max_iter
    ),
    warmup_length=250 / train.max_iter,
    warmup_factor=0.001,
)
