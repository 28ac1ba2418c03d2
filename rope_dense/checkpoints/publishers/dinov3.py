"""Key layouts of DINOv3 (Simeoni et al., 2025): Meta's and Hugging Face transformers'.

EUPE and LingBot-Vision have Meta's too. timm's is in timm_vit.py. Names are from the published
code; what is not a name was checked against timm's conversion of the same files, as far as it has
one.
"""

from __future__ import annotations

import torch

from ..errors import CheckpointError
from ..keys import VIT_BLOCK, KeyTable, Layout, StateDict

PERIODS = 'rope.periods'  # compared with the model's, not loaded
META_KEYS: KeyTable = {
    r'storage_tokens': 'reg_token',
    r'rope_embed\.periods': PERIODS,
    r'mask_token': None,  # of pre-training
    r'local_cls_norm\..+': None,  # of the class token of small crops, in pre-training
    r'projectors\..+': None,  # of EUPE's distillation
    r'(blocks\.\d+\.)ls([12])\.gamma': r'\1gamma_\2',
    r'(blocks\.\d+\.attn\.qkv\.)bias': r'\1{q_bias,k_bias,v_bias}',
    r'blocks\.\d+\.attn\.qkv\.bias_mask': None,  # which hides k_bias
    r'(blocks\.\d+\.mlp\.)w1\.(.+)': r'\1fc1_g.\2',
    r'(blocks\.\d+\.mlp\.)w2\.(.+)': r'\1fc1_x.\2',
    r'(blocks\.\d+\.mlp\.)w3\.(.+)': r'\1fc2.\2',
}

HF_BLOCK = r'(?:model\.)?layer\.(\d+)\.'
HF_KEYS: KeyTable = {
    r'embeddings\.cls_token': 'cls_token',
    r'embeddings\.register_tokens': 'reg_token',
    r'embeddings\.mask_token': None,  # of pre-training
    r'embeddings\.patch_embeddings\.(.+)': r'patch_embed.proj.\1',
    HF_BLOCK + r'(norm[12]\..+)': r'blocks.\1.\2',
    HF_BLOCK + r'attention\.{q_proj,k_proj,v_proj}\.weight': r'blocks.\1.attn.qkv.weight',
    HF_BLOCK + r'attention\.([qkv])_proj\.bias': r'blocks.\1.attn.qkv.\2_bias',
    HF_BLOCK + r'attention\.o_proj\.(.+)': r'blocks.\1.attn.proj.\2',
    HF_BLOCK + r'layer_scale([12])\.lambda1': r'blocks.\1.gamma_\2',
    HF_BLOCK + r'mlp\.down_proj\.(.+)': r'blocks.\1.mlp.fc2.\2',
}
HF_GELU_KEYS: KeyTable = {HF_BLOCK + r'mlp\.up_proj\.(.+)': r'blocks.\1.mlp.fc1.\2', **HF_KEYS}
HF_SWIGLU_KEYS: KeyTable = {
    HF_BLOCK + r'mlp\.gate_proj\.(.+)': r'blocks.\1.mlp.fc1_g.\2',
    HF_BLOCK + r'mlp\.up_proj\.(.+)': r'blocks.\1.mlp.fc1_x.\2',
    **HF_KEYS,
}


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


HF_QUERY = HF_BLOCK + r'attention\.q_proj\.weight'
LAYOUTS = (
    MetaLayout('Meta DINOv3', (VIT_BLOCK, 'storage_tokens'), META_KEYS),
    Layout(
        'Hugging Face DINOv3 with SwiGLU',
        (HF_QUERY, HF_BLOCK + r'mlp\.gate_proj\.weight'),
        HF_SWIGLU_KEYS,
    ),
    Layout('Hugging Face DINOv3', (HF_QUERY,), HF_GELU_KEYS),
)
