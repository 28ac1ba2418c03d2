"""The annealing of EoMT's masks, its learning rates, and its models in training and evaluation."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.logging import MessageHub
from mmengine.registry import PARAM_SCHEDULERS, TRANSFORMS, init_default_scope
from mmengine.structures import InstanceData, PixelData
from torch import Tensor, nn

from helpers.eomt import TASKS, build_model, close, randomise
from rope_dense.models.eomt.annealing import MaskAnnealingHook
from rope_dense.models.eomt.queries import EoMT
from rope_dense.utils.sizes import tile_starts

every_task = pytest.mark.parametrize('task', TASKS)


def sample(task: str, size: tuple[int, int]) -> object:
    """What is in an image: two objects, or the classes of its pixels."""
    meta = dict(img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0))
    labels = PixelData(data=torch.randint(0, 3, (1, *size)))
    if task == 'semantic':
        from mmseg.structures import SegDataSample

        return SegDataSample(metainfo=meta, gt_sem_seg=labels)
    from mmdet.structures import DetDataSample
    from mmdet.structures.mask import BitmapMasks

    masks = BitmapMasks(np.random.randint(0, 2, (2, *size)).astype(np.uint8), *size)
    objects = InstanceData(
        bboxes=torch.zeros(2, 4), labels=torch.tensor([0, 2]), masks=masks
    )
    data = DetDataSample(metainfo=meta, gt_instances=objects)
    if task == 'panoptic':
        data.gt_sem_seg = PixelData(sem_seg=torch.randint(0, 5, (1, *size)))
    return data


def batch(task: str, *sizes: tuple[int, int]) -> dict:
    return dict(
        inputs=[torch.randint(0, 256, (3, *size), dtype=torch.uint8) for size in sizes],
        data_samples=[sample(task, size) for size in sizes],
    )


@every_task
def test_there_is_a_loss_before_each_block_and_after_them(task: str) -> None:
    model = build_model(task).train()
    data = model.data_preprocessor(batch(task, (64, 64), (64, 64)), training=True)
    losses = model(**data, mode='loss')
    names = {
        f'{step}loss_{kind}'
        for step in ('', 'd0.', 'd1.')
        for kind in ('cls', 'mask', 'dice')
    }
    prefix = 'decode.' if task == 'semantic' else ''
    assert set(losses) == {prefix + name for name in names}
    model.parse_losses(losses)[0].backward()
    assert all(
        param.grad is not None and param.grad.any() for param in model.parameters()
    )


@torch.no_grad()
def test_losses_are_those_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of constant masks, at points away from the border: it does not matter which are drawn."""
    draw = torch.rand
    monkeypatch.setattr(
        torch, 'rand', lambda *size, **kwargs: 0.1 + 0.8 * draw(*size, **kwargs)
    )
    eomt_dinov3 = pytest.importorskip(
        'transformers.models.eomt_dinov3.modeling_eomt_dinov3'
    )
    model = build_model('instance').train()
    config = eomt_dinov3.EomtDinov3Config(
        num_labels=3, num_queries=8, train_num_points=64
    )
    weights = dict(loss_cross_entropy=2.0, loss_mask=5.0, loss_dice=5.0)
    criterion = eomt_dinov3.EomtDinov3Loss(config, weights)
    classes = torch.randn(2, 8, 4)
    masks = torch.randn(2, 8, 1, 1).expand(-1, -1, 16, 16).contiguous()
    given = [
        torch.ones(1, 64, 64),
        torch.cat([torch.zeros(1, 64, 64), torch.ones(1, 64, 64)]),
    ]
    labels = [torch.tensor([2]), torch.tensor([0, 1])]
    theirs = criterion(masks, classes, given, labels)
    instances = [
        InstanceData(masks=mask.long(), labels=label)
        for mask, label in zip(given, labels, strict=True)
    ]
    ours = model.panoptic_head.loss_by_feat([classes], [masks], instances, [{}, {}])
    for name, weight in weights.items():
        key = name.replace('cross_entropy', 'cls')
        assert ours[key].item() == pytest.approx(weight * theirs[name].item(), rel=1e-5)


@every_task
@torch.no_grad()
def test_predictions_have_the_size_of_the_image(task: str) -> None:
    model = build_model(task).eval()
    data = model.data_preprocessor(batch(task, (64, 96)))
    data['data_samples'][0].set_metainfo(dict(ori_shape=(100, 150), img_shape=(64, 90)))
    if task == 'semantic':
        data['data_samples'][0].set_metainfo(dict(img_shape=(64, 96)))
    (result,) = model(**data, mode='predict')
    if task == 'semantic':
        assert result.pred_sem_seg.shape == (100, 150)
    elif task == 'panoptic':
        assert result.pred_panoptic_seg.sem_seg.shape == (1, 100, 150)
    else:
        assert result.pred_instances.masks.shape[1:] == (100, 150)


def windows(side: int, crop: int) -> list[int]:
    """The source's formula."""
    number = -(-side // crop)
    overlap = number * crop - side if number > 1 else 0
    step = crop - (overlap / (number - 1) if overlap > 0 else 0)
    return [int(index * step + 1e-9) for index in range(number)]


@pytest.mark.parametrize('side', [300, 512, 513, 683, 1024, 1025, 1365, 4000])
def test_windows_are_those_of_the_source(side: int) -> None:
    starts = tile_starts(side, 512, 0)
    assert starts == windows(side, 512)
    assert starts[-1] + 512 == max(side, 512)


@torch.no_grad()
def test_logits_of_windows_are_averaged() -> None:
    model = build_model('semantic').eval()
    randomise(model)
    x = torch.randn(2, 3, 64, 150)
    meta = [dict(ori_shape=(64, 150), img_shape=(64, 150), pad_shape=(64, 150))] * 2
    parts = {
        start: model.encode_decode(
            x[..., start : start + 64], [dict(pad_shape=(64, 64))] * 2
        )
        for start in (0, 43, 86)
    }
    total, count = torch.zeros(2, 3, 64, 150), torch.zeros(150)
    for start, logits in parts.items():
        total[..., start : start + 64] += logits
        count[start : start + 64] += 1
    assert close(model.inference(x, meta), total / count)
    assert meta[0]['img_shape'] == (64, 150)


@pytest.mark.parametrize(
    'iteration', [0, 1, 2999, 3000, 7000, 9780, 16299, 16300, 20000]
)
def test_annealing_is_the_polynomial_of_the_source(iteration: int) -> None:
    start, end = [0, 6520, 9780, 13040], [3000, 9780, 13040, 16300]
    hook, eomt = MaskAnnealingHook(start, end), EoMT(32, 3, 5, num_blocks=4)
    runner = SimpleNamespace(
        model=nn.Sequential(eomt), iter=iteration, message_hub=MessageHub('eomt')
    )
    hook.before_train(runner)
    hook.before_train_iter(runner, 0)
    for begin, finish, actual in zip(start, end, eomt.mask_probs, strict=True):
        progress = (iteration - begin) / (finish - begin)
        expected = (
            1.0
            if iteration < begin
            else 0.0
            if iteration >= finish
            else (1 - progress) ** 0.9
        )
        assert actual == pytest.approx(expected)
    logged = runner.message_hub.get_scalar('train/mask_prob_3').current()
    assert logged == pytest.approx(eomt.mask_probs[3])


@pytest.mark.parametrize(
    'start, end, message',
    [
        ([0], [1, 2], 'two iterations for each'),
        ([5], [5], 'after the start'),
        ([-1], [5], '-1'),
    ],
)
def test_annealing_in_disorder_is_refused(
    start: list[int], end: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        MaskAnnealingHook(start, end)


def test_annealing_needs_a_span_for_each_block() -> None:
    runner = SimpleNamespace(model=nn.Sequential(EoMT(32, 3, 5, num_blocks=4)))
    with pytest.raises(ValueError, match='3 blocks, queries join 4'):
        MaskAnnealingHook([0] * 3, [1] * 3).before_train(runner)
    with pytest.raises(ValueError, match='no EoMT'):
        MaskAnnealingHook([0], [1]).before_train(SimpleNamespace(model=nn.Linear(1, 1)))


def published_rate(step: int, start: int, warmup: int, total: int) -> float:
    """The source's schedule of one group, whose warm-up starts at ``start``."""
    if step < start:
        return 0.0
    if step < start + warmup:
        return (step - start) / warmup
    return (1 - (step - start - warmup) / (total - start - warmup)) ** 0.9


@pytest.mark.parametrize(
    'warmup, backbone_warmup', [(20, 30), (0, 30), (20, 0), (0, 0)]
)
def test_learning_rates_are_those_of_the_source(
    warmup: int, backbone_warmup: int
) -> None:
    names = (
        'backbone/decay',
        'backbone.blocks.1/decay',
        '(rest)/decay',
        'backbones/decay',
    )
    groups = [
        dict(params=[nn.Parameter(torch.zeros(1))], name=name, lr=0.1 * (1 + index))
        for index, name in enumerate(names)
    ]
    optimizer = torch.optim.SGD(groups)
    schedule = dict(
        type='TwoStageWarmupPolyLR',
        warmup=warmup,
        backbone_warmup=backbone_warmup,
        end=100,
    )
    scheduler = PARAM_SCHEDULERS.build(schedule, default_args=dict(optimizer=optimizer))
    for step in range(100):
        backbone = published_rate(step, warmup, backbone_warmup, 100)
        others = published_rate(step, 0, warmup, 100)
        expected = [0.1 * backbone, 0.2 * backbone, 0.3 * others, 0.4 * others]
        assert [group['lr'] for group in optimizer.param_groups] == pytest.approx(
            expected
        )
        optimizer.step()
        scheduler.step()


def test_a_schedule_by_epochs_is_refused() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule = dict(type='TwoStageWarmupPolyLR', warmup=1, backbone_warmup=1, end=10)
    for wrong in (dict(by_epoch=True), dict(end=2)):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            PARAM_SCHEDULERS.build(
                schedule | wrong, default_args=dict(optimizer=optimizer)
            )


def test_padding_is_black_and_no_part_of_the_image() -> None:
    init_default_scope('mmdet')
    pad = TRANSFORMS.build(
        dict(
            type='rope_dense.data.transforms.PadBottomRight',
            pad_to_square=True,
            pad_val=dict(img=0),
        )
    )
    image = np.full((30, 40, 3), 200, np.uint8)
    padded = pad(dict(img=image, img_shape=(30, 40)))
    assert padded['img'].shape == (40, 40, 3) and padded['img_shape'] == (30, 40)
    assert (padded['img'][:30] == 200).all() and not padded['img'][30:].any()


@torch.no_grad()
def test_what_is_in_the_padding_is_cut_off() -> None:
    model = build_model('panoptic').eval()
    data = model.data_preprocessor(batch('panoptic', (64, 64)))
    shape: Tensor = data['inputs'].shape
    assert shape[2:] == (64, 64)  # the pipeline pads, not the data preprocessor
    data['data_samples'][0].set_metainfo(dict(img_shape=(48, 64), ori_shape=(48, 64)))
    (classes,), (masks,) = model.panoptic_head(model.extract_feat(data['inputs']))
    whole = nn.functional.interpolate(masks, (64, 64), mode='bilinear')[0, :, :48]
    fused = model.panoptic_fusion_head.panoptic_postprocess(classes[0], whole)
    (result,) = model(**data, mode='predict')
    assert torch.equal(result.pred_panoptic_seg.sem_seg, fused.sem_seg)
