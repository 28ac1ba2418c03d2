# Detection on your own data: DINO on LingBot-Vision (Apache-2.0). Copy this file and edit `own`, or
# give `--cfg-options own.data_root=DIR own.epochs=20 ...`. All settings: docs/own_data.md
task = 'detection'
own = dict(
    data_root='data/own',  # images in train/ and val/, annotations/train.json and val.json (COCO)
    backbone='small',  # tiny, small, base or large, or any architecture of RoPEViT
    weights='default',  # of the backbone: default (published), a file, a hub name, or None (random)
    epochs=50,
    batch_size=2,  # images per GPU
    size=800,  # shorter side of a test image in pixels
    # channels=['red', 'green', 'blue', 'nir'],  # or a number, or bands from 1; with all 16 bits
    # mean=[...], std=[...], show=['nir', 'red', 'green'],  # of the images; default: from them
    # separate_files=True,  # a file for each channel; docs/channels.md
)

# Derived from `own`: classes and their number, iterations, learning rate, sizes, intervals.
# Lines below replace parts of it: `train_cfg = dict(val_interval=500)`. The work folder gets the
# complete config, which other tools of OpenMMLab read.
