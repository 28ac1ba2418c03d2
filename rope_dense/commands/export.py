"""Export a model to torch.export or ONNX: a file that runs without this package.

Examples:
    rope-dense export work_dirs/cats model.onnx
    rope-dense export configs/upernet_vit_rope_mixed.py iter_160000.pth upernet.onnx
    rope-dense export configs/dino_swin_rope_mixed.py a.pth dino.onnx --size 800x1344 --batch 1
    rope-dense export CONFIG CHECKPOINT model.pt2 --dtype bf16
    rope-dense export hf-hub:OWNER/NAME model.onnx   # what push-to-hub wrote
    rope-dense export SHARED_CONFIG all.onnx   # several tasks, see docs/one_encoder.md

Exported detectors, segmentors (always for whole images, regardless of the config's test_cfg) and
classifiers take images of 8-bit pixels; docs/export.md describes the outputs. The exported file is
run once and compared with the model.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from .arguments import ToolParser, add_cfg_options, add_model, at_least, size, values

SUFFIXES, PRECISIONS = ('.onnx', '.pt2'), ('fp32', 'fp16', 'bf16')
T = TypeVar('T')


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    add_model(parser)
    parser.add_argument('out', type=output, help='file to write: NAME.onnx or NAME.pt2')
    parser.add_argument(
        '--size',
        type=or_dynamic(size),
        default='dynamic',
        help='HEIGHTxWIDTH in pixels, or dynamic (%(default)s)',
    )
    parser.add_argument(
        '--batch',
        type=or_dynamic(at_least(1)),
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
    return parser.parse(argv)


def output(text: str) -> Path:
    path = Path(text)
    if path.suffix not in SUFFIXES:
        raise argparse.ArgumentTypeError(f'{text}: give NAME.onnx or NAME.pt2')
    return path


def or_dynamic(kind: Callable[[str], T]) -> Callable[[str], T | str]:
    def number(text: str) -> T | str:
        return text if text == 'dynamic' else kind(text)

    return number


def main(args: argparse.Namespace) -> None:
    from ..export.trained import export_model

    export_model(**values(args))
