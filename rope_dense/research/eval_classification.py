r"""Evaluate a published classifier at many image sizes, beside what papers report for them.

CHECKPOINT is a file of RoPE-ViT, RoPE-Swin, their baselines or timm's ports, of ResFormer or of
SHI-Labs' ViT, with its head; FOLDER has a folder of images for each class. Prints a table while it
runs, and writes resolutions.json, .csv and .png to the work folder. Finished results are reused.
If the weights fit several named classifiers, --model has to name one.

The shorter side is resized to SIZE / CROP RATIO (bicubic, antialiased), and the middle SIZE x SIZE
pixels are classified. By default sizes and crop ratio are as published: 1 for the ViTs of RoPE-ViT,
0.875 for Swin (with windows of SIZE / 32 tokens), ResFormer, NAT and SHI-Labs' ViT. The work folder
also gets classifier.py, the config of the evaluation.

Examples:
    python tools/eval_classification.py hf-hub:naver-ai/rope_mixed_deit_small_patch16_LS val
    python tools/eval_classification.py swin.pth imagenet/val --sizes table-a.10 \
        --overlay table-a.8 --relative-to table-a.8:swin-b_rpb
    python tools/eval_classification.py vit.pth val --model ropevit_small_axial_ape
    python tools/eval_classification.py vit.pth imagenet-a --class-index imagenet/val --subset
    python tools/eval_classification.py vit.pth imagenet/val --real-labels real.json
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..commands.arguments import add_sweep_arguments, tool_parser
from ..project.errors import UsageError, usage_errors

if TYPE_CHECKING:
    from mmengine.config import Config


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('checkpoint', help='path, https:// address or hf-hub:owner/name')
    parser.add_argument('folder', help='folder of class folders')
    add_sweep_arguments(parser, sizes_required=False)
    parser.add_argument(
        '--model',
        metavar='NAME',
        help='of the classifier, as in timm (docs/research/pretraining.md lists the names): '
        'ropevit_small_mixed, ropeswin_tiny_axial ... (what the file says, or the only one whose '
        'weights these can be)',
    )
    parser.add_argument(
        '--rope',
        choices=['axial', 'none'],
        help='kind of a ViT whose weights do not tell: those of axial models with position '
        'embedding look like the baseline',
    )
    parser.add_argument(
        '--rpb-resize',
        choices=['bicubic', 'zeros'],
        help='how a relative position bias fits other windows and grids (zeros for Swin, as '
        'published, else bicubic); zeros: none between tokens further apart than it covers',
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
    parser.add_argument('--train-size', metavar='SIZE', default='224', help='(%(default)s)')
    parser.add_argument(
        '--config',
        help='of a classifier without a name, such as in configs/research/ablation; '
        'its `evaluation` has the sizes and the crop ratio, if they are not given here',
    )
    parser.add_argument('--batch-size', type=int, default=64, help='(%(default)s)')
    parser.add_argument('--workers', type=int, default=2, help='loading processes (%(default)s)')
    parser.add_argument(
        '--work-dir', help='folder for results (work_dirs/<name of the checkpoint>)'
    )
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from ..measure.settings import FROM_CONFIG
    from ..measure.sweep import prepare_sweep
    from .papers import expand_sizes, read_runs

    name = re.split(r'[/:]', args.checkpoint.rstrip('/'))[-1]
    config = make_config(args, *model_and_protocol(args), name)
    with usage_errors():
        sizes = expand_sizes(config.evaluation.sizes)
    run = prepare_sweep(
        args,
        config,
        name=name,
        sizes=sizes,
        read_runs=read_runs,
        window='auto' if config.model.backbone.type == 'RoPESwin' else FROM_CONFIG,
    )
    os.makedirs(config.work_dir, exist_ok=True)
    config.dump(os.path.join(config.work_dir, 'classifier.py'))
    print(f'crop ratio {config.evaluation.crop_ratio}')
    run()


def model_and_protocol(args: argparse.Namespace) -> tuple[dict, dict]:
    """The config of the model, and the sizes and the crop ratio to test it with.

    These are as given, as its config says, or as its results were published.

    Raises:
        UsageError: the file given as ``--config`` is no config of a classifier, or an option does
            not fit the model.
    """
    from ..project.load import load_config
    from .classifier import PROTOCOLS, classifier_config

    if args.config is not None and args.model is not None:
        raise UsageError(f'--model {args.model} and --config {args.config}: give one of them')
    if args.config is None:
        config = classifier_config(args.checkpoint, args.rope, args.model)
    else:
        config = load_config(args.config).to_dict()
    model = config.get('model', {})
    if model.get('type') != 'RoPEClassifier':
        raise UsageError(f'--config {args.config}: its model must be a RoPEClassifier')
    given = dict(sizes=args.sizes, crop_ratio=args.crop_ratio)
    protocol = PROTOCOLS.get(model['backbone']['type'], {}) | config.get('evaluation', {})
    protocol |= {key: value for key, value in given.items() if value is not None}
    if given.keys() - protocol.keys():
        raise UsageError(f'--config {args.config}: has no evaluation; give --sizes, --crop-ratio')
    if not 0 < protocol['crop_ratio'] <= 1:
        raise UsageError(f'--crop-ratio {protocol["crop_ratio"]}: give a number over 0 and up to 1')
    return model, dict(protocol, sizes=[str(size) for size in protocol['sizes']])


def make_config(args: argparse.Namespace, model: dict, protocol: dict, name: str) -> Config:
    """The config of an evaluation, as for a detector or a segmentor."""
    from mmengine.config import Config

    backbone = model['backbone']
    if backbone['type'] == 'RoPESwin':
        backbone['window_size'] = 'auto'
    arch = backbone['arch'] if isinstance(backbone.get('arch'), dict) else {}
    has_bias = backbone.get('use_rpb') or arch.get('use_rpb')
    if args.rpb_resize:
        if not has_bias:
            raise UsageError(f'--rpb-resize {args.rpb_resize}: {args.checkpoint} has no such bias')
        backbone['rpb_resize'] = args.rpb_resize
    elif has_bias and 'rpb_resize' in protocol:
        backbone.setdefault('rpb_resize', protocol['rpb_resize'])
    read = dict(
        type='LoadImageFromFile',
        imdecode_backend='pillow',
        color_type='color_ignore_orientation',  # as torchvision's reader
    )
    crop = dict(type='ResizeCentreCrop', scale=(224, 224), crop_ratio=protocol['crop_ratio'])
    dataset = dict(
        type='ClassFolderDataset',
        data_root=args.folder,
        class_index=args.class_index,
        real_labels=args.real_labels,
        pipeline=[read, crop, dict(type='PackClassInputs')],
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
            custom_imports=dict(imports=['rope_dense.research']),
            model=model,
            test_dataloader=loader,
            test_evaluator=dict(type='TopKAccuracy', subset=args.subset),
            test_cfg=dict(),
            evaluation=protocol,
            work_dir=args.work_dir or f'work_dirs/{name}',
        )
    )
