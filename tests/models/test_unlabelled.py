"""Training without labels: both losses against their formulas in float64, mixing, any student."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from mmengine.structures import BaseDataElement
from torch import Tensor

from rope_dense.data.unlabelled import effective_rank
from rope_dense.models.unlabelled import FeatureDistiller, PictureClassifier, mix

SMALL = dict(embed_dims=48, depth=2, num_heads=2, patch_size=16)
SWIN: dict[str, Any] = dict(
    type='RoPESwin',
    arch=dict(embed_dims=16, depths=(1, 1), num_heads=(1, 2)),
    window_size=4,
    out_indices=(1,),
    drop_path_rate=0.0,
)
PIXELS = dict(type='ImgDataPreprocessor', mean=[127.5] * 3, std=[127.5] * 3)


def vit(**settings: Any) -> dict:
    return dict(
        type='RoPEViT',
        arch=dict(embed_dims=48, depth=2, num_heads=2, patch_size=16),
        **settings,
    )


def classifier(**settings: Any) -> PictureClassifier:
    model = dict(
        type='PictureClassifier', num_pictures=7, backbone=vit(output_prefix='cls')
    )
    return MODELS.build(dict(model, data_preprocessor=PIXELS, **settings))


def formula(scores: Tensor, numbers: Tensor, smoothing: float) -> Tensor:
    """Cross entropy with label smoothing, term by term in float64."""
    logs = scores.double().log_softmax(1)
    right = logs.gather(1, numbers[:, None])[:, 0]
    return -((1 - smoothing) * right + smoothing * logs.mean(1)).mean()


def test_the_classifier_s_loss_is_the_formula() -> None:
    model, images = classifier(mixed=0.0), torch.randn(3, 3, 32, 48)
    numbers = torch.tensor([6, 0, 3])
    samples = [BaseDataElement(metainfo=dict(number=int(n))) for n in numbers]
    loss = model(images, samples, 'loss')['loss']
    scores = model.head(model(images))
    torch.testing.assert_close(
        loss.double(), formula(scores, numbers, 0.3), atol=1e-6, rtol=0
    )
    named = [x['is_named'].item() for x in model(images, samples, 'predict')]
    assert named == (scores.argmax(1) == numbers).tolist()


def test_a_mixed_image_has_two_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal to cross entropy with a vector of N shares for each image."""
    model, images = classifier(mixed=1.0), torch.randn(4, 3, 32, 32)
    numbers, others = torch.arange(4), torch.tensor([2, 3, 1, 0])
    mixed, share = mix(images, others)
    monkeypatch.setattr('rope_dense.models.unlabelled.mix', lambda *_: (mixed, share))
    monkeypatch.setattr('torch.randperm', lambda _: others)
    samples = [BaseDataElement(metainfo=dict(number=int(n))) for n in numbers]
    loss = model(images, samples, 'loss')['loss']
    shares = share * F.one_hot(numbers, 7) + (1 - share) * F.one_hot(others, 7)
    expected = F.cross_entropy(model.head(model(mixed)), shares, label_smoothing=0.3)
    torch.testing.assert_close(loss, expected)


def test_mixing_keeps_the_share_of_each_image() -> None:
    """Of images of one value: the mean of a mixed image is share a + (1 - share) b, both ways."""
    images = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 3, 20, 30)
    others, kinds = torch.tensor([1, 2, 3, 0]), set[bool]()
    for _ in range(40):
        mixed, share = mix(images, others)
        expected = share * images[:, 0, 0, 0] + (1 - share) * images[others, 0, 0, 0]
        torch.testing.assert_close(mixed.mean((1, 2, 3)), expected)
        assert 0 <= share <= 1
        kinds.add(bool((mixed == mixed.round()).all()))
    assert kinds == {False, True}  # MixUp and CutMix


@pytest.mark.parametrize(
    'student', [vit(output_prefix='cls'), vit(), SWIN], ids=['cls', 'map', 'Swin']
)
def test_the_distillation_s_gradient_is_the_formula_s(student: dict) -> None:
    """1 - cosine by hand in float64, on the student's grid; the teacher sees larger images."""
    model: FeatureDistiller = MODELS.build(
        dict(
            type='FeatureDistiller',
            backbone=student,
            teacher=vit(output_prefix='cls', frozen_stages='all'),
            teacher_pixels=([100.0] * 3, [50.0] * 3),
            teacher_scale=1.5,
            data_preprocessor=PIXELS,
        )
    ).double()
    model.train()
    assert not model.teacher.training
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    losses = model.losses(images, torch.arange(2))
    pixels = (images * 127.5 + 127.5 - 100) / 50
    seen = F.interpolate(pixels, scale_factor=1.5, mode='bilinear', antialias=True)
    with torch.no_grad():
        target, _ = model.teacher(seen)[-1]
    out = model.backbone(images)[-1]
    maps = out[0] if isinstance(out, tuple) else out
    target = F.interpolate(target, maps.shape[-2:], mode='bilinear', antialias=True)
    projected = model.map_layer(maps)
    cosine = (projected * target).sum(1) / (projected.norm(dim=1) * target.norm(dim=1))
    torch.testing.assert_close(losses['loss_maps'], (1 - cosine).mean())
    assert ('loss_tokens' in losses) == isinstance(out, tuple)
    wanted = torch.autograd.grad((1 - cosine).mean(), model.map_layer.weight)[0]
    found = torch.autograd.grad(losses['loss_maps'], model.map_layer.weight)[0]
    torch.testing.assert_close(found, wanted)


def test_the_effective_rank_counts_directions() -> None:
    basis = torch.linalg.qr(torch.randn(64, 8, dtype=torch.float64))[0]
    centred = basis - basis.mean(0)
    assert effective_rank(centred) == pytest.approx(8, abs=0.3)
    assert effective_rank(torch.ones(9, 4)) == pytest.approx(1, abs=1e-6)
