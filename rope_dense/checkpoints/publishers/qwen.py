"""Key layouts of the vision towers of Qwen3-VL, Qwen3.5 and Qwen3.8: the authors', timm's.

The authors' files have them under ``model.visual.``. Names are from transformers'
``Qwen3VLVisionModel``, checked with random weights against that model and timm's conversion in
tests/checkpoints/test_qwen.py.
"""

import torch
from torch import Tensor

from ..keys import VIT_BLOCK, Layout, Rows

MERGERS: Rows = [  # of the language model
    ('merger.*', None),
    ('deepstack_merger_list.*', None),
]
ROWS: Rows = [
    *MERGERS,
    ('rotary_pos_emb.*', None),  # computed
    ('pos_embed.weight', 'pos_embed'),
    ('blocks.#.mlp.linear_fc#.*', 'blocks.#.mlp.fc#.*'),
]


def sum_frames(kernel: Tensor) -> Tensor:
    """[C, 3, 2, 16, 16] to [C, 3, 16, 16]: an image is a video of two equal frames.

    The sum is rounded once, to float32 at least.
    """
    return kernel.double().sum(2).to(torch.promote_types(kernel.dtype, torch.float32))


LAYOUTS = (
    Layout(
        'Qwen3-VL',
        ('blocks.#.mlp.linear_fc1.weight', 'pos_embed.weight'),
        ROWS,
        {
            'patch_embed.proj.weight': sum_frames,
            'pos_embed.weight': lambda positions: positions[None],  # [1, 48 * 48, C]
        },
    ),
    Layout('timm Qwen3-VL', (VIT_BLOCK, 'merger.*'), MERGERS),
)
