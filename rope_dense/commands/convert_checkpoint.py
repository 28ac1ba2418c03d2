"""Convert the weights of a backbone or a real-time detector: published layouts to ours, and back.

Training needs no conversion: init_cfg and load_from read published files directly. Classifier heads
and computed buffers are dropped. docs/checkpoints.md lists the layouts. A published detector
(DEIMv2, ECDet, ECSeg) is converted as a whole; --to deimv2 or edgecrafter converts a detector of
this package.

Examples:
    python tools/convert_checkpoint.py work_dirs/a/iter_90000.pth backbone.safetensors
    python tools/convert_checkpoint.py hf-hub:naver-ai/rope_mixed_deit_base_patch16_LS vit.pth
    python tools/convert_checkpoint.py vit.pth pytorch_model.bin --to naver --report
    python tools/convert_checkpoint.py hf-hub:Intellindust/DEIMv2_DINOv3_S_COCO deimv2-s.pth
    python tools/convert_checkpoint.py work_dirs/b/iter_90000.pth deim.pth --to deimv2
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..project.errors import UsageError
from .arguments import tool_parser

if TYPE_CHECKING:
    from ..checkpoints.keys import KeyTable, Layout, StateDict

DETECTORS = ('deimv2', 'edgecrafter')
LAYOUTS = ('ours', 'naver', 'timm', *DETECTORS)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('source', help='path, https:// address or hf-hub:owner/name')
    parser.add_argument('destination', type=Path, help='file to write, NAME.pth or .safetensors')
    parser.add_argument(
        '--to', choices=LAYOUTS, default='ours', help='layout to write (%(default)s)'
    )
    parser.add_argument('--report', action='store_true', help='print the result for each key')
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from ..checkpoints.fetch import fetch
    from ..checkpoints.models import find_detector
    from ..checkpoints.publishers import TARGETS, find_layout
    from ..checkpoints.read import read_checkpoint
    from ..checkpoints.weights import select_weights

    contents = read_checkpoint(fetch(args.source), args.source)
    if args.to in DETECTORS or (args.to == 'ours' and find_detector(contents)):
        convert_whole(contents, args)
        return
    target = TARGETS[args.to]
    weights = select_weights(contents, None, args.source)
    layout = find_layout(weights, args.source)
    ours = layout.to_ours(weights)
    converted = target.from_ours(ours)
    write(converted, args.destination, target.wrapper)
    if args.report:
        print(report(weights, layout, target.keys(ours)))
    print(f'{args.destination}: {len(converted)} tensors of {len(weights)} from {layout.name}')


def convert_whole(contents: dict, args: argparse.Namespace) -> None:
    """Write the weights of a whole detector.

    Raises:
        CheckpointError: it is none, or has keys that are not known.
    """
    from ..checkpoints.models import convert_detector, to_published
    from ..checkpoints.weights import select_weights

    published = convert_detector(contents, args.source)
    ours = select_weights(published, '', args.source)
    to_ours = args.to == 'ours'
    converted = ours if to_ours else to_published(ours, args.to)
    write(converted, args.destination, 'state_dict' if to_ours else 'model')
    if args.report:
        print('\n'.join(f'{key} {list(tensor.shape)}' for key, tensor in converted.items()))
    print(f'{args.destination}: {len(converted)} tensors of a whole detector')


def write(weights: StateDict, path: Path, wrapper: str | None) -> None:
    """Write a file that is either complete or absent.

    Args:
        wrapper: key of the weights in a PyTorch file, or None if they are at its top.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    from ..utils.atomic_write import atomic_write

    weights = {key: tensor.contiguous() for key, tensor in weights.items()}
    try:
        with atomic_write(path) as partial:
            if path.suffix == '.safetensors':
                save_file(weights, partial, metadata={'format': 'pt'})
            else:
                torch.save({wrapper: weights} if wrapper else weights, partial)
    except SafetensorError as error:
        raise UsageError(f'{path}: cannot be written ({error})') from error


def report(weights: StateDict, layout: Layout, table: KeyTable) -> str:
    """One line for each key of the source; ``table`` is what becomes of our keys."""
    from ..checkpoints.keys import new_keys

    lines = []
    for key, tensor in weights.items():
        new = [name for ours in new_keys(key, layout.keys) for name in new_keys(ours, table)]
        name = 'same' if new == [key] else ' + '.join(new) or 'dropped'
        lines.append(f'{key} {list(tensor.shape)} -> {name}')
    return '\n'.join(lines)
