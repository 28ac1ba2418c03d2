"""Denoising queries against transformers' with the same random numbers."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from rope_dense.models.deim.predictions import Targets
from rope_dense.models.deim.queries import ContrastiveDenoising

CHANNELS, OTHERS, CLASSES = 8, 6, 4


def targets(counts: list[int]) -> Targets:
    number = sum(counts)
    boxes = torch.cat([torch.rand(number, 2), 0.05 + 0.3 * torch.rand(number, 2)], -1)
    return Targets(torch.randint(0, CLASSES, (number,)), boxes, counts)


@pytest.mark.parametrize('counts', [[3, 0, 5], [1], [60, 2]])
def test_queries_are_those_of_transformers(
    transformers: ModuleType, counts: list[int]
) -> None:
    from transformers.models.deimv2 import modeling_deimv2

    given = targets(counts)
    given.boxes[:, 2:] += 0.3  # some reach beyond the image
    denoising = ContrastiveDenoising(CHANNELS, CLASSES, num_queries=50)
    torch.manual_seed(1)
    ours = denoising(given, OTHERS)
    torch.manual_seed(1)
    queries, boxes, mask, meta = (
        modeling_deimv2.get_contrastive_denoising_training_group(
            [
                dict(class_labels=labels, boxes=boxes)
                for labels, boxes in given.per_image
            ],
            CLASSES,
            OTHERS,
            denoising.labels,
            num_denoising_queries=50,
        )
    )
    assert torch.equal(ours.queries, queries)
    assert torch.equal(ours.mask, mask == 0)
    assert ours.num_groups == meta['dn_num_group']
    assert [ours.number, OTHERS] == meta['dn_num_split']
    positions = [
        image * ours.number + index
        for image, part in enumerate(meta['dn_positive_idx'])
        for index in part.tolist()
    ]
    assert ours.pairs.queries.tolist() == positions
    for query, target in zip(
        ours.pairs.queries.tolist(), ours.pairs.targets.tolist(), strict=True
    ):
        start = sum(counts[: query // ours.number])
        assert start + query % ours.number % (2 * max(counts)) == target
    crossed = (boxes <= -11.5) & (
        ours.boxes > -11.5
    )  # a corner beyond the other, see the source
    assert crossed[..., :2].sum() == 0
    assert crossed.float().mean() < 0.2
    assert torch.allclose(ours.boxes[~crossed], boxes[~crossed], atol=1e-5)


def test_no_boxes_at_all_make_no_queries_but_a_gradient() -> None:
    """So that distributed training has one for each parameter."""
    denoising = ContrastiveDenoising(CHANNELS, CLASSES)
    ours = denoising(Targets(torch.zeros(0).long(), torch.zeros(0, 4), [0, 0]), OTHERS)
    assert ours.queries.shape == (2, 0, CHANNELS)
    assert ours.boxes.shape == (2, 0, 4)
    assert (ours.mask, ours.num_groups, len(ours.pairs)) == (None, 0, 0)
    ours.queries.sum().backward()
    assert (denoising.labels.weight.grad == 0).all()


def test_noise_can_be_left_out() -> None:
    given = targets([4])
    denoising = ContrastiveDenoising(
        CHANNELS, CLASSES, 4, label_noise=0.0, box_noise=0.0
    )
    ours = denoising(given, OTHERS)
    assert torch.equal(ours.queries[0], denoising.labels(given.labels.repeat(2)))
    assert torch.allclose(ours.boxes[0].sigmoid(), given.boxes.repeat(2, 1), atol=1e-4)
