# Monocular depth on your own data: DPT on a frozen LingBot-Vision (Apache-2.0). Copy this file and
# edit `own`, or pass `--cfg-options own.data_root=DIR own.epochs=20 ...`. All settings:
# docs/own_data.md
task = 'depth'
own = dict(
    data_root='data/own',  # images/train, images/val; depth/train, depth/val: PNG of 16 bits or npy
    unit=0.001,  # metres per unit: millimetres; zero, negative, inf and nan are unknown
    max_depth=10.0,  # metres
    backbone='small',  # tiny, small, base or large, or any architecture of RoPEViT
    weights='default',  # of the backbone: default (published), a file, a hub name, or None (random)
    lora=0,  # rank of adapters that train the backbone, such as 8; 0: frozen
    epochs=50,
    batch_size=4,  # images per GPU
    size=480,  # shorter side of an image, in pixels
    # channels=['red', 'green', 'blue', 'nir'],  # or a number, or bands from 1; with all 16 bits
    # mean=[...], std=[...], show=['nir', 'red', 'green'],  # of the images; default: from them
    # separate_files=True,  # a file for each channel; docs/channels.md
)

# Derived from `own`: iterations, learning rate, crops, bins, intervals.
# Lines below replace parts of it: `train_cfg = dict(val_interval=500)`. The work folder gets the
# complete config, which other tools of OpenMMLab read.
