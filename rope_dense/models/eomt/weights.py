"""Published checkpoints of EoMT on DINOv3: the names of their keys, and strict loading.

The backbone in the authors' files (tue-mps/eomt) is stored as differences from DINOv3's weights, in
files of Hugging Face's transformers as weights. Names are from the published codes, checked with
random weights against transformers' model in tests/models/test_eomt_checkpoints.py.
"""

from __future__ import annotations

from mmengine.logging import print_log
from torch import nn

from ...backbones import RoPEViT
from ...checkpoints.adapting import BIAS
from ...checkpoints.errors import CheckpointError, listed
from ...checkpoints.incompatible import compare
from ...checkpoints.keys import KeyTable, Layout, StateDict, renamed
from ...checkpoints.load import load_weights, read_weights
from ...checkpoints.publishers import find_layout
from ...checkpoints.publishers.dinov3 import HF_GELU_KEYS

BACKBONE, EOMT = 'backbone.', 'eomt.'
# To the names of Hugging Face's DINOv3 after 'backbone.', and ours after 'eomt.'.
HF_KEYS: KeyTable = {
    r'(embeddings\..+)': r'backbone.\1',
    r'layers\.(\d+\..+)': r'backbone.layer.\1',
    r'layernorm\.(.+)': r'backbone.norm.\1',
    r'query\.weight': 'eomt.query.weight',
    r'class_predictor\.(.+)': r'eomt.class_head.\1',
    r'mask_head\.fc1\.(.+)': r'eomt.mask_head.0.\1',
    r'mask_head\.fc2\.(.+)': r'eomt.mask_head.2.\1',
    r'mask_head\.fc3\.(.+)': r'eomt.mask_head.4.\1',
    r'upscale_block\.block\.(\d+)\.conv1\.(.+)': r'eomt.upscale.\1.0.\2',
    r'upscale_block\.block\.(\d+)\.conv2\.(.+)': r'eomt.upscale.\1.2.\2',
    r'upscale_block\.block\.(\d+)\.layernorm2d\.(.+)': r'eomt.upscale.\1.3.\2',
    r'attn_mask_probs': None,  # of the training so far
    r'criterion\.empty_weight': None,  # class weights of the loss
}
AUTHORS_KEYS: KeyTable = {
    r'network\.encoder\.backbone\.patch_embed\.(.+)': r'backbone.embeddings.\1',
    r'network\.encoder\.backbone\.blocks\.(\d+\..+)': r'backbone.layer.\1',
    r'network\.encoder\.backbone\.norm\.(.+)': r'backbone.norm.\1',
    r'network\.encoder\.pixel_(mean|std)': None,  # of the data preprocessor
    r'network\.q\.weight': 'eomt.query.weight',
    r'network\.class_head\.(.+)': r'eomt.class_head.\1',
    r'network\.mask_head\.(\d\..+)': r'eomt.mask_head.\1',
    r'network\.upscale\.(\d+)\.conv1\.(.+)': r'eomt.upscale.\1.0.\2',
    r'network\.upscale\.(\d+)\.conv2\.(.+)': r'eomt.upscale.\1.2.\2',
    r'network\.upscale\.(\d+)\.norm\.(.+)': r'eomt.upscale.\1.3.\2',
    r'network\.attn_mask_probs': None,
    r'criterion\.empty_weight': None,
}
LAYOUTS = (
    Layout('Hugging Face EoMT-DINOv3', (r'class_predictor\.weight',), HF_KEYS),
    Layout("the authors' EoMT-DINOv3", (r'network\.class_head\.weight',), AUTHORS_KEYS),
)


def load_eomt(backbone: RoPEViT, eomt: nn.Module, checkpoint: str, base: str | None = None) -> None:
    """Load a published EoMT-DINOv3 strictly into a backbone and the ``EoMT`` beside it.

    Args:
        backbone, eomt: of a model, unchanged if anything fails.
        checkpoint: see ``fetch``.
        base: DINOv3's weights in any layout, to add to the differences in the authors' files; None
            for files with weights.

    Raises:
        CheckpointError: a checkpoint cannot be fetched or read, or it does not fit the model.
    """
    weights = read_weights(checkpoint, None)
    layout = next((layout for layout in LAYOUTS if layout.fits(weights)), None)
    if layout is None:
        raise CheckpointError(
            f'{checkpoint}: no published EoMT, its keys are {", ".join(list(weights)[:4])}, ...; '
            f'known are {", ".join(layout.name for layout in LAYOUTS)}'
        )
    ours = layout.to_ours(weights)
    backbone_weights = {
        key.removeprefix(BACKBONE): x for key, x in ours.items() if key.startswith(BACKBONE)
    }
    encoder = renamed(backbone_weights, HF_GELU_KEYS)
    if base is not None:
        encoder = added(encoder, base, checkpoint)
    head = {key.removeprefix(EOMT): x for key, x in ours.items() if not key.startswith(BACKBONE)}
    if incompatible := compare(eomt.state_dict(), head):
        raise CheckpointError(f'{checkpoint} ({layout.name}) does not fit EoMT:\n{incompatible}')
    load_weights(backbone, encoder, checkpoint)
    eomt.load_state_dict(head)
    print_log(f'EoMT: {len(head)} tensors from {checkpoint} ({layout.name})', logger='current')


def added(differences: StateDict, base: str, checkpoint: str) -> StateDict:
    """Weights in our layout: their differences to those of ``base``, added to these.

    Biases of q and v that ``base`` does not have count as zero.

    Raises:
        CheckpointError: ``base`` cannot be fetched or read, or has other weights.
    """
    contents = read_weights(base, None)
    weights = find_layout(contents, base).to_ours(contents)
    both = {key: weights[key].to(tensor) for key, tensor in differences.items() if key in weights}
    wrong = [
        key
        for key, tensor in differences.items()
        if (key not in both and not BIAS.fullmatch(key))
        or (key in both and both[key].shape != tensor.shape)
    ]
    if wrong:
        raise CheckpointError(
            f'{checkpoint} has differences from weights that {base} does not have in that shape: '
            f'{listed(wrong)}'
        )
    return {key: tensor + both.get(key, 0) for key, tensor in differences.items()}
