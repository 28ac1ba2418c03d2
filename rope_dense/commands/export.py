"""Export a model to torch.export or ONNX: a file that runs without this package.

Examples:
    python tools/export.py configs/upernet_vit_rope_mixed.py iter_160000.pth upernet.onnx
    python tools/export.py configs/dino_swin_rope_mixed.py a.pth dino.onnx --size 800x1344 --batch 1
    python tools/export.py CONFIG CHECKPOINT model.pt2 --format pt2 --dtype bf16
    python tools/export.py hf-hub:OWNER/NAME model.onnx   # what tools/push_to_hub.py wrote
    python tools/export.py SHARED_CONFIG all.onnx   # several tasks, see docs/one_encoder.md

Exported detectors, segmentors (always for whole images, regardless of the config's test_cfg) and
classifiers take images of 8-bit pixels; docs/export.md describes the outputs. The exported file is
run once and compared with the model.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import add_cfg_options, add_model_arguments, tool_parser

if TYPE_CHECKING:
    from mmengine.config import Config
    from torch import nn

    from ..checks.trained_model import Colour

FORMATS, PRECISIONS = ('onnx', 'pt2'), ('fp32', 'fp16', 'bf16')


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    add_model_arguments(parser)
    parser.add_argument('out', type=Path, help='file to write: NAME.onnx or NAME.pt2')
    parser.add_argument('--format', choices=FORMATS, help='(by the suffix of the file)')
    parser.add_argument(
        '--size', default='dynamic', help='HEIGHTxWIDTH in pixels, or dynamic (%(default)s)'
    )
    parser.add_argument(
        '--batch',
        type=number_or_dynamic,
        default='dynamic',
        help='images per batch, or dynamic (%(default)s)',
    )
    parser.add_argument(
        '--dtype',
        choices=PRECISIONS,
        default='fp32',
        help='precision of the backbone, of DEIM also of encoder, decoder layers and masks; '
        'float32_parts of the metadata stay in fp32 (%(default)s)',
    )
    add_cfg_options(parser)
    return parser.parse_args(argv)


def number_or_dynamic(text: str) -> int | str:
    return text if text == 'dynamic' else int(text)


def main(args: argparse.Namespace) -> None:
    from mmengine.utils import to_2tuple

    from ..checks.model import build_model
    from ..export import export
    from ..export.compare import check_file
    from ..export.exporter import DTYPES
    from ..project.load import find_model
    from ..project.sizes import parse_size
    from ..utils.lock import exclusive
    from ..utils.progress import alive

    size = args.size if args.size == 'dynamic' else to_2tuple(parse_size(args.size))
    cfg, checkpoint = find_model(args.config, args.checkpoint, args.cfg_options)
    model = build_model(cfg)
    classes, colours = load(cfg, model, checkpoint) if checkpoint else (None, None)
    print(f'{args.out}: the model is traced and compared, which takes minutes', flush=True)
    with exclusive(args.out), alive(f'{args.out}: traced'):
        metadata = export(
            model,
            args.out,
            format=args.format or args.out.suffix[1:],
            size=size,
            batch=args.batch,
            dtype={name: dtype for dtype, name in DTYPES.items()}[args.dtype],
            classes=classes,
            colours=colours,
            resize=resize_of(cfg),
        )
    for name, value in metadata.items():
        print(f'{name:15} {value}')
    print(f'{args.out}: {args.out.stat().st_size / 1e6:.1f} MB')
    with alive(f'{args.out}: compared with the model'):
        print(check_file(args.out, model, metadata))


def load(
    cfg: Config, model: nn.Module, checkpoint: str
) -> tuple[Sequence[str] | None, Sequence[Colour] | None]:
    """Load the weights into a model; names and colours of its classes, if the checkpoint has them.

    Raises:
        UsageError, CheckpointError: they cannot be read, or do not fit.
    """
    from ..checks.trained_model import classes_and_colours
    from ..project.weights import check_tested_weights

    stored = check_tested_weights(checkpoint, model)
    classes = ((stored.get('meta') or {}).get('dataset_meta') or {}).get('classes')
    classes = classes or (cfg.get('metainfo') or {}).get('classes')  # of a model of the hub
    if classes is None or cfg.get('test_dataloader') is None:
        return classes, None
    return classes, classes_and_colours(cfg, stored)[1]


def resize_of(cfg: Config) -> dict | None:
    """The size of the test pipeline: of its first Resize; None without one."""
    loader = cfg.get('test_dataloader') or {}
    steps = (loader.get('dataset') or {}).get('pipeline') or []
    step = next((step for step in steps if step.type.endswith('Resize') and 'scale' in step), None)
    if step is None or isinstance(step.scale, (int, float)):
        return None
    return dict(scale=list(step.scale), keep_ratio=bool(step.get('keep_ratio')))
