r"""Convert a published EoMT-DINOv3 or PMT to a checkpoint for the tools test, train and export.

The EoMT authors publish differences from DINOv3's weights, and PMT files contain no encoder
weights, so --base names DINOv3's weights, in any layout. Files for Hugging Face's transformers need
no --base. docs/eomt.md lists the files.

Examples:
    python tools/convert_eomt.py configs/eomt/eomt_dinov3-l_8xb2-20k_ade20k-512x512.py \
        hf-hub:tue-mps/ade_semantic_eomt_large_512_dinov3 eomt.pth \
        --base hf-hub:facebook/dinov3-vitl16-pretrain-lvd1689m
    python tools/convert_eomt.py configs/pmt/pmt_dinov3-s_8xb2-89k_coco-panoptic-640x640.py \
        hf-hub:tue-mps/coco_panoptic_pmt_small_640_dinov3 pmt.pth \
        --base hf-hub:facebook/dinov3-vits16-pretrain-lvd1689m
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from .arguments import tool_parser


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('config', help='config of a model with EoMT or PMT')
    parser.add_argument('source', help='path, https:// address or hf-hub:owner/name')
    parser.add_argument('destination', type=Path, help='file to write, NAME.pth')
    parser.add_argument('--base', help='DINOv3 weights that the source lacks')
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    import torch

    from ..checks.model import build_model
    from ..models.eomt.annealing import find_eomt
    from ..models.eomt.weights import load_eomt
    from ..project.load import load_config
    from ..utils.atomic_write import atomic_write

    model = build_model(load_config(args.config))
    load_eomt(model.backbone, find_eomt(model), args.source, args.base)
    weights = model.state_dict()
    with atomic_write(args.destination) as partial:
        torch.save(dict(state_dict=weights), partial)
    print(f'{args.destination}: {len(weights)} tensors')
