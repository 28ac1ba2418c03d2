"""Evaluate a published classifier at many image sizes: tables A.3 to A.8 of the paper.

CHECKPOINT is a file of RoPE-ViT, RoPE-Swin, their baselines or timm's ports, of ResFormer or of
SHI-Labs' ViT, with its head; FOLDER has a folder of images for each class. Prints a table while it
runs, and writes resolutions.json, .csv and .png to the work folder. Finished figures are kept.

The protocol: the shorter side is resized to SIZE / CROP RATIO (bicubic, antialiased), the middle
SIZE x SIZE are classified. The crop ratio is 1 for ViT and 0.875 for Swin, whose windows have
SIZE / 32 tokens. The work folder also gets classifier.py, the config of the evaluation.

Examples:
    python tools/eval_classification.py hf-hub:naver-ai/rope_mixed_deit_small_patch16_LS val
    python tools/eval_classification.py swin.pth imagenet/val --sizes 96 128 160 192 224 256
    python tools/eval_classification.py vit.pth imagenet-a --class-index imagenet/val --subset
    python tools/eval_classification.py vit.pth imagenet/val --real-labels real.json
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import get_args

from mmengine.config import Config
from mmengine.registry import MODELS

from rope_dense.backbones.layers import TableResize
from rope_dense.cli.checkpoints import is_remote
from rope_dense.cli.config import load_config
from rope_dense.cli.data_checks import check_data
from rope_dense.cli.errors import UsageError, command
from rope_dense.cli.sweeps import (
    add_sweep_arguments,
    check_points,
    evaluate_points,
    finish,
    loader_of,
    open_results,
    training_size_of,
    usage_errors,
)
from rope_dense.evaluation.classifier import classifier_config
from rope_dense.evaluation.settings import AS_CONFIG, SweepModel
from rope_dense.evaluation.sweep import plan

PAPER_SIZES = {
    'RoPEViT': ['96', '144', '192', '224', '256', '320', '384', '512'],
    'RoPESwin': ['96', '128', '160', '192', '224', '256', '320', '384'],
    'RoPENAT': ['224'],
}
CROP_RATIOS = {'RoPEViT': 1.0, 'RoPESwin': 0.875, 'RoPENAT': 0.875}
TRAINING_SIZE = '224'


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('checkpoint', help='path, https:// address or hf-hub:owner/name')
    parser.add_argument('folder', help='folder of class folders')
    add_sweep_arguments(parser, sizes_required=False)
    parser.add_argument(
        '--rope',
        choices=['axial', 'none'],
        help='kind of a ViT whose weights do not tell: those of axial models with position '
        'embedding look like the baseline',
    )
    parser.add_argument(
        '--rpb-resize',
        choices=get_args(TableResize),
        help='how a relative position bias fits other windows and grids (bicubic); zeros: none '
        'between tokens further apart than it covers',
    )
    parser.add_argument(
        '--crop-ratio',
        type=float,
        help='share of the resized shorter side that is kept (see above)',
    )
    parser.add_argument(
        '--class-index',
        metavar='PATH',
        help='which class of the model a folder is: a JSON file {"0": ["n01440764", "tench"]}, '
        "a text file with a name in each line, or ImageNet's validation folder (by default the "
        'sorted folders are the classes; folders named by numbers, the classes of these numbers)',
    )
    parser.add_argument(
        '--subset',
        action='store_true',
        help='only the classes that have a folder compete: ImageNet-A and ImageNet-R',
    )
    parser.add_argument(
        '--real-labels', metavar='JSON', help='ReaL: lists of right classes, by number of the image'
    )
    parser.add_argument('--train-size', metavar='SIZE', default=TRAINING_SIZE, help='(%(default)s)')
    parser.add_argument(
        '--config',
        help='of the classifier, where its weights do not tell, such as those of configs/ablation; '
        'its `evaluation` has the sizes and the crop ratio, if they are not given here',
    )
    parser.add_argument('--batch-size', type=int, default=64, help='(%(default)s)')
    parser.add_argument('--workers', type=int, default=2, help='loading processes (%(default)s)')
    parser.add_argument(
        '--work-dir', help='folder for results (work_dirs/<name of the checkpoint>)'
    )
    return parser.parse_args(argv)


@command
def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    name = re.split(r'[/:]', args.checkpoint.rstrip('/'))[-1]
    if args.batch_size < 1 or args.workers < 0:
        raise UsageError('--batch-size must be 1 or more, --workers 0 or more')
    for option in ('class_index', 'real_labels'):
        if (path := getattr(args, option)) and is_remote(path):
            raise UsageError(f'--{option.replace("_", "-")} {path}: give a file of this machine')
    model_config, sizes = model_and_sizes(args)
    backbone = model_config['backbone']
    kind = backbone['type']
    arch = backbone['arch'] if isinstance(backbone['arch'], dict) else {}
    if args.rpb_resize and not (backbone.get('use_rpb') or arch.get('use_rpb')):
        raise UsageError(f'--rpb-resize {args.rpb_resize}: {args.checkpoint} has no such bias')
    if args.rpb_resize:
        backbone['rpb_resize'] = args.rpb_resize
    config = make_config(args, model_config, name)
    check_data(config, ('test_dataloader',))
    windows = args.window or (['auto'] if kind == 'RoPESwin' else [AS_CONFIG])
    points = plan(sizes or PAPER_SIZES[kind], args.scaling, windows)
    with usage_errors():
        training_size = training_size_of(config, args.train_size)
    model = MODELS.build(config.model)
    check_points(points, SweepModel(model, config))
    load = loader_of(model, args.checkpoint)  # before anything long starts
    del model
    results = open_results(args, config, name=name, training_size=training_size)
    os.makedirs(config.work_dir, exist_ok=True)
    config.dump(os.path.join(config.work_dir, 'classifier.py'))
    evaluate_points(config, points, results, load)
    finish(args, results)


def model_and_sizes(args: argparse.Namespace) -> tuple[dict, list[str] | None]:
    """The config of the model, and the sizes that are asked for.

    Raises:
        UsageError: the file given as ``--config`` is no config of a classifier.
    """
    if args.config is None:
        return classifier_config(args.checkpoint, args.rope), args.sizes
    config = load_config(args.config, {}, None)
    if config.get('model', {}).get('type') != 'RoPEClassifier':
        raise UsageError(f'--config {args.config}: its model must be a RoPEClassifier')
    preset = config.get('evaluation', {})
    if args.crop_ratio is None:
        args.crop_ratio = preset.get('crop_ratio')
    return config.model.to_dict(), args.sizes or [str(size) for size in preset.get('sizes', [])]


def make_config(args: argparse.Namespace, model: dict, name: str) -> Config:
    """The config of an evaluation, as for a detector or a segmentor."""
    kind = model['backbone']['type']
    ratio = CROP_RATIOS[kind] if args.crop_ratio is None else args.crop_ratio
    if not 0 < ratio <= 1:
        raise UsageError(f'--crop-ratio {ratio}: give a number over 0 and up to 1')
    if kind == 'RoPESwin':
        model['backbone']['window_size'] = 'auto'
    side = int(TRAINING_SIZE)
    read = dict(
        type='LoadImageFromFile',
        imdecode_backend='pillow',
        color_type='color_ignore_orientation',  # as torchvision's reader
    )
    dataset = dict(
        type='ClassFolderDataset',
        data_root=args.folder,
        class_index=args.class_index,
        real_labels=args.real_labels,
        pipeline=[
            read,
            dict(type='ResizeCentreCrop', scale=(side, side), crop_ratio=ratio),
            dict(type='PackClassInputs'),
        ],
    )
    loader = dict(
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        sampler=dict(type='DefaultSampler', shuffle=False),
        dataset=dataset,
    )
    return Config(
        dict(
            default_scope='mmengine',
            custom_imports=dict(
                imports=['rope_dense.evaluation.classifier', 'rope_dense.evaluation.image_folder']
            ),
            model=model,
            test_dataloader=loader,
            test_evaluator=dict(type='TopKAccuracy', subset=args.subset),
            test_cfg=dict(),
            work_dir=args.work_dir or f'work_dirs/{name}',
        )
    )


if __name__ == '__main__':
    sys.exit(main())
