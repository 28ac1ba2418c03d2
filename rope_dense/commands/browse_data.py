"""Draw samples of a config's data pipeline: images after augmentation, with labels.

Examples:
    python tools/browse_data.py configs/own/detection.py --cfg-options own.data_root=data/own
    python tools/browse_data.py CONFIG --split val --count 4 --out pictures
    python tools/browse_data.py configs/own/realtime.py --epoch 10  # with mosaics

Each picture is one sample: boxes, masks or class colours drawn on the input pixels of the model, or
depth beside the pixels.
"""

from __future__ import annotations

import argparse
import random
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..project.errors import UsageError
from .arguments import add_config_arguments, check_at_least, tool_parser

if TYPE_CHECKING:
    from mmengine.config import Config
    from mmengine.structures import BaseDataElement


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('config', help='config file of a detector or segmentor')
    parser.add_argument(
        '--split', choices=['train', 'val', 'test'], default='train', help='(%(default)s)'
    )
    parser.add_argument('--count', type=int, default=20, help='samples to draw (%(default)s)')
    parser.add_argument('--seed', type=int, default=0, help='augmentation seed (%(default)s)')
    parser.add_argument(
        '--epoch', type=int, default=0, help='epoch, for pipelines with stages (%(default)s)'
    )
    parser.add_argument('--out', type=Path, help='output folder (browse/SPLIT, in the work folder)')
    add_config_arguments(parser)
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from mmengine.registry import DefaultScope

    from ..checks.data import check_data
    from ..engine.train_loop import set_epoch
    from ..project.building import building
    from ..project.load import load_config

    check_at_least(args, 1, 'count')
    check_at_least(args, 0, 'epoch')
    cfg = load_config(args.config, args.cfg_options, args.work_dir, args.data_root)
    epochs = cfg.get('own', {}).get('epochs') or (cfg.get('train_cfg') or {}).get('max_epochs')
    if epochs and args.epoch >= epochs:
        raise UsageError(f'--epoch {args.epoch}: the training has epochs 0 to {epochs - 1}')
    loader = f'{args.split}_dataloader'
    if cfg.get(loader) is None:
        raise UsageError(f'--split {args.split}: the config has no {loader}')
    check_data(cfg, (loader,))
    out = args.out or Path(cfg.work_dir) / 'browse' / args.split
    set_epoch(args.epoch)
    with DefaultScope.overwrite_default_scope(cfg.default_scope), building(f'{loader}.dataset'):
        files = draw_samples(cfg, args.split, out, count=args.count, seed=args.seed)
    print(f'{len(files)} samples of {args.split}: {out}')


def draw_samples(config: Config, split: str, out: Path, *, count: int, seed: int) -> list[Path]:
    """Draw the first samples of a data set after its pipeline, with their labels.

    Pixels are the model's input before normalisation: with the channel order and the
    padding of its data preprocessor.

    Args:
        split: 'train', 'val' or 'test', of the config's data loaders.
        out: folder for the pictures, NUMBER_NAME.png.
        seed: of the augmentation, for Python, NumPy and torch.

    Returns:
        The files written.

    Raises:
        LoadError: an image or its labels cannot be loaded.
    """
    import numpy as np
    import torch
    from mmengine.config import ConfigDict
    from mmengine.registry import DATASETS, MODELS, VISUALIZERS

    from ..datasets.images.drawing import draw_depth
    from ..engine.runner import NamingPipeline
    from ..project.task import detects, visualizer_of

    dataset = DATASETS.build(config[f'{split}_dataloader'].dataset)
    dataset.pipeline = NamingPipeline(dataset.pipeline.transforms)
    preprocessor = MODELS.build(
        ConfigDict(config.model.data_preprocessor, mean=None, std=None, bgr_to_rgb=False)
    )
    visualizer = VISUALIZERS.build(visualizer_of(config, f'samples_{out}', alpha=0.5))
    visualizer.dataset_meta = dataset.metainfo
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    files = []
    steps = [type(step).__name__ for step in dataset.pipeline.transforms]
    late = steps[steps.index('Resize') :] if 'Resize' in steps else []
    loads_late = bool({'LoadAnnotations', 'LoadClassMask', 'LoadDepth'} & {*late})
    for index in range(min(count, len(dataset))):
        packed = dataset[index]
        sample = packed['data_samples']
        batch = dict(inputs=[packed['inputs']], data_samples=[sample])
        data = preprocessor(batch, training=split == 'train')
        pixels = data['inputs'][0].permute(1, 2, 0).cpu().numpy()  # [H, W, 3], BGR
        pixels = pixels.clip(0, 255).astype(np.uint8)
        image = np.ascontiguousarray(pixels[..., ::-1])
        path = out / f'{index:04d}_{Path(sample.img_path).stem}.png'
        labels = data['data_samples'][0]
        if loads_late:
            resize_labels(labels)
        if detects(config) and 'gt_instances' in labels:
            labels.gt_instances = labels.gt_instances.cpu()
        if 'gt_depth_map' in labels:
            draw_depth(path, pixels, labels.gt_depth_map.data[0].numpy())
            files.append(path)
            continue
        with warnings.catch_warnings():
            warnings.filterwarnings('ignore', '.*out of bounds')  # labels that a crop has cut
            visualizer.add_datasample(path.stem, image, labels, draw_pred=False, out_file=str(path))
        files.append(path)
    return files


def resize_labels(sample: BaseDataElement) -> None:
    """Fit labels of the original image, as evaluators want them, to the resized one, in place."""
    import numpy as np
    from mmengine.structures import PixelData
    from torch.nn.functional import interpolate

    height, width = sample.img_shape[:2]
    if 'gt_instances' in sample:
        objects, factor = sample.gt_instances, sample.scale_factor
        if hasattr(objects.bboxes, 'rescale_'):  # rotated
            objects.bboxes.rescale_(factor)
        else:
            objects.bboxes = objects.bboxes * objects.bboxes.new_tensor(np.tile(factor, 2))
        if 'masks' in objects:
            objects.masks = objects.masks.resize((height, width))
    if 'gt_sem_seg' in sample:
        labels = sample.gt_sem_seg.data[None].float()
        sample.gt_sem_seg = PixelData(data=interpolate(labels, (height, width))[0].long())
    if 'gt_depth_map' in sample:
        depths = sample.gt_depth_map.data[None]
        sample.gt_depth_map = PixelData(data=interpolate(depths, (height, width))[0])
