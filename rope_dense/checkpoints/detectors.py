"""Published weights of whole models: DEIMv2, ECDet, ECSeg, CHMv2, EoMT, PMT, to our keys and back.

Checked with the state dicts of transformers' models and of EdgeCrafter's source, and their outputs,
in tests/checkpoints/test_deim_checkpoints.py, tests/models/test_eomt_checkpoints.py,
test_pmt.py and test_depth_head.py.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .adapting import BIAS
from .errors import CheckpointError, keys_text
from .keys import (
    Layout,
    StateDict,
    find_match,
    has_key,
    matching_keys,
    rename_weights,
    reversed_rows,
)
from .load import read_weights
from .publishers import deim, eomt, find_layout
from .publishers.dinov3 import CHMV2, META, META_GATED, PERIODS
from .weights import entries_below

BACKBONE = 'backbone.'
SETTINGS = {'up': 0.5, 'reg_scale': 4.0}  # of the decoder; arguments of ours
SCORES = 'bbox_head.selection.cls.bias'
NUM_COCO = 80  # classes of the detectors that were published for COCO


@dataclass(frozen=True)
class ModelLayout(Layout):
    """The names of the weights of a whole model, with a backbone in a layout of its own.

    ``keys`` gives the backbone ``backbone.`` and its published names, and names every other key.
    """

    def to_ours(self, weights: StateDict) -> StateDict:
        """Weights under our names, the backbone's after ``backbone.``.

        Raises:
            CheckpointError: a key that ``keys`` does not name, or settings that are not published.
        """
        unknown = [key for key in weights if find_match(key, self.keys) is None]
        if unknown:
            raise CheckpointError(f'{self.name}: keys not known: {keys_text(unknown)}')
        check_stored_settings(weights)
        backbone, others = split_backbone(super().to_ours(weights))
        if not backbone:
            return others
        ours = find_layout(backbone, self.name).to_ours(backbone)
        return with_prefix(BACKBONE, ours) | others


PUBLISHED_MODELS = {
    'transformers': ModelLayout(
        "transformers' DEIMv2",
        ('model.enc_score_head.weight', 'model.conv_encoder.fusion_proj.*'),
        [
            *deim.TRANSFORMERS_COMPUTED,
            ('model.conv_encoder.backbone.*', 'backbone.*'),
            *deim.TRANSFORMERS,
        ],
    ),
    'deimv2': ModelLayout(
        'DEIMv2',
        ('decoder.dec_score_head.*', 'backbone.dinov3.*'),
        [
            *deim.COMPUTED,
            ('backbone.dinov3._model.*', 'backbone.*'),  # of the small ViTs
            ('backbone.dinov3.*', 'backbone.*'),
            *deim.DEIMV2,
        ],
    ),
    'edgecrafter': ModelLayout(
        'EdgeCrafter',
        ('decoder.dec_score_head.*', 'backbone.backbone.*'),
        [*deim.COMPUTED, ('backbone.backbone.*', 'backbone.*'), *deim.EDGECRAFTER],
    ),
    'chmv2': ModelLayout(
        "transformers' CHMv2", ('head.reassemble_stage.*', 'backbone.*'), CHMV2
    ),
}
EOMT = (
    ModelLayout('Hugging Face EoMT-DINOv3', ('class_predictor.weight',), eomt.HF),
    ModelLayout(
        "the authors' EoMT-DINOv3", ('network.class_head.weight',), eomt.AUTHORS
    ),
    ModelLayout("the authors' PMT", ('network.decoder.class_head.weight',), eomt.PMT),
)


def find_detector(contents: dict) -> tuple[ModelLayout, StateDict] | None:
    """The layout and weights of a published detector in a file; None for another file.

    Of a training with an averaged model its weights are taken.
    """
    average = contents.get('ema')
    candidates = [average.get('module') if isinstance(average, dict) else None]
    candidates += [contents.get('model'), contents.get('state_dict'), contents]
    for state in candidates:
        if isinstance(state, dict):
            weights = {key: x for key, x in state.items() if isinstance(x, Tensor)}
            for layout in PUBLISHED_MODELS.values():
                if layout.fits(weights):
                    return layout, weights
    return None


def convert_detector(contents: dict, name: str) -> dict:
    """A published detector as mmengine has it, of 80 classes with the names of COCO's.

    Others stay as they are. Errors as of ``to_ours``.
    """
    found = find_detector(contents)
    if found is None:
        return contents
    layout, weights = found
    try:
        backbone, others = split_backbone(layout.to_ours(weights))
    except CheckpointError as error:
        raise CheckpointError(f'{name}: {error}') from error
    backbone = without_neutral_weights(backbone)
    content: dict = dict(state_dict=with_prefix(BACKBONE, backbone) | others)
    if len(others.get(SCORES, ())) == NUM_COCO:
        from mmdet.datasets import CocoDataset

        content['meta'] = dict(
            dataset_meta=dict(classes=CocoDataset.METAINFO['classes'])
        )
    return content


def read_eomt(checkpoint: str, base: str | None) -> tuple[StateDict, StateDict]:
    """The weights of a published EoMT or PMT: of its backbone, and of the queries beside it.

    Args:
        checkpoint: see ``fetch``.
        base: DINOv3's weights in any layout, to add to the differences in the files of EoMT's
            authors, or the backbone of PMT, whose files have none; None for files with weights.

    Raises:
        CheckpointError: a checkpoint cannot be fetched or read, or is neither.
    """
    weights = read_weights(checkpoint, '')
    for layout in EOMT:
        if layout.fits(weights):
            break
    else:
        names = ', '.join(layout.name for layout in EOMT)
        raise CheckpointError(
            f'{checkpoint}: no published EoMT or PMT, its keys are {keys_text(weights, 4)}; known '
            f'are {names}'
        )
    backbone, head = split_backbone(layout.to_ours(weights))
    if backbone and base is not None:
        backbone = add_base(backbone, base, checkpoint)
    elif base is not None:
        backbone = read_weights(base, None)
    elif not backbone:
        raise CheckpointError(
            f'{checkpoint} has no backbone: name its weights as the base'
        )
    return backbone, head


def add_base(differences: StateDict, base: str, checkpoint: str) -> StateDict:
    """Weights of a backbone: the ``base`` weights, with their stored differences added.

    Biases of q and v that ``base`` does not have count as zero. CheckpointError if ``base`` cannot
    be fetched or read, or has other weights.
    """
    contents = read_weights(base, None)
    weights = find_layout(contents, base).to_ours(contents)
    added = {}
    wrong = []
    for key, difference in differences.items():
        if key in weights:
            own = weights[key].to(difference)
            is_right = own.shape == difference.shape
        else:
            own = torch.zeros_like(difference)
            is_right = BIAS.fullmatch(key) is not None
        if is_right:
            added[key] = difference + own
        else:
            wrong.append(key)
    if wrong:
        raise CheckpointError(
            f'{checkpoint} has differences to weights that {base} lacks, or has in another shape: '
            f'{keys_text(wrong)}'
        )
    return added


def split_backbone(weights: StateDict) -> tuple[StateDict, StateDict]:
    """The weights of the backbone, without their prefix, and all others."""
    backbone = entries_below(BACKBONE, weights)
    others = dict(weights)
    for key in backbone:
        del others[BACKBONE + key]
    return backbone, others


def with_prefix(prefix: str, weights: StateDict) -> StateDict:
    """Weights with a prefix before their keys."""
    return {f'{prefix}{key}': x for key, x in weights.items()}


def without_neutral_weights(ours: StateDict) -> StateDict:
    """Weights of a ViT that a detector's architecture has, without weights that change nothing.

    These are periods, which the model computes; biases of 0 of the keys; and, for DEIMv2's small
    ViTs in transformers, a LayerScale of 1, no registers and a norm that is not used.
    CheckpointError for biases of the keys that are not 0.
    """
    ours = dict(ours)
    ours.pop(PERIODS, None)
    registers = ours.get('reg_token')
    is_small = registers is not None and not registers.numel()
    if is_small:
        for key in ('reg_token', 'norm.weight', 'norm.bias'):
            ours.pop(key, None)
        drop_equal(ours, 'blocks.#.gamma_#', 1)
    for key in matching_keys(ours, '*.qkv.q_bias'):
        block = key.removesuffix('q_bias')
        if is_small:
            zero = torch.zeros_like(ours[key])
            biases = [ours.pop(f'{block}{letter}_bias', zero) for letter in 'qkv']
            ours[f'{block}bias'] = torch.cat(biases)
        else:
            drop_equal(ours, f'{block}k_bias', 0)
    left = matching_keys(ours, '*.k_bias')
    if left:
        raise CheckpointError(
            f'biases of the keys, which no architecture has: {keys_text(left)}'
        )
    return ours


def drop_equal(weights: StateDict, name: str, value: float) -> None:
    """Remove weights that have one value everywhere."""
    for key in matching_keys(weights, name):
        if not weights[key].is_meta and bool((weights[key] == value).all()):
            del weights[key]


def check_stored_settings(weights: StateDict) -> None:
    """Raise CheckpointError for settings of the decoder, or a layer, that ours has not so."""
    for key, x in weights.items():
        expected = SETTINGS.get(key.rpartition('.')[2])
        if expected is not None and not x.is_meta and float(x) != expected:
            raise CheckpointError(
                f'{key} is {float(x):g}, and {expected:g} is supported'
            )
    linear = weights.get('model.enc_output.0.weight')
    if linear is None or linear.is_meta:
        return
    identity = torch.eye(len(linear), dtype=linear.dtype)
    if not torch.equal(linear.cpu(), identity):
        raise CheckpointError(
            'model.enc_output was trained; the authors have no such layer, nor has ours'
        )


# ---------------------------------------------------------------- back


def to_published(ours: StateDict, kind: str) -> StateDict:
    """Weights of a whole DEIM of ours under the names of the code of 'deimv2' or 'edgecrafter'.

    CheckpointError if they are of another detector.
    """
    back = reversed_rows(deim.EDGECRAFTER if kind == 'edgecrafter' else deim.DEIMV2)
    backbone, others = split_backbone(ours)
    unknown = [key for key in others if find_match(key, back) is None]
    if unknown or not backbone:
        raise CheckpointError(
            f'these are not the weights of a detector of {PUBLISHED_MODELS[kind].name}: '
            f'{keys_text(unknown) or "no backbone"}'
        )
    published = rename_weights(others, back)
    prefix = 'backbone.dinov3.'
    if kind == 'edgecrafter':
        prefix = 'backbone.backbone.'
        backbone = rename_weights(backbone, reversed_rows(deim.ECVIT))
    elif 'reg_token' in backbone:
        backbone = to_meta_layout(backbone)
    else:
        prefix += '_model.'
    backbone['rope_embed.periods'] = 100.0 ** (torch.arange(16) / 16)
    return with_prefix(prefix, backbone) | published


def to_meta_layout(weights: StateDict) -> StateDict:
    """DINOv3's weights under Meta's names, with biases of 0 of the keys and the mask of these."""
    weights = dict(weights)
    for key in matching_keys(weights, '*.qkv.q_bias'):
        block = key.removesuffix('q_bias')
        zero = torch.zeros_like(weights[key])
        weights[f'{block}k_bias'] = zero
        weights[f'{block}bias_mask'] = torch.cat([zero + 1, zero, zero + 1])
    # Without a gate the last layer keeps its name, fc2.
    is_gated = has_key(weights, '*.mlp.fc1_g.weight')
    rows = META + META_GATED if is_gated else META
    return rename_weights(weights, reversed_rows(rows))
