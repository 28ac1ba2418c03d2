# Semantic segmentation on your own data: UperNet on LingBot-Vision (Apache-2.0). Copy this file and
# edit `own`, or pass `--cfg-options own.data_root=DIR own.epochs=20 ...`. All settings:
# docs/own_data.md
task = 'semantic'
own = dict(
    data_root='data/own',  # images/train, images/val; masks/train, masks/val; classes.txt
    void=[],  # numbers or names of untrained classes, such as 11; 255 is always ignored
    backbone='small',  # tiny, small, base or large, or any architecture of RoPEViT
    weights='default',  # of the backbone: default (published), a file, a hub name, or None (random)
    epochs=50,
    batch_size=4,  # images per GPU
    size=512,  # side of the crops, and shorter side of a test image, in pixels
    # channels=['red', 'green', 'blue', 'nir'],  # or a number, or bands from 1; with all 16 bits
    # mean=[...], std=[...], show=['nir', 'red', 'green'],  # of the images; default: from them
    # separate_files=True,  # a file for each channel; docs/channels.md
)

# Derived from `own`: classes and their number, iterations, learning rate, sizes, intervals.
# Lines below replace parts of it: `train_cfg = dict(val_interval=500)`. The work folder gets the
# complete config, which other tools of OpenMMLab read.
