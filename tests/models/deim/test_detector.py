"""DEIM in evaluation: against transformers' DEIMv2, at any size, on any backbone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from mmdet.structures import DetDataSample
from mmdet.structures.bbox import bbox_overlaps
from mmengine.registry import MODELS
from torch import nn

from helpers.deim import CLASSES, close, config, ours, pair, randomise
from rope_dense.models.deim.encoder import MeanMapPyramid
from rope_dense.models.deim.head import is_duplicate, overlap_above
from rope_dense.models.deim.queries import anchors_of

SIZES = ((64, 64), (96, 96), (96, 160), (128, 64))


@pytest.mark.parametrize('size', ['s', 'm', 'l', 'x'])
def test_logits_and_boxes_are_those_of_transformers(size: str) -> None:
    reference, model = pair(size)
    for height, width in SIZES:
        image = torch.randn(2, 3, height, width)
        with torch.no_grad():
            expected, prediction = (
                reference(image),
                model.bbox_head(model.extract_feat(image)),
            )
        assert expected.pred_boxes.std() > 0.1
        assert close(prediction.logits, expected.logits)
        assert close(prediction.boxes, expected.pred_boxes)


@pytest.mark.parametrize('height, width', [(97, 130), (48, 80), (160, 33)])
def test_sides_need_not_be_multiples_of_32(height: int, width: int) -> None:
    model = ours('s')
    image = torch.randn(2, 3, height, width)
    maps = model.extract_feat(image)
    sizes = [(-(-height // stride), -(-width // stride)) for stride in (8, 16, 32)]
    assert [tuple(x.shape[2:]) for x in maps] == sizes
    scores, labels, boxes = model(image, mode='tensor')
    assert scores.shape == labels.shape == (2, 30)
    assert boxes.shape == (2, 30, 4)
    assert (scores[:, 1:] <= scores[:, :-1]).all()
    assert (labels >= 0).all()
    assert (labels < CLASSES).all()
    limits = boxes.new_tensor([width, height, width, height])
    assert ((boxes >= 0) & (boxes <= limits)).all()


def test_an_image_alone_and_in_a_batch() -> None:
    model = ours('s')
    randomise(model)
    images = torch.randn(3, 3, 64, 96)
    together = model(images, mode='tensor')
    for index in range(3):
        alone = model(images[index : index + 1], mode='tensor')
        for some, all_ in zip(alone, together, strict=True):
            assert torch.allclose(some[0].float(), all_[index].float(), atol=1e-4)


def test_which_boxes_are_repeated() -> None:
    boxes = torch.rand(2, 40, 2, 2).sort(-2).values.flatten(2)
    boxes[:, 3] = boxes[:, 2]
    boxes[:, 5] = boxes[:, 5, [0, 1, 0, 1]]  # empty
    labels = torch.randint(0, 2, (2, 40))
    found = is_duplicate(overlap_above(boxes, 0.4), labels)
    for some, numbers, actual in zip(boxes, labels, found, strict=True):
        overlaps = bbox_overlaps(some, some)
        for late in range(40):
            same = [i for i in range(late) if numbers[i] == numbers[late]]
            assert actual[late] == any(overlaps[i, late] > 0.4 for i in same)
    assert 4 < found.sum() < 60


def test_a_model_leaves_out_what_it_repeats() -> None:
    model = ours('s')
    randomise(model, 2.0)
    image, meta = (
        torch.randn(1, 3, 64, 96),
        dict(ori_shape=(64, 96), scale_factor=(1.0, 1.0)),
    )
    before = model(image, [DetDataSample(metainfo=meta)], mode='predict')[
        0
    ].pred_instances
    model.bbox_head.nms_iou = 0.3
    after = model(image, [DetDataSample(metainfo=meta)], mode='predict')[
        0
    ].pred_instances
    overlap = overlap_above(before.bboxes[None], 0.3)
    kept = ~is_duplicate(overlap, before.labels[None])[0]
    assert 0 < kept.sum() < len(kept)
    assert torch.equal(after.scores, before.scores[kept])
    assert torch.equal(after.labels, before.labels[kept])
    assert torch.equal(after.bboxes, before.bboxes[kept])


def test_a_trained_model_returns_more_boxes(caplog: pytest.LogCaptureFixture) -> None:
    """Queries are tokens; where there are fewer, it is said once."""
    model = ours('s')
    randomise(model)
    image = torch.randn(1, 3, 64, 96)
    sample = DetDataSample(metainfo=dict(ori_shape=(64, 96), scale_factor=(1.0, 1.0)))
    head = model.bbox_head
    head.num_queries = head.selection.num_queries = head.max_per_img = 500
    for _ in range(2):
        (found,) = model(image, [sample], mode='predict')
    assert len(found.pred_instances) == 500  # of 126 tokens, several classes each
    assert caplog.messages == [
        '500 queries, but an image of this size has 126 tokens, which are all used; a larger '
        '--size has more'
    ]


def test_a_new_model_predicts_anchors_of_no_class() -> None:
    """Its branches of boxes are zero, and probabilities 0.01, so that training starts calmly."""
    model = MODELS.build(config('s')).eval()
    maps = model.extract_feat(torch.randn(2, 3, 96, 64))
    prediction, selection = model.bbox_head(maps), model.bbox_head.selection(maps)
    anchors, valid = anchors_of(
        tuple(tuple(x.shape[2:]) for x in maps), device=maps[0].device
    )
    assert valid.all()
    distances = (selection.boxes[:, :, None] - anchors).abs().amax(-1)
    assert (distances.amin(-1) == 0).all()
    assert close(prediction.boxes, selection.boxes.sigmoid())
    assert (prediction.logits.sigmoid().median() - 0.01).abs() < 0.005


BACKBONES = {
    'lingbot, patches of 16': dict(
        type='RoPEViT', arch='lingbot_small', frozen_stages='all'
    ),
    'eva02, patches of 14': dict(type='RoPEViT', arch='eva02_tiny'),
    'pe': dict(type='RoPEViT', arch='pe_core_tiny'),
    'mixed, with lora': dict(type='RoPEViT', arch='tiny', lora=dict(rank=2)),
    'axial, in windows': dict(
        type='RoPEViT',
        arch='tiny',
        rope=dict(type='AxialRoPE', theta=100.0),
        window_size=2,
        window_block_indexes=(0, 2),
    ),
}


STAGES = dict(embed_dims=8, depths=(1, 1, 1, 1), num_heads=(1, 1, 2, 2))


def on(backbone: dict, in_channels: tuple[int, ...], **settings: object) -> nn.Module:
    model = config('s')
    model['encoder']['in_channels'] = in_channels
    return MODELS.build(model | dict(backbone=backbone, neck=None) | settings).eval()


@pytest.mark.parametrize('name', BACKBONES)
def test_a_vit_of_any_kind(name: str) -> None:
    small = dict(embed_dims=24, depth=3, num_heads=2)
    backbone = dict(BACKBONES[name], out_indices=(0, 1, 2))
    names = MODELS.get('RoPEViT').ARCHS
    backbone['arch'] = names[backbone['arch']] | small
    neck = dict(
        type='SpatialTuningAdapter', in_channels=24, stem_channels=4, out_channels=32
    )
    model = on(backbone, (32, 32, 32), neck=neck)
    assert model(torch.randn(1, 3, 64, 96), mode='tensor')[2].shape == (1, 30, 4)


@pytest.mark.parametrize(
    'backbone',
    [
        dict(type='RoPESwin', arch=STAGES, window_size=2),
        dict(type='RoPENAT', arch=STAGES, kernel_size=3),
    ],
)
def test_stages_without_a_neck(backbone: dict) -> None:
    model = on(dict(backbone, out_indices=(1, 2, 3)), (16, 32, 64))
    assert model(torch.randn(1, 3, 96, 128), mode='tensor')[2].shape == (1, 30, 4)
    assert model(torch.randn(1, 3, 100, 75), mode='tensor')[2].shape == (1, 30, 4)


@pytest.mark.parametrize('out_channels', [None, 6])
def test_mean_map_pyramid_is_means_resized_and_projected(
    out_channels: int | None,
) -> None:
    pyramid = MeanMapPyramid(8, out_channels).eval()
    randomise(pyramid)
    maps = torch.randn(2, 2, 8, 4, 6).unbind()
    mean = (maps[0] + maps[1]) / 2
    for index, (x, factor) in enumerate(zip(pyramid(maps), (2, 1, 0.5), strict=True)):
        expected = F.interpolate(mean, scale_factor=factor, mode='bilinear')
        if out_channels or index == 2:
            project = pyramid.projections[index if out_channels else 0]
            expected = project.bn(project.conv(expected))
        assert close(x, expected)


@pytest.mark.parametrize('norm', ['BN', 'GN'])
def test_a_deployed_model_is_smaller_and_has_the_same_results(norm: str) -> None:
    settings = config('x', head=dict(masks={}))
    settings['bbox_head']['decoder']['eval_idx'] = 1
    norm_cfg = dict(type='BN') if norm == 'BN' else dict(type='GN', num_groups=4)
    for part in ('neck', 'encoder'):
        settings[part]['norm_cfg'] = norm_cfg
    model = MODELS.build(settings).eval()
    randomise(model)
    image = torch.randn(2, 3, 64, 96)
    with torch.no_grad():
        expected = model(image, mode='tensor')
        size = sum(param.numel() for param in model.parameters())
        found = model.deploy()(image, mode='tensor')
    for x, other in zip(found, expected, strict=True):
        assert close(x, other, 1e-4)
    assert sum(param.numel() for param in model.parameters()) < size
    assert len(model.bbox_head.decoder.layers) == 2
    norms = [part for part in model.modules() if isinstance(part, nn.BatchNorm2d)]
    assert not norms
    small = [name for name, _ in model.named_modules() if name.endswith('conv1x1')]
    assert bool(small) == (norm == 'GN')


@pytest.mark.parametrize('name, value', dict(eval_idx=3, norm='batch', ffn='x').items())
def test_what_would_pass_silently_is_named(name: str, value: object) -> None:
    head = config('s')['bbox_head']
    head['decoder'][name] = value
    with pytest.raises(ValueError, match=name):
        MODELS.build(head)
