"""Key layouts of DINOv3 (Simeoni et al., 2025) and of CHMv2, a depth model on it.

DINOv3's are Meta's, which EUPE and LingBot-Vision have too, and Hugging Face transformers'; timm's
is in timm_vit.py. Names are from the published code; what is not a name was checked against timm's
conversion of the same files, as far as it has one.

CHMv2 (Canopy Height Maps v2) is DINOv3 with a DPT head for depth. Names are from transformers'
code, checked with random weights against its model in tests/models/test_depth_head.py.
"""

import torch

from ..errors import CheckpointError
from ..keys import VIT_BLOCK, Layout, Row, Rows, StateDict, rows_within

PERIODS = 'rope.periods'  # compared with the model's, not loaded
META_GATED: Rows = [('blocks.#.mlp.{w1,w2,w3}.*', 'blocks.#.mlp.{fc1_g,fc1_x,fc2}.*')]
META: Rows = [
    ('storage_tokens', 'reg_token'),
    ('rope_embed.periods', PERIODS),
    ('mask_token', None),  # of pre-training
    ('local_cls_norm.*', None),  # of the class token of small crops, in pre-training
    ('projectors.*', None),  # of EUPE's distillation
    ('blocks.#.ls#.gamma', 'blocks.#.gamma_#'),
    ('blocks.#.attn.qkv.bias', 'blocks.#.attn.qkv.{q,k,v}_bias'),
    ('blocks.#.attn.qkv.bias_mask', None),  # which hides k_bias
]


def hf_rows(*mlp: Row) -> Rows:
    """Rows of Hugging Face's, with the rows of the first layers of an MLP."""
    block: Rows = [
        *mlp,
        ('norm#.*', 'norm#.*'),
        ('attention.{q,k,v}_proj.weight', 'attn.qkv.weight'),
        ('attention.{q,k,v}_proj.bias', 'attn.qkv.{q,k,v}_bias'),
        ('attention.o_proj.*', 'attn.proj.*'),
        ('layer_scale#.lambda1', 'gamma_#'),
        ('mlp.down_proj.*', 'mlp.fc2.*'),
    ]
    return [
        ('embeddings.cls_token', 'cls_token'),
        ('embeddings.register_tokens', 'reg_token'),
        ('embeddings.mask_token', None),  # of pre-training
        ('embeddings.patch_embeddings.*', 'patch_embed.proj.*'),
        *rows_within('layer.#', 'blocks.#', *block),
        *rows_within('model.layer.#', 'blocks.#', *block),
    ]


class MetaLayout(Layout):
    """Meta's, whose files hide the biases of the keys with a mask."""

    def to_ours(self, weights: StateDict) -> StateDict:
        """Biases of q, k and v apart, without the biases of the keys where a mask hides them.

        Raises:
            CheckpointError: a mask that hides anything else.
        """
        ours = super().to_ours(weights)
        for key, mask in weights.items():
            if not key.endswith('.attn.qkv.bias_mask'):
                continue
            expected = torch.tensor([1.0, 0.0, 1.0]).repeat_interleave(len(mask) // 3)
            if not torch.equal(mask.float(), expected):
                raise CheckpointError(f'{key} masks more than the biases of the keys')
            ours.pop(key.replace('bias_mask', 'k_bias'), None)
        return ours


HF_BLOCK = '{layer,model.layer}.#'
HF_QUERY = f'{HF_BLOCK}.attention.q_proj.weight'
LAYOUTS = (
    MetaLayout('Meta DINOv3', (VIT_BLOCK, 'storage_tokens'), META + META_GATED),
    Layout(
        'Hugging Face DINOv3 with SwiGLU',
        (HF_QUERY, f'{HF_BLOCK}.mlp.gate_proj.weight'),
        hf_rows(('mlp.{gate,up}_proj.*', 'mlp.fc1_{g,x}.*')),
    ),
    Layout('Hugging Face DINOv3', (HF_QUERY,), hf_rows(('mlp.up_proj.*', 'mlp.fc1.*'))),
)


CHMV2: Rows = [
    ('backbone.*', 'backbone.*'),
    *rows_within(
        'head',
        'decode_head',
        (
            'reassemble_stage.layers.#.projection.*',
            'reassemble_blocks.projects.#.conv.*',
        ),
        ('reassemble_stage.layers.#.resize.*', 'reassemble_blocks.resize_layers.#.*'),
        ('reassemble_stage.readout_projects.*', 'reassemble_blocks.readout_projects.*'),
        ('convs.#.weight', 'convs.#.conv.weight'),
        ('fusion_layers.#.projection.*', 'fusion_blocks.#.project.conv.*'),
        (
            'fusion_layers.#.residual_layer#.convolution#.*',
            'fusion_blocks.#.res_conv_unit#.conv#.conv.*',
        ),
        ('conv_depth.head.*', 'conv_depth.*'),
    ),
]
