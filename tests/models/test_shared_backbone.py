"""Several heads on one backbone give what each model gives alone, from one pass."""

from __future__ import annotations

import copy
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.structures import BaseDataElement
from mmseg.structures import SegDataSample
from torch import Tensor

from helpers import shared_backbone as small
from helpers.eomt import close
from helpers.exported import pixels
from rope_dense.backbones import RoPEViT
from rope_dense.checkpoints import CheckpointError
from rope_dense.models.shared_backbone import (
    SharedBackbone,
    check_equal_weights,
    share_parts,
)

sys.path.insert(0, str(Path(__file__).parents[2] / 'benchmarks'))

from launches import LaunchCounter, storages

Tasks = dict[str, dict]


@pytest.fixture(scope='module')
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Tasks:
    folder = tmp_path_factory.mktemp('shared')
    return small.save(folder, **{name: make() for name, make in small.ALL.items()})


@pytest.fixture(scope='module')
def model(tasks: Tasks) -> SharedBackbone:
    return SharedBackbone(tasks, features=True)


def data(kind: type, images: list[Tensor]) -> dict:
    """A batch as a pipeline packs it: images at half their original size."""
    samples = []
    for image in images:
        height, width = image.shape[1:]
        meta = dict(img_shape=(height, width), ori_shape=(2 * height, 2 * width))
        samples.append(kind(metainfo=dict(meta, scale_factor=(0.5, 0.5))))
    return dict(inputs=images, data_samples=samples)


def assert_equal(name: str, found: Any, expected: Any) -> None:
    """The predictions of one image by one task."""
    if name == 'classes':
        assert close(found.seg_logits.data, expected.seg_logits.data)
        assert torch.equal(found.pred_sem_seg.data, expected.pred_sem_seg.data)
    elif name == 'depth':
        assert close(found.pred_depth_map.data, expected.pred_depth_map.data)
    else:
        found, expected = found.pred_instances, expected.pred_instances
        assert len(expected) > 0
        assert close(found.scores, expected.scores)
        assert torch.equal(found.labels, expected.labels)
        assert close(found.bboxes, expected.bboxes)
        if name == 'masks':
            assert torch.equal(found.masks, expected.masks)


@torch.no_grad()
def test_each_task_predicts_what_its_model_predicts_alone(
    model: SharedBackbone, tasks: Tasks
) -> None:
    """With its own preprocessor; sizes are multiples of the divisor of all."""
    images = [pixels(3, 64, 96) for _ in range(2)]
    results = model.test_step(data(DetDataSample, images))
    assert len(results) == 2
    for name, task in tasks.items():
        kind = SegDataSample if name in ('classes', 'depth') else DetDataSample
        expected = small.alone(task).test_step(data(kind, images))
        for found, one in zip(results, expected, strict=True):
            assert_equal(name, found.get(name), one)
        within = model.tasks[name].test_step(
            data(kind, images)
        )  # without a pass of all
        assert_equal(name, within[0], expected[0])


@torch.no_grad()
def test_padding_is_no_part_of_a_result(model: SharedBackbone, tasks: Tasks) -> None:
    """Images of several sizes are padded together; each result covers its own image."""
    images = [pixels(3, 50, 70), pixels(3, 64, 40)]
    results = model.test_step(data(DetDataSample, images))
    padded = model.data_preprocessor(data(DetDataSample, images))['inputs']
    assert padded.shape == (2, 3, 64, 96)
    classes = small.alone(tasks['classes'])
    logits = F.interpolate(
        classes(padded), (64, 96), mode='bilinear', align_corners=False
    )
    depth = small.alone(tasks['depth'])(padded)
    for i, (image, result) in enumerate(zip(images, results, strict=True)):
        height, width = image.shape[1:]
        size = (2 * height, 2 * width)
        for name, maps in dict(classes=logits, depth=depth).items():
            own = maps[i : i + 1, :, :height, :width]
            expected = F.interpolate(own, size, mode='bilinear', align_corners=False)[0]
            sample = result.get(name)
            data_ = sample.seg_logits if name == 'classes' else sample.pred_depth_map
            assert close(data_.data, expected)
        assert result.masks.pred_instances.masks.shape[1:] == size
        limit = torch.tensor([size[1], size[0], size[1], size[0]])
        assert (result.boxes.pred_instances.bboxes <= limit).all()


@torch.no_grad()
def test_features_are_the_normalised_last_map(model: SharedBackbone) -> None:
    images = [pixels(3, 50, 70), pixels(3, 64, 40)]
    backbone = RoPEViT(small.ARCH).eval()
    backbone.load_state_dict(model.backbone.state_dict())
    inputs = model.data_preprocessor(data(DetDataSample, images))['inputs']
    (expected,) = backbone(inputs)
    places = expected[0, :, :4, :5].flatten(1).T  # 50 x 70 pixels
    (found, second) = (
        x.features.data for x in model.test_step(data(DetDataSample, images))
    )
    assert found.shape == (small.C, 4, 5) and second.shape == (small.C, 4, 3)
    tokens = found.flatten(1).T
    expected = F.cosine_similarity(places[:, None], places[None], dim=2)
    assert close(tokens @ tokens.T, expected)


@torch.no_grad()
def test_launches_are_those_of_one_backbone_and_of_the_heads(
    model: SharedBackbone, tasks: Tasks
) -> None:
    """And weights and tokens are in memory once."""

    def count(run: Any) -> int:
        for _ in range(2):  # the first call fills caches
            with LaunchCounter() as counter:
                run()
        return counter.total

    image = torch.randn(1, 3, 64, 96)
    heads = separate = 0
    for task in tasks.values():
        one = small.alone(task)
        of_backbone = count(
            lambda one=one: one.backbone.block_tokens(image, one.backbone.out_indices)
        )
        separate += count(lambda one=one: one(image))
        heads += count(lambda one=one: one(image)) - of_backbone
    all_blocks = count(lambda: model.backbone.block_tokens(image, [0, 1, 2, 3]))
    features = count(
        lambda: F.normalize(model.backbone.norm(torch.rand(1, 29, small.C)), dim=1)
    )
    total = count(lambda: model(image))
    assert total == all_blocks + heads + features
    assert total < separate - 2 * all_blocks
    backbones = [task.get_submodule('backbone') for task in model.tasks.values()]
    for backbone in backbones:
        assert storages(backbone.state_dict()) <= storages(model.backbone.state_dict())


def test_nothing_is_initialised_in_order_to_be_replaced(tasks: Tasks) -> None:
    """Random numbers are drawn for one backbone, in the first task."""
    task = dict(depth=tasks['depth'])
    torch.manual_seed(0)
    small.alone(tasks['depth'])
    expected = torch.rand(1)
    torch.manual_seed(0)
    model = SharedBackbone(task)
    assert torch.equal(torch.rand(1), expected)
    assert not any(x.is_meta for x in (*model.parameters(), *model.buffers()))


@torch.no_grad()
def test_nothing_is_left_of_a_pass(model: SharedBackbone) -> None:
    image = torch.rand(1, 3, 64, 64)
    expected = model.tasks['depth'](image)
    with pytest.raises(RuntimeError), model.encoded(torch.rand(1, 3, 64, 96)):
        raise RuntimeError('in a head')
    assert torch.equal(model.tasks['depth'](image), expected)


@torch.no_grad()
def test_a_pass_is_of_its_own_model(model: SharedBackbone, tasks: Tasks) -> None:
    """Another model, or a copy, that runs within the pass of one."""
    others = SharedBackbone(dict(depth=tasks['depth'])), copy.deepcopy(model)
    image = torch.rand(1, 3, 64, 64)
    with model.encoded(torch.rand(1, 3, 64, 96)):
        for other in others:
            assert other.tasks['depth'](image).shape[2:] == (64, 64)


def test_threads_get_the_results_of_their_own_images(tasks: Tasks) -> None:
    """200 calls of four threads on one model, each thread with images of its own size."""
    model = SharedBackbone(dict(classes=tasks['classes']), features=True)
    sizes = (32, 32), (32, 48), (48, 32), (16, 64)
    images = [torch.rand(1, 3, *size) for size in sizes]
    with torch.no_grad():
        expected = [model(image) for image in images]

    @torch.no_grad()
    def work(index: int) -> int:
        equal = 0
        for _ in range(50):
            found = model(images[index])
            equal += all(
                found[name].shape == x.shape and torch.equal(found[name], x)
                for name, x in expected[index].items()
            )
        return equal

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(work, range(4))) == [50] * 4


def test_it_does_not_train(model: SharedBackbone) -> None:
    assert not any(parameter.requires_grad for parameter in model.parameters())
    with pytest.raises(RuntimeError, match='train each head with its own config'):
        model(torch.rand(1, 3, 64, 64), [BaseDataElement()], mode='loss')


def test_a_head_of_another_backbone_is_refused(tasks: Tasks, tmp_path: Path) -> None:
    """By the bytes of the weights; the message names the first key and both files."""
    checkpoint = torch.load(tasks['depth']['checkpoint'])
    weight = checkpoint['state_dict']['backbone.blocks.2.mlp.fc1.weight']
    weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(9.0))
    path = str(tmp_path / 'other.pth')
    torch.save(checkpoint, path)
    other = dict(tasks['depth'], checkpoint=path)
    with pytest.raises(CheckpointError, match=r'blocks\.2\.mlp\.fc1\.weight') as error:
        SharedBackbone(dict(classes=tasks['classes'], depth=other))
    assert tasks['classes']['checkpoint'] in str(error.value) and path in str(
        error.value
    )


def test_biases_of_zero_may_be_left_out(tasks: Tasks, tmp_path: Path) -> None:
    """DINOv3 is published with them and without."""
    other = small.save(tmp_path, other=small.classes(qkv_bias='qv'))
    model = SharedBackbone(dict(depth=tasks['depth'], **other))
    assert model.tasks['other'].backbone.blocks is model.backbone.blocks
    checkpoint = torch.load(other['other']['checkpoint'])
    checkpoint['state_dict']['backbone.blocks.1.attn.qkv.v_bias'][0] = 1e-6
    torch.save(checkpoint, other['other']['checkpoint'])
    for pair in (
        dict(depth=tasks['depth'], **other),
        dict(**other, depth=tasks['depth']),
    ):
        with pytest.raises(
            CheckpointError, match=r'first in blocks\.1\.attn\.qkv\.v_bias'
        ):
            SharedBackbone(pair)


def refusal(tmp_path: Path, tasks: Tasks, config: dict) -> str:
    """Why a second task is refused before its weights are read."""
    other = small.save(tmp_path, other=config)
    with pytest.raises(ValueError) as error:
        SharedBackbone(dict(depth=tasks['depth'], **other))
    return str(error.value)


def test_tokens_that_would_differ_are_refused(tasks: Tasks, tmp_path: Path) -> None:
    """Settings without weights, which the comparison of weights does not see."""
    theta = dict(small.ARCH['rope'], theta=50.0)
    assert 'rope is' in refusal(tmp_path, tasks, small.classes(rope=theta))
    windows = small.classes(window_size=2, window_block_indexes=(0,))
    assert 'window_size is 2' in refusal(tmp_path, tasks, windows)
    assert 'mask_padding is True' in refusal(
        tmp_path, tasks, small.classes(mask_padding=True)
    )
    rope = dict(small.ARCH['rope'], coordinates=dict(type='centres', shift=0.5))
    augmented = small.save(tmp_path, other=small.classes(rope=rope))
    SharedBackbone(dict(depth=tasks['depth'], **augmented))  # differs in training only


def test_another_normalisation_is_refused(tasks: Tasks, tmp_path: Path) -> None:
    config = small.classes()
    config['model']['data_preprocessor'].update(mean=[0, 0, 0], std=[255, 255, 255])
    message = refusal(tmp_path, tasks, config)
    assert "'mean': [0.0, 0.0, 0.0]" in message and 'tasks.other' in message


def test_eomt_and_other_backbones_are_refused(tasks: Tasks, tmp_path: Path) -> None:
    config = small.masks()
    config['model'].panoptic_head.pop('pmt')
    assert 'PMT' in refusal(tmp_path, tasks, config)
    other, config = small.save(tmp_path, other=small.classes()), small.classes()
    config['model']['backbone'] = dict(type='RoPESwin', arch='tiny')
    Config(config).dump(other['other']['config'])
    with pytest.raises(ValueError, match=r'tasks\.other: the backbone must be RoPEViT'):
        SharedBackbone(other)


@pytest.mark.parametrize(
    'given, message',
    [
        ({}, 'tasks: give one or more'),
        (
            {'features': dict(config='a.py')},
            "'features' must be a Python name other than",
        ),
        ({'a.b': dict(config='a.py')}, "'a.b' must be a Python name"),
        ({'a': dict(checkpoint='a.pth')}, 'tasks.a has no config'),
        ({'a': dict(config='a.py', weights='a.pth')}, r"tasks.a has \['weights'\]"),
    ],
)
def test_wrong_tasks_are_named(given: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SharedBackbone(given)


def test_weights_that_do_not_fit_are_named(tasks: Tasks) -> None:
    swapped = dict(tasks['depth'], checkpoint=tasks['classes']['checkpoint'])
    with pytest.raises(CheckpointError, match='does not fit its config'):
        SharedBackbone(dict(depth=swapped))


@torch.no_grad()
def test_norms_of_outputs_stay_with_their_tasks() -> None:
    """V-JEPA's: a task has only those of the blocks that it takes."""
    arch = dict(RoPEViT.ARCHS['vjepa2_1_base'], embed_dims=32, depth=3, num_heads=2)
    first, other = (
        RoPEViT(arch, out_indices=indices).eval() for indices in ((0, 2), (1, 2))
    )
    torch.nn.init.normal_(other.norm1.weight)
    other.load_state_dict(first.state_dict(), strict=False)
    image = torch.randn(1, 3, 48, 64)
    expected = other(image)
    check_equal_weights(first, other, ('a.pth', 'b.pth'))
    share_parts(first, other)
    assert other.norm is first.norm and not hasattr(other, 'norm0')
    assert all(torch.equal(x, y) for x, y in zip(other(image), expected, strict=True))
