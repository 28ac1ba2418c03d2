"""The key layout of V-JEPA 2.1 (Meta, 2026), of which the encoder of images is loaded.

Names are from the published code, facebookresearch/vjepa2, app/vjepa_2_1 at be434e4.
"""

from ..errors import CheckpointError
from ..keys import VIT_BLOCK, Layout, Rows, StateDict, matching_keys, shape_errors

STEM = 'patch_embed_img.proj'
MODALITY = 'img_mod_embed'
# Blocks whose outputs have a norm, by the number of blocks.
NORMED = {
    12: (2, 5, 8, 11),
    24: (5, 11, 17, 23),
    40: (9, 19, 29, 39),
    48: (11, 23, 37, 47),
}
ROWS: Rows = [
    ('patch_embed_img.*', 'patch_embed.*'),
    ('patch_embed.*', None),  # of videos
    ('video_mod_embed', None),
    (MODALITY, 'patch_embed.proj.bias'),  # to which it is added
    ('norms_block.3.*', 'norm.*'),
]


class VJEPALayout(Layout):
    """V-JEPA's, whose norms of outputs are numbered by themselves and not by their blocks."""

    def to_ours(self, weights: StateDict) -> StateDict:
        """Weights of the encoder of images, with its embedding in the bias of its stem.

        Raises:
            CheckpointError: the model has another number of blocks than the published ones.
        """
        given = dict(weights)
        bias = given.get(f'{STEM}.bias')
        if MODALITY in given and bias is not None:
            with shape_errors(MODALITY):
                # [1, 1, C], added to every token
                given[f'{STEM}.bias'] = bias + given.pop(MODALITY).flatten()
        ours = super().to_ours(given)
        depth = len(matching_keys(weights, VIT_BLOCK))
        if depth not in NORMED:
            raise CheckpointError(
                f'{depth} blocks, and the published models have {[*NORMED]}'
            )
        for number, index in enumerate(NORMED[depth][:-1]):
            for name in ('weight', 'bias'):
                key = f'norms_block.{number}.{name}'
                if key in ours:
                    ours[f'norm{index}.{name}'] = ours.pop(key)
        return ours


LAYOUTS = (
    VJEPALayout(
        'V-JEPA 2.1',
        (VIT_BLOCK, f'{STEM}.weight'),
        ROWS,
        # [C, 3, 1, 16, 16] of one frame
        {f'{STEM}.weight': lambda kernel: kernel.squeeze(2)},
    ),
)
