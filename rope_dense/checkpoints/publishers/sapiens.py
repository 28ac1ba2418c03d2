"""Key layouts of Sapiens2 (Meta, 2026): Meta's, Hugging Face transformers'.

Names are from the published code, facebookresearch/sapiens2 at 3098c14 and transformers 5.23.0. The
models with a tokenizer of windows (4k) are not known here.

Letters: h heads of queries, g heads of keys and values, D channels of a head.
"""

from dataclasses import dataclass

from torch import Tensor

from ..errors import CheckpointError, keys_text, short_key
from ..keys import Layout, Rows, StateDict, rows_within, shape_errors
from .dinov3 import HF_BLOCK, hf_rows

META: Rows = [
    ('storage_tokens', 'reg_token'),
    ('rope_embed.periods', None),  # rounded to bfloat16; the model computes them
    ('patch_embed.projection.*', 'patch_embed.proj.*'),
    ('ln1.weight', 'norm.weight'),
    *rows_within(
        'blocks.#',
        'blocks.#',
        ('ln#.weight', 'norm#.weight'),
        ('attn.{wq,wk,wv}.*', 'attn.qkv.*'),
        ('attn.gamma.weight', 'gamma_1'),
        ('ffn.w12.*', 'mlp.fc1_{g,x}.*'),
        ('ffn.w3.*', 'mlp.fc2.*'),
    ),
]
HF = hf_rows(
    ('mlp.{gate,up}_proj.*', 'mlp.fc1_{g,x}.*'),
    ('attention.{q,k}_norm.weight', 'attn.{q,k}_norm.weight'),
)


@dataclass(frozen=True)
class GroupedLayout(Layout):
    """A layout whose heads of keys and values may each belong to several heads of queries.

    Attributes:
        projections: what the names of the projections of queries, keys and values end with.
        head_norm: the same of the norm of a head's queries, [D].
    """

    projections: tuple[str, str, str] = ('', '', '')
    head_norm: str = ''

    def to_ours(self, weights: StateDict) -> StateDict:
        """Weights with the rows of each head of keys and values once for each head of queries.

        Raises:
            CheckpointError: they cannot be converted.
        """
        given = {key: self.repeated(key, x, weights) for key, x in weights.items()}
        return super().to_ours(given)

    def repeated(self, key: str, tensor: Tensor, weights: StateDict) -> Tensor:
        """A weight of keys or values, [g D, ...] to [h D, ...]; others as they are."""
        queries, *others = self.projections
        name, _, kind = key.rpartition('.')  # 'weight' or 'bias'
        for end in others:
            if name.endswith(f'.{end}'):
                break
        else:
            return tensor
        attention = name.removesuffix(end)
        query = f'{attention}{queries}.{kind}'
        norm = f'{attention}{self.head_norm}.weight'
        missing = [x for x in (query, norm) if x not in weights]
        if missing:
            raise CheckpointError(
                f'{short_key(key)} is there without {keys_text(missing)}'
            )
        with shape_errors(key):
            rows, head_dim = len(weights[query]), len(weights[norm])
            heads = tensor.unflatten(0, (-1, head_dim))  # [g, D, ...]
            return heads.repeat_interleave(rows // max(len(tensor), 1), 0).flatten(0, 1)


LAYOUTS = (
    GroupedLayout(
        'Meta Sapiens2',
        ('blocks.#.attn.wq.weight', 'storage_tokens'),
        META,
        projections=('wq', 'wk', 'wv'),
        head_norm='q_norm',
    ),
    GroupedLayout(
        'Hugging Face Sapiens2',
        (f'{HF_BLOCK}.attention.q_norm.weight', f'{HF_BLOCK}.mlp.gate_proj.weight'),
        HF,
        projections=('q_proj', 'k_proj', 'v_proj'),
        head_norm='q_norm',
    ),
)
