r"""Convert published weights to ours, and back: of a backbone, a real-time detector, EoMT or PMT.

Training needs no conversion: init_cfg and load_from read published files directly. Classifier heads
and computed buffers are dropped. docs/checkpoints.md lists the layouts. A published detector
(DEIMv2, ECDet, ECSeg) is converted as a whole; --to deimv2 or edgecrafter converts a detector of
this package. EoMT and PMT become a checkpoint of the model in --config; the EoMT authors publish
differences from DINOv3's weights, and PMT files have no encoder, so --base names DINOv3's weights,
in any layout (files for Hugging Face's transformers need none; docs/eomt.md lists the files).

Examples:
    rope-dense convert-checkpoint work_dirs/a/iter_90000.pth backbone.safetensors
    rope-dense convert-checkpoint hf-hub:naver-ai/rope_mixed_deit_base_patch16_LS vit.pth
    rope-dense convert-checkpoint vit.pth pytorch_model.bin --to naver --report
    rope-dense convert-checkpoint hf-hub:Intellindust/DEIMv2_DINOv3_S_COCO deimv2-s.pth
    rope-dense convert-checkpoint work_dirs/b/iter_90000.pth deim.pth --to deimv2
    rope-dense convert-checkpoint hf-hub:tue-mps/ade_semantic_eomt_large_512_dinov3 eomt.pth \
        --config configs/eomt/eomt_dinov3-l_8xb2-20k_ade20k-512x512.py \
        --base hf-hub:facebook/dinov3-vitl16-pretrain-lvd1689m
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from .arguments import ToolParser, add_cfg_options, config_path, values

LAYOUTS = ('ours', 'naver', 'timm', 'deimv2', 'edgecrafter')


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    parser.add_argument('source', help='path, https:// address or hf-hub:owner/name')
    parser.add_argument(
        'out', type=Path, help='file to write, NAME.pth or NAME.safetensors'
    )
    parser.add_argument(
        '--to', choices=LAYOUTS, default='ours', help='layout to write (%(default)s)'
    )
    parser.add_argument(
        '--config', type=config_path, help='config of a model with EoMT or PMT'
    )
    parser.add_argument('--base', help="DINOv3's weights that such a source lacks")
    add_cfg_options(parser)
    parser.add_switch('--report', 'print the result for each key')
    return parser.parse(argv)


def main(args: argparse.Namespace) -> None:
    from ..project.convert_checkpoint import convert_checkpoint

    convert_checkpoint(**values(args))
