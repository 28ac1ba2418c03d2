# Real-time instance segmentation on your own data: DEIMv2 on LingBot-Vision (Apache-2.0) with the
# masks of ECSeg. Copy this file and edit `own`, or pass `--cfg-options own.data_root=DIR
# own.epochs=20 ...`. docs/realtime.md
task = 'realtime_masks'
own = dict(
    data_root='data/own',  # images in train/ and val/, annotations/train.json and val.json (COCO)
    backbone='small',  # tiny, small, base or large, or any architecture of RoPEViT
    weights='default',  # of the backbone: default (published), a file, a hub name, or None (random)
    epochs=50,
    # batch_size=8,  # images per GPU; from random weights 4
    size=640,  # side of the square that images are stretched to; keep_ratio=True fits them into it
    ema=True,  # evaluate and save a moving average of the weights
    # channels=['red', 'green', 'blue', 'nir'],  # or a number, or bands from 1; with all 16 bits
    # mean=[...], std=[...], show=['nir', 'red', 'green'],  # of the images; default: from them
    # separate_files=True,  # a file for each channel; docs/channels.md
)

# Derived from `own`: classes and their number, iterations, learning rate, stages, intervals.
# Lines below replace parts of it: `train_cfg = dict(val_interval=500)`. The work folder gets the
# complete config, which other tools of OpenMMLab read.
