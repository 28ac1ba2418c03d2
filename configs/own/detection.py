# Detection on your own data: DINO on LingBot-Vision (Apache-2.0). Copy this file and edit `own`, or
# give `--cfg-options own.data_root=DIR own.epochs=20 ...`. All settings: docs/own_data.md
_base_ = []  # filled below, so a copy works in any folder

own = dict(
    data_root='data/own',  # images in train/ and val/, annotations/train.json and val.json (COCO)
    backbone='small',  # tiny, small, base or large, or any architecture of RoPEViT
    weights='default',  # of the backbone: default (published), a file, a hub name, or None (random)
    epochs=50,
    batch_size=2,  # images per GPU
    gpus=1,
    size=800,  # shorter side of a test image in pixels
)

# Derived from `own`: classes and their number, iterations, learning rate, sizes, intervals.
from rope_dense.own.common import detection

_base_.update(detection(own))
