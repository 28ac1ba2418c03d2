"""DEIM with an angle: parts against loops in float64, and the model in mmrotate."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from mmcv.ops import box_iou_rotated
from mmdet import registry
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.registry import MODELS, Registry
from mmengine.structures import InstanceData
from torch import Tensor, nn

from helpers.deim import CLASSES, config, ours, randomise
from rope_dense.models.deim.layers import DeformableAttention
from rope_dense.models.deim.oriented import (
    OrientedAttention,
    OrientedCriterion,
    OrientedDecoder,
    OrientedDEIMHead,
    OrientedDenoising,
    OrientedMatcher,
    from_pixels,
    rotated_iou,
)
from rope_dense.models.deim.oriented_boxes import (
    change_between,
    from_rotated,
    to_rotated,
)
from rope_dense.models.deim.predictions import Prediction, Targets
from rope_dense.project import hub_config
from rope_dense.project.contents import angle_version, task_of

QUARTER = math.pi / 2


def settings(**head: object) -> dict:
    return config('s', head=dict(type='OrientedDEIMHead', **head))


def oriented(**head: object) -> nn.Module:
    model = MODELS.build(settings(**head))
    randomise(model, 0.5)
    return model


def rotated(number: int) -> Tensor:
    """(cx, cy, w, h, a) within an image of side 1."""
    sides = 0.05 + 0.3 * torch.rand(number, 2)
    angle = (torch.rand(number, 1) - 0.5) * math.pi
    return torch.cat([0.2 + 0.6 * torch.rand(number, 2), sides, angle], 1)


def batch(numbers: tuple[int, ...] = (3, 0, 2)) -> tuple[Tensor, list[DetDataSample]]:
    samples = []
    scale = torch.tensor([96, 64, 64, 64, 1])
    for number in numbers:
        labels = torch.randint(0, CLASSES, (number,))
        truth = InstanceData(bboxes=rotated(number) * scale, labels=labels)
        samples.append(DetDataSample(gt_instances=truth))
    return torch.randn(len(numbers), 3, 64, 96), samples


def total(losses: dict[str, Tensor]) -> Tensor:
    return sum(losses.values(), torch.zeros(()))


def test_attention_point_by_point() -> None:
    """Offsets from the centre, in units of half of the side that they are along, in pixels."""
    heads, counts, width, height = 2, (2, 3), 14, 10
    attention = OrientedAttention(8, heads, counts).double()
    for param in attention.parameters():
        nn.init.normal_(param, std=0.5)
    maps = [torch.randn(1, 8, height, width).double(), torch.randn(1, 8, 5, 7).double()]
    query, boxes = torch.randn(1, 3, 8).double(), rotated(3).double()[None]
    frames = OrientedDecoder(8, 1, 1, 8, heads, counts).frames(
        from_rotated(boxes), maps
    )
    out = attention(
        query, frames, [x.unflatten(1, (heads, -1)).flatten(0, 1) for x in maps]
    )
    offsets = attention.sampling_offsets(query).view(3, heads, 5, 2)
    weights = attention.attention_weights(query).view(3, heads, 5).softmax(-1)
    unit = (width + height) / 2
    for q in range(3):
        cx, cy, w, h, a = boxes[0, q].tolist()
        turn = torch.tensor(
            [[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]
        ).double()
        stretch = turn @ torch.diag(torch.tensor([w, h]).double()) @ turn.T
        for head in range(heads):
            expected = torch.zeros(4).double()
            for point in range(5):
                level = int(point >= 2)
                step = stretch @ offsets[q, head, point] * 0.5 / counts[level]
                place = (
                    torch.tensor([cx, cy]).double() + step
                ) * unit  # in cells of the first map
                grid = 2 * place / torch.tensor([width, height]) - 1
                value = maps[level].view(1, heads, 4, *maps[level].shape[2:])[:, head]
                sample = F.grid_sample(
                    value, grid.view(1, 1, 1, 2), align_corners=False
                )
                expected += weights[q, head, point] * sample.flatten()
            torch.testing.assert_close(
                out[0, q].view(heads, 4)[head], expected, atol=1e-6, rtol=0
            )


def test_attention_to_boxes_along_the_axes_is_that_of_the_horizontal_model() -> None:
    attention, other = (
        OrientedAttention(8, 2, (2, 1)),
        DeformableAttention(8, 2, (2, 1)),
    )
    other.load_state_dict(attention.state_dict())
    maps = [torch.randn(1, 8, 6, 6), torch.randn(1, 8, 3, 3)]
    values = [x.unflatten(1, (2, -1)).flatten(0, 1) for x in maps]
    query, boxes = torch.randn(1, 5, 8), rotated(5)
    boxes[:, 4] = 0
    frames = OrientedDecoder(8, 1, 1, 8, 2, (2, 1)).frames(
        from_rotated(boxes)[None], maps
    )
    expected = other(query, boxes[None, :, :4], values)
    torch.testing.assert_close(
        attention(query, frames, values), expected, atol=1e-5, rtol=1e-5
    )


def test_sampling_follows_a_quarter_turn() -> None:
    """A turned map and turned boxes have the values of turned offsets."""
    attention = OrientedAttention(8, 2, (4,)).double()
    x = torch.randn(1, 8, 6, 9).double()
    turned = x.rot90(-1, (2, 3))  # clockwise, [1, 8, 9, 6]
    boxes = rotated(6).double()
    unit = (6 + 9) / 2
    cx, cy, w, h, a = boxes.unbind(-1)
    turned_boxes = torch.stack([6 / unit - cy, cx, w, h, a + QUARTER], -1)
    offsets = torch.randn(1, 6, 2, 4, 2).double()
    turned_offsets = torch.stack([-offsets[..., 1], offsets[..., 0]], -1)
    decoder = OrientedDecoder(8, 1, 1, 8, 2, (4,))
    samples = []
    for image, some, moves in (
        (x, boxes, offsets),
        (turned, turned_boxes, turned_offsets),
    ):
        points = attention.points(
            moves, decoder.frames(from_rotated(some)[None], [image])
        )
        samples.append(F.grid_sample(image, points.flatten(2, 3), align_corners=False))
    torch.testing.assert_close(*samples)


def test_distances_of_targets_lead_to_them() -> None:
    decoder = OrientedDecoder(8, 1, 1, 8, 2, (2,))
    criterion = OrientedCriterion(OrientedMatcher(), {}, 1.5, decoder.reg_scale)
    reference, target = from_rotated(rotated(40)), from_rotated(rotated(40))
    distances = criterion.encode(reference, target)
    torch.testing.assert_close(
        decoder.decode(reference, distances), target, atol=1e-5, rtol=1e-5
    )


def test_overlaps_are_mmcv_s_in_pixels() -> None:
    boxes, targets = rotated(20), rotated(15)
    scale = torch.tensor([600.0, 600, 600, 600, 1])
    expected = box_iou_rotated(boxes * scale, targets * scale)
    found = rotated_iou(from_rotated(boxes), from_rotated(targets))
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)
    aligned = rotated_iou(from_rotated(boxes), from_rotated(boxes), aligned=True)
    assert (aligned > 0.99).all()
    assert rotated_iou(from_rotated(boxes), from_rotated(targets[:0])).shape == (20, 0)
    assert rotated_iou(
        from_rotated(boxes[:0]), from_rotated(boxes[:0]), aligned=True
    ).shape == (0,)


def test_noise_is_small_of_a_query_and_larger_of_its_negative_copy() -> None:
    denoising = OrientedDenoising(8, CLASSES, num_queries=40)
    boxes = from_rotated(rotated(5))
    queries = denoising(Targets(torch.zeros(5).long(), boxes, [5]), 6)
    change = change_between(boxes.repeat(queries.number // 5, 1), queries.boxes[0])
    largest = (
        (change / torch.tensor([2, 2, 3, 3, 3, 1.5, 1.5]) * 6).abs().view(-1, 2, 5, 7)
    )
    assert (largest[:, 0] <= 1.001).all()
    assert ((largest[:, 1] >= 0.999) & (largest[:, 1] <= 2.001)).all()
    angles = to_rotated(queries.boxes[0])[:, 4]
    assert (angles.view(-1, 5)[0] - to_rotated(boxes)[:, 4]).abs().max() > 0.01


@pytest.mark.parametrize('numbers', [(3, 0, 2), (0, 0), (60, 1)])
def test_each_parameter_has_a_gradient(numbers: tuple[int, ...]) -> None:
    model = MODELS.build(settings()).train()  # as it starts: all boxes are squares
    losses = model(*batch(numbers), mode='loss')
    assert {key.rpartition('.')[2] for key in losses} >= {
        'loss_mal',
        'loss_bbox',
        'loss_kld',
    }
    assert not any('giou' in key for key in losses)
    total(losses).backward()
    for name, param in model.named_parameters():
        if param.requires_grad:
            assert param.grad is not None, name
            assert torch.isfinite(param.grad).all(), name


@pytest.mark.parametrize('late_epoch', [None, 0])
def test_odd_annotations_leave_finite_losses_or_are_named(
    late_epoch: int | None,
) -> None:
    """Squares, no area, the border of le90, beyond it, far away, and what is no number."""
    model = MODELS.build(settings(matching=dict(late_epoch=late_epoch))).train()
    image, data = batch((2, 2))
    odd = [0.0, -40.0, 1e-30, QUARTER, -QUARTER, 1e6, 1e30]
    for step, value in enumerate([*odd, math.nan, math.inf]):
        data[1].gt_instances.bboxes[step % 2, step % 5] = value
        data[1].set_metainfo(dict(img_path='train/seven.jpg'))
        model.zero_grad()
        if math.isfinite(value):
            loss = total(model(image, data, mode='loss'))
            loss.backward()
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            assert loss.isfinite() and all(g.isfinite().all() for g in grads), value
        else:
            with pytest.raises(
                ValueError, match=r'^train/seven\.jpg has an annotation whose box'
            ):
                model(image, data, mode='loss')
            data[1].gt_instances.bboxes[step % 2, step % 5] = 1.0


def test_boxes_without_an_angle_are_named() -> None:
    image, data = batch((1, 1))
    data[1].gt_instances.bboxes = torch.rand(1, 4)
    with pytest.raises(
        ValueError, match=r'^image 1 of a batch has boxes without an angle.*rbox'
    ):
        MODELS.build(settings()).train()(image, data, mode='loss')


def test_masks_are_not_for_oriented_boxes() -> None:
    with pytest.raises(
        ValueError, match=r'^masks: an oriented detector has boxes alone'
    ):
        MODELS.build(settings(masks={}))


def test_rotated_boxes_that_overlap() -> None:
    """Beside mmcv's IoU: copies moved along a side by shares of it, and other random boxes."""
    head = oriented().bbox_head
    some = rotated(60)
    sides = some[:, 2:4]
    angle = some[:, 4]
    along = torch.stack([angle.cos(), angle.sin()], 1) * sides[:, :1]
    shares = torch.linspace(0, 0.4, 60)
    copies = torch.cat([some[:, :2] + shares[:, None] * along, some[:, 2:]], 1)
    pair = [from_rotated(x) for x in (some, copies)]
    found = head.overlap(torch.stack(pair, 1), 0.7)[:, 0, 1]
    assert found.tolist() == ((1 - shares) / (1 + shares) > 0.7).tolist()
    others = from_rotated(rotated(200))
    apart = rotated_iou(others, others) < 0.4
    assert not (head.overlap(others[None], 0.7)[0] & apart).any()


def test_duplicates_are_left_out_where_nms_iou_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip('mmrotate', reason='no mmrotate; see the extra [oriented]')
    head = oriented().bbox_head
    boxes = from_rotated(rotated(2)).repeat(2, 1)[None]
    prediction = Prediction(torch.randn(1, 4, CLASSES), boxes)
    monkeypatch.setattr(head, 'forward', lambda maps: prediction)
    sample = DetDataSample(metainfo=dict(scale_factor=(1.0, 1.0)))
    found = {}
    for head.nms_iou in (None, 0.7):
        (found[head.nms_iou],) = head.predict((), [sample], (64, 96))
    assert len(found[None]) == 4 * CLASSES
    assert len(found[0.7]) == 2 * CLASSES
    best = prediction.logits[0].unflatten(0, (2, 2)).amax(0).sigmoid().flatten()
    assert torch.equal(found[0.7].scores, best.sort(descending=True).values)


@pytest.mark.parametrize('height, width', [(64, 64), (97, 130), (48, 80)])
def test_boxes_of_any_image_are_le90(height: int, width: int) -> None:
    scores, labels, boxes = oriented().eval()(
        torch.randn(2, 3, height, width), mode='tensor'
    )
    assert scores.shape == labels.shape == (2, 30)
    assert boxes.shape == (2, 30, 5)
    assert (boxes[..., 2] >= boxes[..., 3]).all() and (boxes[..., 3] > 0).all()
    assert ((boxes[..., 4] >= -QUARTER - 1e-6) & (boxes[..., 4] < QUARTER)).all()


def test_deployed_it_has_the_same_results() -> None:
    model, image = oriented().eval(), torch.randn(2, 3, 64, 96)
    with torch.no_grad():
        expected = model(image, mode='tensor')
        found = model.deploy()(image, mode='tensor')
    torch.testing.assert_close(found[0], expected[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[2], expected[2], atol=1e-2, rtol=1e-4)


def test_losses_in_bfloat16() -> None:
    model = oriented().train()
    image, data = batch()
    torch.manual_seed(1)
    expected = total(model(image, data, mode='loss'))
    torch.manual_seed(1)
    with torch.autocast('cpu', torch.bfloat16):
        losses = model(image, data, mode='loss')
    assert {loss.dtype for loss in losses.values()} == {torch.float32}
    assert total(losses).item() == pytest.approx(expected.item(), rel=0.05)


def test_the_horizontal_model_has_the_same_other_parts() -> None:
    """Only what makes boxes has other shapes, so other weights load."""
    horizontal, model = ours('s').state_dict(), oriented().state_dict()
    assert horizontal.keys() == model.keys()
    other = {
        key for key, value in model.items() if value.shape != horizontal[key].shape
    }
    names = (
        'selection.reg.4',
        'query_pos.0.weight',
        'pre_bbox.4',
        'reg_branches',
        'quality',
    )
    assert other and all(any(name in key for name in names) for key in other)


def painted(turned: bool, number: int = 2) -> tuple[Tensor, list[DetDataSample]]:
    """A long and a square box of two colours on grey, and the same picture turned by 90 degrees."""
    side = 96
    given = torch.tensor([[30.0, 34, 40, 14, 0.6], [64, 64, 24, 24, 0.3]])
    places = torch.stack(
        torch.meshgrid(*[torch.arange(side) + 0.5] * 2, indexing='xy'), -1
    )
    image = torch.zeros(3, side, side)
    for channel, (cx, cy, w, h, a) in enumerate(given.tolist()):
        x, y = (places - torch.tensor([cx, cy])).unbind(-1)
        along, across = (
            x * math.cos(a) + y * math.sin(a),
            y * math.cos(a) - x * math.sin(a),
        )
        image[channel, (along.abs() < w / 2) & (across.abs() < h / 2)] = 3
    if turned:
        image = image.rot90(-1, (1, 2))
        given = given.clone()
        given[:, :2] = torch.stack([side - given[:, 1], given[:, 0]], -1)
        given[:, 4] += QUARTER
    truth = InstanceData(bboxes=given, labels=torch.arange(2))
    return image, [DetDataSample(gt_instances=truth)]


@pytest.mark.slow
def test_it_learns_pictures_and_their_turned_copies() -> None:
    """A square's angle too; a turned picture has the boxes turned."""
    torch.manual_seed(0)
    model = MODELS.build(settings(num_queries=20, denoising=dict(num_queries=20)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    pairs = [painted(False), painted(True)]
    image = torch.stack([x for x, _ in pairs])
    data = [y for _, (y,) in pairs]
    for step in range(100):
        if step == 70:
            optimizer.param_groups[0]['lr'] = 3e-4
        loss = total(model.train()(image, data, mode='loss'))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    with torch.no_grad():
        scores, labels, boxes = model.eval()(image, mode='tensor')
    assert (scores[:, :2] > 0.4).all()
    for some, order, sample in zip(
        boxes[:, :2], labels[:, :2].argsort(1), data, strict=True
    ):
        iou = box_iou_rotated(some[order], sample.gt_instances.bboxes, aligned=True)
        assert (iou > 0.75).all()
    (first, second) = (
        x[y] for x, y in zip(boxes[:, :2], labels[:, :2].argsort(1), strict=True)
    )
    turned = torch.stack(
        [96 - first[:, 1], first[:, 0], *first.T[2:4], first[:, 4] + QUARTER], 1
    )
    assert (box_iou_rotated(turned, second, aligned=True) > 0.75).all()


def test_annotations_come_as_mmrotate_has_them_and_predictions_return_so() -> None:
    """Boxes of a resized image, in the original image, le90 and as mmrotate's type."""
    pytest.importorskip('mmrotate', reason='no mmrotate; see the extra [oriented]')
    import rope_dense.models.mmrotate  # noqa: F401, I001
    from mmrotate.structures.bbox import RotatedBoxes

    model = oriented().eval()
    image, data = batch((2,))
    data[0].set_metainfo(
        dict(scale_factor=(2.0, 2.0), ori_shape=(32, 48), img_shape=(64, 96))
    )
    tensor = data[0].gt_instances.bboxes
    data[0].gt_instances.bboxes = RotatedBoxes(tensor)
    targets = model.bbox_head.gather(data, (64, 96))
    torch.testing.assert_close(targets.boxes, from_pixels(tensor, (64, 96)))
    size = (64, 96)
    with torch.no_grad():
        maps = model.extract_feat(image)
        (original,) = model.bbox_head.predict(maps, data, size)
        (resized,) = model.bbox_head.predict(maps, data, size, rescale=False)
    assert isinstance(original.bboxes, RotatedBoxes)
    half = torch.tensor([0.5, 0.5, 0.5, 0.5, 1])
    torch.testing.assert_close(
        original.bboxes.tensor, resized.bboxes.tensor * half, atol=1e-4, rtol=1e-4
    )
    (sample,) = model(image, data, mode='predict')
    assert sample.pred_instances.bboxes.shape == (30, 5)


@pytest.mark.parametrize('where', [MODELS, registry.MODELS], ids=['mmengine', 'mmdet'])
def test_a_registered_subclass_is_oriented(
    where: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By its config, and by its settings of the hub, which ask for mmrotate."""
    head = type(
        'HeadOfAPlugin', (OrientedDEIMHead,), dict(__module__='rope_dense.plugin')
    )
    monkeypatch.setitem(where.module_dict, 'SubclassOfTheHead', head)
    asked: list[str] = []
    monkeypatch.setattr(hub_config, 'import_module', asked.append)
    parts = dict(test_pipeline=[], metainfo=dict(classes=['a'], palette=[[0, 0, 0]]))
    for kind, task in (('SubclassOfTheHead', 'oriented'), ('DEIMHead', 'boxes')):
        model = dict(type=settings()['type'], bbox_head=dict(type=kind))
        cfg = Config(dict(default_scope='mmdet', model=model, **parts))
        assert task_of(cfg) == task and (angle_version(cfg) == 'le90') == (
            task == 'oriented'
        )
        stored = hub_config.storable_settings(cfg.to_dict())
        (tmp_path / 'config.json').write_text(json.dumps(stored))
        asked.clear()
        hub_config.read_settings(tmp_path / 'config.json')
        assert ('rope_dense.models.mmrotate' in asked) == (task == 'oriented')
    assert angle_version(Config(dict(model=dict(type=['no name'])))) is None


@pytest.mark.slow
def test_it_trains_without_mmrotate() -> None:
    code = (
        'import sys; sys.modules["mmrotate"] = None; import rope_dense; '
        'from mmengine.registry import MODELS; print(MODELS.get("OrientedDEIMHead").__name__)'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.stdout.strip() == 'OrientedDEIMHead', done.stderr
