"""Evaluate a checkpoint of a detector or a segmentor.

Examples:
    rope-dense test work_dirs/cats                    # its validation images
    rope-dense test work_dirs/cats --split test       # test/ of its data
    rope-dense test work_dirs/cats --data OTHER       # all labelled images of a folder
    rope-dense test work_dirs/cats --file model.onnx   # what was exported
    rope-dense test configs/dino_vitdet_rope_mixed.py work_dirs/a/iter_90000.pth
    rope-dense test configs/upernet_vit_rope_mixed.py iter_160000.pth --tta --out labels
"""

import argparse
from collections.abc import Sequence

from .arguments import (
    ToolParser,
    add_common,
    add_compile,
    add_exported,
    add_model,
    add_queries,
    add_split,
    values,
)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    add_model(parser)
    parser.add_argument(
        '--out',
        help='save the predictions: of a detector to a pickle (NAME.pkl), of a segmentor to a '
        "folder of label images (PNG, numbered as in the data set), of a panoptic model as COCO's "
        'panoptic.json and PNGs, to a folder',
    )
    parser.add_switch('--tta', "test-time augmentation by the config's tta_pipeline")
    add_compile(parser)
    add_split(parser)
    add_exported(parser)
    add_common(parser)
    add_queries(parser)
    return parser.parse(argv)


def main(args: argparse.Namespace) -> None:
    from ..measure.evaluate import evaluate

    evaluate(**values(args))
