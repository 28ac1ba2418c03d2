"""Export a model to torch.export or ONNX: a file that runs without this package.

Examples:
    rope-dense export work_dirs/cats model.onnx
    rope-dense export configs/upernet_vit_rope_mixed.py iter_160000.pth upernet.onnx
    rope-dense export configs/dino_swin_rope_mixed.py a.pth dino.onnx --size 800x1344 --batch 1
    rope-dense export CONFIG CHECKPOINT model.pt2 --dtype bf16
    rope-dense export work_dirs/cats model.onnx --resize --rgb --score 0.3   # for a browser
    rope-dense export hf-hub:OWNER/NAME model.onnx   # what push-to-hub wrote
    rope-dense export SHARED_CONFIG all.onnx   # several tasks, see docs/one_encoder.md

Exported detectors, segmentors (always for whole images, regardless of the config's test_cfg) and
classifiers take images of 8-bit pixels; docs/export.md describes the outputs, which NAME.json lists
beside the file. The file is run on noise of three sizes and on two test images and compared with
the model, in OpenVINO too if that is installed; a difference ends the command with an error.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from .arguments import (
    ToolParser,
    add_cfg_options,
    add_model,
    add_queries,
    at_least,
    image_size_text,
    values,
)

PRECISIONS = 'fp32', 'fp16', 'bf16', 'int8'
T = TypeVar('T')


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    add_model(parser)
    parser.add_argument('out', type=Path, help='file to write: NAME.onnx or NAME.pt2')
    parser.add_argument(
        '--size',
        type=or_dynamic(image_size_text),
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
        'float32_parts of the metadata stay in fp32; int8: of the weights of matrix products '
        '(%(default)s)',
    )
    parser.add_switch(
        '--resize',
        'take images of any size, and resize them in the file as the test pipeline does; '
        'boxes, masks and maps are in pixels of the input',
    )
    parser.add_switch('--rgb', 'take RGB images (BGR)')
    parser.add_number('--top', 'detections of an image at most', least=1)
    parser.add_argument('--score', type=float, help='leave out detections below it')
    parser.add_number(
        '--opset', 'version of ONNX operators (%(default)s)', least=17, default=20
    )
    parser.add_switch(
        '--unchecked',
        'accept a file that no program here runs, or that one runs wrongly',
    )
    add_cfg_options(parser)
    add_queries(parser)
    return parser.parse(argv)


def or_dynamic(kind: Callable[[str], T]) -> Callable[[str], T | str]:
    def number(text: str) -> T | str:
        return text if text == 'dynamic' else kind(text)

    return number


def main(args: argparse.Namespace) -> None:
    from ..export.trained import export_model

    export_model(**values(args))
