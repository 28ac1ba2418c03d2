"""DEIM in mmdet: what training keeps, resumes and learns, and results in the original image."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmdet.structures.mask import BitmapMasks
from mmengine.config import Config
from mmengine.logging import MessageHub
from mmengine.registry import MODELS, DefaultScope
from mmengine.runner import Runner
from mmengine.structures import InstanceData
from torch import Tensor

from helpers.deim import CLASSES, config, ours, randomise
from helpers.grid import CONFIGS
from helpers.seeds import seeds_of_the_week
from rope_dense.models.deim.detector import DEIM


def batch(numbers: tuple[int, ...] = (3, 0, 2)) -> tuple[Tensor, list[DetDataSample]]:
    samples = []
    for number in numbers:
        corners = torch.rand(number, 2) * 40
        truth = InstanceData(
            bboxes=torch.cat([corners, corners + 8 + torch.rand(number, 2) * 24], 1),
            labels=torch.randint(0, CLASSES, (number,)),
        )
        samples.append(DetDataSample(gt_instances=truth))
    return torch.randn(len(numbers), 3, 64, 96), samples


def total(losses: dict[str, Tensor]) -> Tensor:
    return sum(losses.values(), torch.zeros(()))


@pytest.mark.parametrize('numbers', [(3, 0, 2), (0, 0), (150, 1)])
def test_each_parameter_has_a_gradient(numbers: tuple[int, ...]) -> None:
    """With many boxes, with none, and with more than there are denoising queries."""
    model = ours('m').train()
    losses = model(*batch(numbers), mode='loss')
    assert all(torch.isfinite(loss) for loss in losses.values())
    total(losses).backward()
    for name, param in model.named_parameters():
        if param.requires_grad:
            assert param.grad is not None, name
            assert torch.isfinite(param.grad).all(), name


KINDS = {  # a config of each kind, and the values of a box
    'deim/deimv2-s_vit-t_4xb8-488k_coco.py': 4,
    'deim/ecdet-s_ecvit-t_4xb8-274k_coco.py': 4,
    'deim/ecseg-s_ecvit-t_4xb8-274k_coco.py': 4,
    'demo/deim_vit_rope_mixed_shapes.py': 4,
    'demo/oriented_deim_vit_rope_mixed_shapes.py': 5,
}


@pytest.mark.parametrize(
    'path, values',
    [
        pytest.param(
            *kind, marks=[] if kind[0].startswith('demo') else pytest.mark.slow
        )
        for kind in KINDS.items()
    ],
)
def test_no_process_has_to_look_for_unused_parameters(path: str, values: int) -> None:
    """DDP waits for a gradient of each parameter, unless ``find_unused_parameters`` is set."""
    if 'oriented' in path:
        pytest.importorskip(
            'mmrotate', reason='no mmrotate; pip install --no-deps onedl-mmrotate'
        )
    cfg = Config.fromfile(CONFIGS / path)
    assert not cfg.get('find_unused_parameters')
    cfg.model.backbone.init_cfg = None
    with DefaultScope.overwrite_default_scope('mmdet'):
        model = MODELS.build(cfg.model).train()
    for numbers in ((2, 1), (0, 0)):
        image, samples = batch(numbers)
        for sample, number in zip(samples, numbers, strict=True):
            truth = sample.gt_instances
            truth.labels %= cfg.model.bbox_head.num_classes
            truth.bboxes = torch.cat([truth.bboxes, torch.rand(number, 1)], 1)[
                :, :values
            ]
            truth.masks = BitmapMasks(np.ones((number, 64, 96), np.uint8), 64, 96)
        model.zero_grad(set_to_none=True)
        total(model(image, samples, mode='loss')).backward()
        missing = [name for name, x in model.named_parameters() if x.grad is None]
        assert missing == [
            name for name, x in model.named_parameters() if not x.requires_grad
        ]


@pytest.mark.parametrize('late_epoch', [None, 0])
@pytest.mark.parametrize('value', [torch.nan, torch.inf, -torch.inf])
def test_a_box_that_is_not_finite_names_its_image(
    value: float, late_epoch: int | None
) -> None:
    model = ours('m', head=dict(matching=dict(late_epoch=late_epoch))).train()
    image, data = batch()
    data[2].set_metainfo(dict(img_path='train/seven.jpg'))
    data[2].gt_instances.bboxes[1, 2] = value
    with pytest.raises(
        ValueError, match=r'^train/seven\.jpg has an annotation whose box'
    ):
        model(image, data, mode='loss')


@pytest.mark.parametrize(
    'seeds', [lambda: range(4), pytest.param(seeds_of_the_week, marks=pytest.mark.slow)]
)
def test_odd_annotations_leave_finite_losses_or_are_named(seeds: Callable) -> None:
    """Boxes of no area, turned over, far outside, huge; with the slow tests of a weekly seed.

    At 1e30 pixels gradients overflow float32, and the training leaves such a step out.
    """
    model = ours('s').train()
    odd = [0.0, -0.0, -40.0, 1e-30, 31.5, 1e6, 1e12, torch.nan, torch.inf, -torch.inf]
    for seed in seeds():
        random = Random(seed)
        image, data = batch((random.randrange(4), 2))
        values = [random.choice(odd) for _ in range(random.randint(1, 4))]
        for value in values:
            data[1].gt_instances.bboxes[random.randrange(2), random.randrange(4)] = (
                value
            )
        data[1].set_metainfo(dict(img_path='train/seven.jpg'))
        model.zero_grad()
        if data[1].gt_instances.bboxes.isfinite().all():
            loss = total(model(image, data, mode='loss'))
            loss.backward()
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            assert loss.isfinite() and all(g.isfinite().all() for g in grads), values
        else:
            with pytest.raises(
                ValueError, match=r'^train/seven\.jpg has an annotation whose box'
            ):
                model(image, data, mode='loss')


def test_a_deployed_model_does_not_train() -> None:
    for eval_idx in (0, -1):
        settings = config('s')
        settings['bbox_head']['decoder']['eval_idx'] = eval_idx
        model = MODELS.build(settings).deploy().train()
        with pytest.raises(RuntimeError, match='build another one'):
            model(*batch(), mode='loss')


def test_one_class() -> None:
    model = ours('s', head=dict(num_classes=1)).train()
    image, data = batch()
    for sample in data:
        sample.gt_instances.labels[:] = 0
    total(model(image, data, mode='loss')).backward()
    scores, labels, _ = model.eval()(image, mode='tensor')
    assert scores.shape == (3, 20)  # all queries, fewer than max_per_img
    assert (labels == 0).all()


def test_fewer_tokens_than_queries() -> None:
    model = ours('s', head=dict(num_queries=500)).train()
    image, data = batch()
    total(model(image, data, mode='loss')).backward()
    maps = model.eval().extract_feat(image)
    tokens = sum(x.shape[2] * x.shape[3] for x in maps)
    assert model.bbox_head(maps).boxes.shape == (3, tokens, 4)
    assert model(image, mode='tensor')[0].shape == (3, 30)


def test_no_denoising_and_other_weights() -> None:
    settings = dict(denoising=None, loss_weights=dict(ddf=0.0, mal=2.0))
    model = ours('s', head=settings).train()
    losses = model(*batch(), mode='loss')
    assert set(losses) == {
        *(
            f'{name}loss_{kind}'
            for name in ('', 'd0.')
            for kind in ('mal', 'bbox', 'giou', 'fgl')
        ),
        *(
            f'{name}loss_{kind}'
            for name in ('pre.', 'enc.')
            for kind in ('mal', 'bbox', 'giou')
        ),
        'd0.loss_ddf',
    }
    assert losses['d0.loss_ddf'] == 0
    total(losses).backward()


def test_layers_after_eval_idx_train_only() -> None:
    head = config('x')['bbox_head']
    head['decoder'] |= dict(eval_idx=1)
    model = MODELS.build(config('x') | dict(bbox_head=head)).eval()
    image, data = batch()
    expected = model(image, mode='tensor')
    last = model.bbox_head.decoder.layers[2]
    randomise(last)
    for x, same in zip(model(image, mode='tensor'), expected, strict=True):
        assert torch.equal(x, same)
    assert 'd1.loss_ddf' in model.train()(image, data, mode='loss')


def test_losses_in_bfloat16() -> None:
    """They are float32, and near those of float32."""
    model = ours('s').train()
    image, data = batch()
    torch.manual_seed(1)
    expected = total(model(image, data, mode='loss'))
    torch.manual_seed(1)
    with torch.autocast('cpu', torch.bfloat16):
        losses = model(image, data, mode='loss')
    assert {loss.dtype for loss in losses.values()} == {torch.float32}
    assert total(losses).item() == pytest.approx(expected.item(), rel=0.05)
    total(losses).backward()
    with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):
        assert model.eval()(image, mode='tensor')[2].dtype == torch.float32


def test_a_frozen_backbone_keeps_nothing_for_backward() -> None:
    settings = config('s')
    settings['backbone']['frozen_stages'] = 'all'
    model = MODELS.build(settings).train()
    image, data = batch()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: kept.append(x) or x, lambda x: x
    ):
        maps = model.backbone(image)
        assert not kept
        model.neck(maps, image)
        assert kept
    total(model(image, data, mode='loss')).backward()
    assert all(param.grad is None for param in model.backbone.parameters())
    assert all(param.grad is not None for param in model.neck.parameters())


def test_the_late_matcher_takes_the_epoch_of_the_message_hub() -> None:
    model = ours('s', head=dict(matching=dict(late_epoch=3), denoising=None)).train()
    randomise(model)
    data = batch()
    epochs: list[int] = []
    matcher = model.bbox_head.criterion.matcher
    hub = MessageHub.get_instance('late')
    totals = []
    for epoch in (None, 2, 3):
        if epoch is not None:
            hub.update_info('epoch', epoch)
        totals.append(total(model(*data, mode='loss')).item())
        epochs.append(hub.get_info('epoch', 0))
    assert epochs == [0, 2, 3]
    assert totals[0] == pytest.approx(totals[1], rel=1e-5)
    assert totals[2] != pytest.approx(totals[1], rel=1e-4)
    assert matcher.late_epoch == 3


def test_a_resumed_step_is_that_of_a_run_without_interruption() -> None:
    """All state is in the weights and the optimizer: nothing hides in the head."""

    def step(model: DEIM, optimizer: torch.optim.Optimizer, seed: int) -> float:
        torch.manual_seed(seed)
        loss = total(model(*batch(), mode='loss'))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    model = ours('s').train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for seed in range(2):
        step(model, optimizer, seed)
    file = io.BytesIO()
    torch.save(dict(model=model.state_dict(), optimizer=optimizer.state_dict()), file)
    file.seek(0)
    states = torch.load(file)
    other = ours('s').train()
    other.load_state_dict(states['model'])
    second = torch.optim.AdamW(other.parameters(), 1e-3)
    second.load_state_dict(states['optimizer'])
    losses = [
        [step(*pair, seed) for seed in (2, 3)]
        for pair in ((model, optimizer), (other, second))
    ]
    assert losses[0] == losses[1]


def test_boxes_are_those_of_the_original_image() -> None:
    """Stretched, or at the same aspect and padded; within the image."""
    model = ours('s')
    randomise(model)
    image = torch.randn(2, 3, 64, 96)
    scores, labels, boxes = model(image, mode='tensor')
    metas = [
        dict(scale_factor=(0.5, 0.25), ori_shape=(256, 192), img_shape=(64, 96)),
        dict(
            scale_factor=(2.0, 2.0), ori_shape=(30, 20), img_shape=(60, 40)
        ),  # padded to 64 x 96
    ]
    samples = [DetDataSample(metainfo=meta) for meta in metas]
    for index, sample in enumerate(
        model(image, copy.deepcopy(samples), mode='predict')
    ):
        found = sample.pred_instances
        factor = torch.tensor(metas[index]['scale_factor']).repeat(2)
        height, width = metas[index]['ori_shape']
        limits = torch.tensor([width, height, width, height])
        assert torch.equal(found.scores, scores[index])
        assert torch.equal(found.labels, labels[index])
        assert torch.allclose(found.bboxes, (boxes[index] / factor).minimum(limits))
    same = model.predict(image, samples, rescale=False)[0].pred_instances
    assert torch.allclose(same.bboxes, boxes[0])


def test_multi_scale_batches_of_rectangles() -> None:
    """mmdet resizes a batch and its boxes; the losses count in its size."""
    MessageHub.get_instance('multi-scale').update_info('iter', 0)
    resize = dict(
        type='BatchSyncRandomResize',
        random_size_range=(64, 64),
        interval=1,
        size_divisor=32,
    )
    with DefaultScope.overwrite_default_scope('mmdet'):
        preprocessor = config('s')['data_preprocessor'] | dict(batch_augments=[resize])
        model = MODELS.build(config('s') | dict(data_preprocessor=preprocessor)).train()
        image, data = batch((2, 1))
        inputs = [x.mul(20).byte() for x in (image[0], image[1, :, :48, :80])]
        for sample, x in zip(data, inputs, strict=True):
            sample.set_metainfo(dict(img_shape=tuple(x.shape[1:])))
        given = model.data_preprocessor(
            dict(inputs=inputs, data_samples=data), training=True
        )
        losses = model(**given, mode='loss')
    assert torch.isfinite(total(losses))


IMAGES, EPOCHS = 4, 70


@pytest.fixture
def recipe(shared_data: Path, tmp_path: Path) -> Config:
    """A tiny model with masks, and a few real images, stretched to 128 x 128 pixels."""
    root = shared_data / 'coco_mini'
    content = json.loads(
        (root / 'annotations' / 'instances_train2017.json').read_text()
    )
    content['images'] = content['images'][:IMAGES]
    chosen = {image['id'] for image in content['images']}
    content['annotations'] = [
        box for box in content['annotations'] if box['image_id'] in chosen
    ]
    annotations = tmp_path / 'annotations.json'
    annotations.write_text(json.dumps(content))
    pipeline = [
        dict(type='LoadImageFromFile'),
        dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
        dict(type='Resize', scale=(128, 128)),
        dict(
            type='PackDetInputs',
            meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'),
        ),
    ]
    data = dict(
        type='CocoDataset',
        ann_file=str(annotations),
        data_prefix=dict(img=f'{root}/train2017/'),
        pipeline=pipeline,
    )
    loader = dict(batch_size=IMAGES, num_workers=0)
    matching = dict(mask_cost=5.0, dice_cost=5.0, late_epoch=EPOCHS - 20)
    head = dict(num_classes=80, num_queries=60, matching=matching, masks={})
    model = config('s', head=head)
    model['data_preprocessor'] = dict(
        type='DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32,
        pad_mask=True,
    )
    optimizer = dict(type='AdamW', lr=2e-3, weight_decay=1e-4)
    return Config(
        dict(
            default_scope='mmdet',
            model=model,
            train_dataloader=loader
            | dict(dataset=data, sampler=dict(type='DefaultSampler', shuffle=True)),
            val_dataloader=loader
            | dict(
                dataset=data | dict(test_mode=True),
                sampler=dict(type='DefaultSampler', shuffle=False),
            ),
            train_cfg=dict(
                type='EpochBasedTrainLoop', max_epochs=EPOCHS, val_interval=EPOCHS
            ),
            val_cfg=dict(type='ValLoop'),
            val_evaluator=dict(
                type='CocoMetric',
                ann_file=str(annotations),
                metric=['bbox', 'segm'],
            ),
            optim_wrapper=dict(
                type='OptimWrapper', optimizer=optimizer, clip_grad=dict(max_norm=0.1)
            ),
            work_dir=str(tmp_path),
            randomness=dict(seed=0),
            default_hooks=dict(
                checkpoint=None, logger=dict(type='LoggerHook', interval=1)
            ),
            log_level='ERROR',
        )
    )


@pytest.mark.slow
def test_real_images_are_learned(recipe: Config) -> None:
    """Through mmengine's Runner, with the late matcher at the end, and COCO's evaluation."""
    runner = Runner.from_cfg(recipe)
    runner.train()
    history, _ = runner.message_hub.get_scalar('train/loss').data
    assert history[-5:].mean() < 0.75 * history[:5].mean()
    metrics = runner.val()
    assert metrics['coco/bbox_mAP'] > 0.25
    assert metrics['coco/segm_mAP'] > 0.3
