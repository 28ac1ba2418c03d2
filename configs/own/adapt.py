# A backbone trained on your own pictures without labels: each picture is a class of its own (DIET),
# or the features are those of a larger teacher. Then `own.weights=work_dirs/adapt` of another task
# starts from it. Copy this file and edit `own`, or pass
# `--cfg-options own.data_root=DIR own.epochs=20 ...`. All settings: docs/adapt.md
task = 'adapt'
own = dict(
    data_root='data/own',  # pictures and videos, in any folders
    backbone='small',  # tiny, small, base or large, or any architecture of RoPEViT
    weights='default',  # of the backbone: default (published), a file, a hub name, or None (random)
    # lora=8,  # rank of adapters in all blocks; 0: train the blocks themselves
    # blocks=4,  # the last ones only, without adapters
    # teacher='large',  # distil its features, instead; 'sliding': those of its own windows
    epochs=50,
    batch_size=None,  # images per GPU; None: 32, and 4 of a sliding teacher
    size=224,  # pixels: side of the square crops
    # channels=['red', 'green', 'blue', 'nir'],  # or a number, or bands from 1; with all 16 bits
    # mean=[...], std=[...], show=['nir', 'red', 'green'],  # of the images; default: from them
    # separate_files=True,  # a file for each channel; docs/channels.md
)

# Derived from `own`: iterations, learning rate, crops, intervals.
# Lines below replace parts of it: `train_cfg = dict(val_interval=500)`. The work folder gets the
# complete config, which other tools of OpenMMLab read.
