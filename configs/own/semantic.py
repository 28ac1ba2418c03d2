# Semantic segmentation on your own data: UperNet on LingBot-Vision (Apache-2.0). Copy this file and
# edit `own`, or pass `--cfg-options own.data_root=DIR own.epochs=20 ...`. All settings:
# docs/own_data.md
_base_ = []  # filled below, so a copy works in any folder

own = dict(
    data_root='data/own',  # images/train, images/val; masks/train, masks/val; classes.txt
    void=[],  # numbers or names of untrained classes, such as 11; 255 is always ignored
    backbone='small',  # tiny, small, base or large, or any architecture of RoPEViT
    weights='default',  # of the backbone: default (published), a file, a hub name, or None (random)
    epochs=50,
    batch_size=4,  # images per GPU
    gpus=1,
    size=512,  # side of the crops, and shorter side of a test image, in pixels
)

# Derived from `own`: classes and their number, iterations, learning rate, sizes, intervals.
from rope_dense.own.semantic import semantic

_base_.update(semantic(own))
