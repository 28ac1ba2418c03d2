"""Memory and operations of training steps: extrapolated ones against measured ones."""

import copy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from mmcv.ops.multi_scale_deform_attn import (
    MultiScaleDeformableAttention,
    multi_scale_deformable_attn_pytorch,
)
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DefaultScope

from helpers.small_configs import make_data, small_config
from rope_dense.cli.flags import enable_amp, enable_checkpointing
from rope_dense.cli.model_checks import random_model
from rope_dense.profiling.memory import (
    SIDE,
    Growth,
    Point,
    StepCost,
    count_operations,
    measure_growth,
    measure_step,
    points_to_measure,
    tensors_of_cuda_kernel,
    terms,
    training_step,
    window_in_pixels,
)
from rope_dense.profiling.speed import profiled


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp('planner') / 'data')


@pytest.fixture(autouse=True)
def own_scope() -> Iterator[None]:
    """Leave no default scope to other tests."""
    with DefaultScope.overwrite_default_scope('mmengine'):
        yield


CASES = {  # config, checkpointing, precision, points
    'segmentor': (
        'upernet_vit_rope_mixed', True, 'bf16', [(2, 512, 512), (2, 320, 640), (5, 304, 352)]
    ),
    'detector': (
        'dino_vitdet_rope_mixed', False, 'fp32', [(2, 512, 512), (1, 480, 608), (3, 256, 416)]
    ),
}  # fmt: skip


NAMED = [
    pytest.param(*case, id=name, marks=pytest.mark.slow if name == 'detector' else ())
    for name, case in CASES.items()
]


@pytest.mark.parametrize('name, checkpointing, precision, points', NAMED)
def test_three_larger_steps(
    name: str,
    checkpointing: bool,
    precision: str,
    points: list[tuple[int, int, int]],
    data: Path,
    tmp_path: Path,
) -> None:
    """Measured at sides of 192 to 480 pixels, extrapolated to more pixels and images."""
    cfg = Config.fromfile(small_config(name, data, tmp_path))
    if checkpointing:
        enable_checkpointing(cfg)
    if precision == 'bf16':
        enable_amp(cfg, precision)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = random_model(cfg)
        cost = measure_step(cfg, model, side=192)
    wrapper = build_optim_wrapper(model.train(), copy.deepcopy(cfg.optim_wrapper))
    for point in points:
        step = training_step(model, wrapper, cfg.default_scope, point)
        with tensors_of_cuda_kernel():
            step()
            measured, operations = profiled(step, on_gpu=False)[1], count_operations(step)
        assert cost.tensors.at(*point) == pytest.approx(measured, rel=0.01)
        assert cost.operations.at(*point) == pytest.approx(operations, rel=0.01)
    weights = sum(tensor.nbytes for tensor in model.state_dict().values())
    moments = sum(2 * p.nbytes for p in model.parameters() if p.requires_grad)
    assert cost.stored == pytest.approx(weights + moments, rel=0.01)


def test_a_phase_that_does_not_grow_is_left_behind() -> None:
    """Small images peak in another phase than large ones, as DINO's decoder may make them do."""
    seen = []

    def measure(point: Point) -> tuple[int, int]:
        seen.append(point)
        growing = 1e6 + 500 * point[0] * point[1] * point[2]
        return max(2e8, growing), growing

    tensors, operations = measure_growth(measure, (1, 1), (0, 0))
    assert tensors.at(2, 800, 1344) == pytest.approx(1e6 + 1000 * 800 * 1344, rel=1e-3)
    assert operations.at(2, 800, 1344) == pytest.approx(1e6 + 1000 * 800 * 1344, rel=1e-3)
    assert min(height for _, height, _ in seen) == SIDE
    assert max(width for _, _, width in seen) == 5 * SIDE

    with pytest.raises(ValueError, match='do not show how a step grows'):
        measure_growth(lambda point: (max(point) ** 5, max(point) ** 5), (1, 1), (0, 0))


def test_growth_is_found_again() -> None:
    coefficients, window = np.array([5e5, 2e3, 30, 7, 1e-4]), (64, 64)
    points = points_to_measure(window, SIDE)
    measured = [coefficients @ terms(point, window) for point in points]
    growth = Growth.from_measurements(points, measured, window)
    for point in [(1, 800, 1344), (16, 512, 512), (3, 64, 2048)]:
        assert growth.at(*point) == pytest.approx(coefficients @ terms(point, window), rel=1e-4)


@pytest.mark.parametrize('window', [(1, 1), (28, 28), (112, 112), (224, 224), (448, 448)])
def test_measured_points_tell_the_terms_apart(window: tuple[int, int]) -> None:
    *points, _ = points_to_measure(window, SIDE)
    rows = np.array([terms(point, window) for point in points])
    padded = window[0] > 1
    assert np.linalg.matrix_rank(rows / rows.max(0)) == (5 if padded else 4)
    assert min(batch for batch, _, _ in points) == 2  # for batch norm
    assert max(max(height, width) for _, height, width in points) <= 2 * 448 <= 4 * SIDE


def test_windows_that_are_too_large_to_measure() -> None:
    with pytest.raises(ValueError, match='windows of 1024 pixels'):
        points_to_measure((1024, 1024), SIDE)


def test_padding_of_windows_is_a_term() -> None:
    assert terms((2, 100, 100), (64, 32)) == [1, 2, 20000, 2 * 128 * 128, 2e8]
    assert terms((2, 100, 100), (1, 1))[2:4] == [20000, 20000]


def test_what_fits() -> None:
    growth = Growth(np.array([1000, 10, 1, 0, 0]), (1, 1))
    cost = StepCost(stored=500, tensors=growth, operations=growth)
    assert cost.memory(2, 32, 64) == 500 + 1000 + 2 * (10 + 32 * 64)
    batch = cost.largest_batch(50_000, 32, 64)
    assert cost.memory(batch, 32, 64) <= 50_000 < cost.memory(batch + 1, 32, 64)
    height, width = cost.largest_size(50_000, 1, 300, 600)
    assert (height, width) == (128, 256)
    assert cost.memory(1, 128, 256) <= 50_000 < cost.memory(1, 160, 320)
    assert cost.largest_batch(3000, 32, 64) == 0
    assert cost.largest_size(2000, 1, 300, 600) is None


def test_windows_in_pixels(data: Path, tmp_path: Path) -> None:
    cfg = Config.fromfile(small_config('dino_vitdet_rope_mixed', data, tmp_path))
    model = random_model(cfg)
    assert window_in_pixels(model) == (32, 32)  # 2 x 2 tokens of 16 pixels
    model.backbone.set_window_size((3, 5))
    assert window_in_pixels(model) == (48, 80)
    model.backbone.set_window_size('auto')
    assert window_in_pixels(model) == (1, 1)


def test_the_stand_in_of_the_kernel_makes_its_tensors() -> None:
    """The three inputs are saved, and the result has the shape of the real one."""
    attention = MultiScaleDeformableAttention(32, num_heads=4, num_levels=2, batch_first=True)
    shapes = torch.tensor([[6, 8], [3, 4]])
    arguments = dict(
        value=torch.randn(2, 60, 32, requires_grad=True),
        reference_points=torch.rand(2, 60, 2, 2),
        spatial_shapes=shapes,
        level_start_index=torch.tensor([0, 48]),
    )
    query = torch.randn(2, 60, 32)
    expected = attention(query, **arguments)
    saved: list[tuple[int, ...]] = []
    with tensors_of_cuda_kernel():
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: saved.append(tuple(tensor.shape)) or tensor, lambda tensor: tensor
        ):
            actual = attention(query, **arguments)
        actual.sum().backward()
    assert actual.shape == expected.shape
    kernel = {(2, 60, 4, 8), (2, 60, 4, 2, 4, 2), (2, 60, 4, 2, 4)}
    assert kernel <= set(saved) and arguments['value'].grad.shape == (2, 60, 32)
    from mmcv.ops import multi_scale_deform_attn as module

    assert module.multi_scale_deformable_attn_pytorch is multi_scale_deformable_attn_pytorch
