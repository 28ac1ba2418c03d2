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
from rope_dense.models.unlabelled import (
    FeatureDistiller,
    PictureClassifier,
    SlidingDistiller,
    mix,
    unexplained,
)

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


NAT: dict[str, Any] = dict(
    type='RoPENAT',
    arch=dict(embed_dims=16, depths=(1, 1), num_heads=(1, 2)),
    kernel_size=3,
    out_indices=(0, 1),
)


def slider(backbone: dict, **settings: Any) -> SlidingDistiller:
    """In float64; the teacher has the student's weights, as after ``init_weights``."""
    model: SlidingDistiller = MODELS.build(
        dict(
            type='SlidingDistiller',
            backbone=backbone,
            data_preprocessor=PIXELS,
            **settings,
        )
    ).double()
    student = model.backbone.state_dict()
    own = {key: x for key, x in student.items() if '.lora.' not in key}
    model.teacher.load_state_dict(own)
    return model.train()


@pytest.mark.parametrize(
    'backbone',
    [vit(out_indices=(0, 1)), vit(lora=dict(rank=2)), SWIN, NAT],
    ids=['two maps', 'lora', 'Swin', 'NAT'],
)
def test_the_sliding_teacher_is_the_mean_over_windows(backbone: dict) -> None:
    """Each window alone, in a loop; images and windows are not square."""
    model = slider(backbone, window=(64, 96), smallest=32)
    images = torch.randn(2, 3, 128, 160, dtype=torch.float64)
    found = model.stitched(images)
    for level, stride in enumerate(model.teacher.out_strides):
        total = torch.zeros_like(found[level])
        count = torch.zeros_like(total)
        for top in (0, 32, 64):
            for left in (0, 32, 64):
                crop = images[..., top : top + 64, left : left + 96]
                y, x = top // stride, left // stride
                h, w = 64 // stride, 96 // stride
                total[..., y : y + h, x : x + w] += model.teacher(crop)[level]
                count[..., y : y + h, x : x + w] += 1
        torch.testing.assert_close(found[level], total / count)
    assert all(not x.requires_grad for x in found)


def test_a_student_of_sliding_windows_learns_them() -> None:
    """The loss is its formula, 0 in an image of one window, and falls; the teacher stays."""
    model = slider(vit(), window=64, smallest=32)
    assert (
        model.losses(torch.randn(2, 3, 64, 64).double(), torch.arange(2))['loss']
        < 1e-12
    )
    images = torch.randn(2, 3, 128, 128).double()
    deep = vit(layer_scale_init_value=None)
    model = slider(deep, window=32, smallest=128, overlap=0.0)
    for block in model.backbone.blocks:  # attention that sees other windows
        block.attn.qkv.weight.data.mul_(20)
    kept = {key: x.clone() for key, x in model.teacher.state_dict().items()}
    target = model.stitched(images)[0]
    spread = (target - target.mean((0, 2, 3), keepdim=True)).square().mean()
    found = model.losses(images, torch.arange(2))['loss']
    error = (model.backbone(images)[0] - target).square().mean() / spread
    torch.testing.assert_close(found.double(), error, atol=1e-5, rtol=1e-5)
    optimizer = torch.optim.AdamW(model.backbone.parameters(), lr=1e-3)
    for _ in range(10):
        optimizer.zero_grad()
        loss = model.losses(images, torch.arange(2))['loss']
        loss.backward()
        optimizer.step()
    assert loss < 0.9 * found
    for key, value in model.teacher.state_dict().items():
        assert torch.equal(value, kept[key])


def test_the_distance_from_a_teacher_is_1_for_its_mean() -> None:
    target = torch.randn(2, 8, 5, 6)
    mean = target.mean((0, 2, 3), keepdim=True).expand_as(target)
    torch.testing.assert_close(unexplained(mean, target), torch.tensor(1.0))
    assert unexplained(torch.zeros(1, 8, 2, 2), torch.zeros(1, 8, 2, 2)) == 0


def test_images_for_sliding_windows_have_random_whole_sizes() -> None:
    """From the smallest side to the images' own, both sides apart, and content unstretched."""
    model = slider(vit(), window=64, smallest=40)
    ramp = torch.linspace(0, 1, 160, dtype=torch.float64).expand(1, 3, 160, 160)
    sizes = set[tuple[int, int]]()
    for _ in range(60):
        image = model.resized(ramp)
        sizes.add((image.shape[2], image.shape[3]))
        step = image[0, 0, 0, 5:-5].diff().mean().item()
        assert step == pytest.approx(1 / max(image.shape[2:]), rel=0.03)
    sides = {side for size in sizes for side in size}
    assert sides == set(range(48, 161, 16))
    assert any(height != width for height, width in sizes)


def test_a_class_token_has_no_sliding_windows() -> None:
    with pytest.raises(
        ValueError, match=r'model\.backbone\.output_prefix: of an image'
    ):
        slider(vit(output_prefix='cls'), window=64, smallest=32)


def test_the_effective_rank_counts_directions() -> None:
    basis = torch.linalg.qr(torch.randn(64, 8, dtype=torch.float64))[0]
    centred = basis - basis.mean(0)
    assert effective_rank(centred) == pytest.approx(8, abs=0.3)
    assert effective_rank(torch.ones(9, 4)) == pytest.approx(1, abs=1e-6)
