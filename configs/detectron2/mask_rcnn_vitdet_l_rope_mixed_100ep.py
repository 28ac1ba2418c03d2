# ViTDet's Mask R-CNN on ViT-L with RoPE-Mixed, COCO, 100 epochs, for detectron2. No paper reports
# this run; its accuracy was not measured (detectron2: 55.5 box AP, 49.2 mask AP from MAE).
# Recipe: detectron2 at 02b5c4e, projects/ViTDet/configs/COCO/mask_rcnn_vitdet_l_100ep.py: the ViT-B
# one with more drop path and layer decay 0.8.
from functools import partial

from rope_dense.models.detectron2 import get_rope_lr_decay_rate

from .backbones import vit_l
from .mask_rcnn_vitdet_b_rope_mixed_100ep import (  # noqa: F401
    dataloader,
    lr_multiplier,
    model,
    optimizer,
    train,
)

model.backbone.net = vit_l
train.output_dir = './output/mask_rcnn_vitdet_l_rope_mixed_100ep'
optimizer.params.lr_factor_func = partial(
    get_rope_lr_decay_rate, lr_decay_rate=0.8, num_layers=24
)
