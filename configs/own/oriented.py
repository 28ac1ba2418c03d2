# Oriented boxes on your own data in real time: DEIMv2 with an angle on LingBot-Vision (Apache-2.0).
# Copy this file and edit `own`, or pass `--cfg-options own.data_root=DIR own.epochs=20 ...`.
# docs/oriented.md
task = 'oriented'
own = dict(
    data_root='data/own',  # images/ and labelTxt/ in train/ and val/ (DOTA), or another format
    backbone='small',  # tiny, small, base or large, or any architecture of RoPEViT
    weights='default',  # of the backbone: default (published), a file, a hub name, or None (random)
    epochs=50,
    # batch_size=8,  # images per GPU; from random weights 4
    size=1024,  # side of the square that images are scaled to fit, in pixels
    ema=True,  # evaluate and save a moving average of the weights
    # channels=['red', 'green', 'blue', 'nir'],  # or a number, or bands from 1; with all 16 bits
    # mean=[...], std=[...], show=['nir', 'red', 'green'],  # of the images; default: from them
    # separate_files=True,  # a file for each channel; docs/channels.md
)

# Derived from `own`: classes and their number, iterations, learning rate, intervals.
# Lines below replace parts of it: `train_cfg = dict(val_interval=500)`. The work folder gets the
# complete config, which other tools of OpenMMLab read.
