"""Published EoMT checkpoints: both layouts load strictly, and differences are added."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from helpers.eomt import build, theirs
from rope_dense.checkpoints import CheckpointError
from rope_dense.models.eomt.annealing import load_eomt

Weights = dict[str, Tensor]
# From Hugging Face's names to the authors', of models/eomt.py, models/vit.py and Lightning.
AUTHORS = {
    r'embeddings\.(.+)': r'network.encoder.backbone.patch_embed.\1',
    r'layers\.(.+)': r'network.encoder.backbone.blocks.\1',
    r'layernorm\.(.+)': r'network.encoder.backbone.norm.\1',
    r'query\.(.+)': r'network.q.\1',
    r'class_predictor\.(.+)': r'network.class_head.\1',
    r'mask_head\.fc1\.(.+)': r'network.mask_head.0.\1',
    r'mask_head\.fc2\.(.+)': r'network.mask_head.2.\1',
    r'mask_head\.fc3\.(.+)': r'network.mask_head.4.\1',
    r'upscale_block\.block\.(\d)\.(conv\d)\.(.+)': r'network.upscale.\1.\2.\3',
    r'upscale_block\.block\.(\d)\.layernorm2d\.(.+)': r'network.upscale.\1.norm.\2',
    r'(attn_mask_probs)': r'network.\1',
    r'(criterion\..+)': r'\1',
}


def published() -> Weights:
    return theirs().state_dict()


def save(weights: Weights, folder: Path, name: str = 'eomt.pth') -> str:
    torch.save(weights, folder / name)
    return str(folder / name)


def in_the_authors_names(weights: Weights) -> Weights:
    renamed = {}
    for key, tensor in weights.items():
        pattern = next(pattern for pattern in AUTHORS if re.fullmatch(pattern, key))
        renamed[re.sub(pattern, AUTHORS[pattern], key)] = tensor
    mean = {
        f'network.encoder.pixel_{name}': torch.ones(1, 3, 1, 1)
        for name in ('mean', 'std')
    }
    return renamed | mean


def loaded(checkpoint: str, base: str | None = None) -> Weights:
    backbone, eomt = build()
    load_eomt(backbone, eomt, checkpoint, base)
    return {
        **backbone.state_dict(),
        **{f'eomt.{k}': v for k, v in eomt.state_dict().items()},
    }


def dinov3(weights: Weights, biases: bool = True) -> Weights:
    """The encoder of an EoMT under the names of Hugging Face's DINOv3."""
    encoder = {
        re.sub(r'^layers', 'layer', re.sub(r'^layernorm', 'norm', key)): tensor
        for key, tensor in weights.items()
        if re.match(r'embeddings|layers|layernorm', key)
    }
    if not biases:
        encoder = {
            k: v for k, v in encoder.items() if not re.search(r'[qv]_proj\.bias', k)
        }
    return encoder


def assert_same(actual: Weights, expected: Weights) -> None:
    assert actual.keys() == expected.keys()
    for key, tensor in expected.items():
        torch.testing.assert_close(actual[key], tensor, msg=key)


def test_both_layouts_are_the_same_model(tmp_path: Path) -> None:
    weights = published()
    expected = loaded(save(weights, tmp_path))
    assert all(tensor.any() for tensor in expected.values())
    assert_same(loaded(save(in_the_authors_names(weights), tmp_path)), expected)
    wrapped = dict(state_dict=in_the_authors_names(weights))
    assert_same(loaded(save(wrapped, tmp_path)), expected)


@pytest.mark.parametrize('biases', [True, False], ids=['with biases', 'without'])
def test_differences_are_added_to_dinov3(tmp_path: Path, biases: bool) -> None:
    """Heads are published as they are."""
    weights = published()
    base = dinov3(published(), biases)
    differences = dict(weights)
    for key, tensor in base.items():
        key = re.sub(r'^layer\.', 'layers.', re.sub(r'^norm\.', 'layernorm.', key))
        differences[key] = weights[key] - tensor
    checkpoint = save(in_the_authors_names(differences), tmp_path)
    actual = loaded(checkpoint, save(base, tmp_path, 'dinov3.pth'))
    assert_same(actual, loaded(save(weights, tmp_path)))


@pytest.mark.parametrize(
    'change, message',
    [
        (lambda w: w.pop('mask_head.fc2.bias'), 'missing: mask_head.2.bias'),
        (lambda w: w.pop('layers.1.norm1.weight'), r'missing: blocks.1.norm1.weight'),
        (lambda w: w.update(other=torch.ones(1)), 'not known: other'),
        (lambda w: w.update({'layers.0.other': torch.ones(1)}), 'left over: .*other'),
        (
            lambda w: w.update({'query.weight': torch.ones(9, 32)}),
            r'query.weight \[9, 32\] instead of \[5, 32\]',
        ),
        (lambda w: w.pop('class_predictor.weight'), 'no published EoMT'),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_loaded(
    tmp_path: Path, change: object, message: str
) -> None:
    weights, (backbone, eomt) = published(), build()
    change(weights)
    before = [
        tensor.clone()
        for part in (backbone, eomt)
        for tensor in part.state_dict().values()
    ]
    with pytest.raises(CheckpointError, match=message):
        load_eomt(backbone, eomt, save(weights, tmp_path))
    after = [
        tensor for part in (backbone, eomt) for tensor in part.state_dict().values()
    ]
    assert all(map(torch.equal, before, after))


def test_differences_from_other_weights_are_refused(tmp_path: Path) -> None:
    weights = published()
    base = dinov3(weights)
    base.pop('layer.0.norm1.weight')
    with pytest.raises(CheckpointError, match=r'blocks.0.norm1.weight'):
        loaded(save(weights, tmp_path), save(base, tmp_path, 'dinov3.pth'))
