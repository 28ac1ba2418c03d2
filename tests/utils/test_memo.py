"""Remembered results: which, for how long, and when nothing is remembered."""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import fields, replace
from functools import partial
from threading import Event, Thread

import pytest
import torch
from cachetools import LRUCache
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.nn.utils import parametrize

from rope_dense.backbones.neighbours import neighbour_plan
from rope_dense.backbones.windows import WindowPlan, shifted_plan
from rope_dense.rope import (
    AxialRoPE,
    GridRoPE,
    MixedRoPE,
    RopeScaling,
    Rotary,
    RotaryEmbedding,
)
from rope_dense.rope.embeddings import linear_angles
from rope_dense.utils import memo

CPU = torch.device('cpu')


def rotary_of(
    rope: RotaryEmbedding, height: int, width: int, dtype: torch.dtype = torch.float32
) -> Rotary:
    return rope(torch.empty(1, height * width, 1, dtype=dtype), (height, width))


@pytest.fixture(autouse=True)
def results(monkeypatch: pytest.MonkeyPatch) -> LRUCache:
    """Nothing is remembered from other tests."""
    results = LRUCache(memo.MAX_BYTES, getsizeof=memo.count_bytes)
    monkeypatch.setattr(memo, 'RESULTS', results)
    return results


@memo.memo
def filled(value: int, number: int = 100, *, device: torch.device) -> Tensor:
    return torch.full((number,), float(value), device=device)


def test_results_are_remembered_by_arguments_and_device(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(memo, 'RESULTS', LRUCache(3 * 400, getsizeof=memo.count_bytes))
    first = filled(0, device=CPU)
    assert filled(0, device=CPU) is first
    filled(1, device=CPU), filled(2, device=CPU)
    assert filled(0, device=CPU) is first
    filled(3, device=CPU)  # one too many: the one that was used longest ago is dropped
    assert len(memo.RESULTS) == 3 and filled(0, device=CPU) is first
    assert (
        filled(0, device=torch.device('meta')).is_meta
        and not filled(0, device=CPU).is_meta
    )
    large = filled(0, memo.MAX_BYTES // 4 + 1, device=CPU)
    assert large is not filled(0, memo.MAX_BYTES // 4 + 1, device=CPU)


def held_bytes(values: object) -> int:
    """The memory of all tensors that a cache keeps alive, shared memory once."""
    seen, storages = set(), {}

    def visit(value: object) -> None:
        if isinstance(value, Tensor):
            storages[value.untyped_storage().data_ptr()] = (
                value.untyped_storage().nbytes()
            )
        elif isinstance(value, (tuple, list)):
            for part in value:
                visit(part)
        elif hasattr(value, '__dict__') and id(value) not in seen:
            seen.add(id(value))
            visit(list(vars(value).values()))

    visit(values)
    return sum(storages.values())


@pytest.mark.parametrize('name', ['angles', 'positions', 'windows', 'neighbours'])
def test_500_grids_stay_within_the_bound(name: str, monkeypatch: pytest.MonkeyPatch):
    """Grids of a training at many scales; a bound that about one in ten of them fits in."""
    axial, mixed = AxialRoPE(8, 2), MixedRoPE(8, 2)
    call = {
        'angles': lambda *grid: rotary_of(axial, *grid).cos_sin,
        'positions': lambda *grid: rotary_of(mixed, *grid),
        'windows': lambda *grid: shifted_plan(
            1, grid, (4, 4), shift=(2, 2), device=CPU
        ),
        'neighbours': lambda *grid: neighbour_plan(grid, (3, 3), 1, device=CPU),
    }[name]
    cache = LRUCache(2**20, getsizeof=memo.count_bytes)
    monkeypatch.setattr(memo, 'RESULTS', cache)
    held = []
    for height in range(8, 28):
        for width in range(8, 33):
            call(height, width)
            held.append(held_bytes(list(cache.values())))
    assert len(held) == 500 and max(held) <= 2**20
    assert cache.currsize > 0.9 * 2**20 and 4 < len(cache) < 500


def test_what_is_made_in_inference_mode_can_train():
    with torch.inference_mode():
        value = filled(2, 3, device=CPU)
    assert not value.is_inference()
    x = torch.ones(3, requires_grad=True)
    (x * filled(2, 3, device=CPU)).sum().backward()
    assert torch.equal(x.grad, value)


def test_nothing_is_remembered_while_tracing_or_with_fake_tensors(results: LRUCache):
    seen = []

    def function(x: Tensor) -> Tensor:
        seen.append(memo.is_tracing())
        return x * filled(1, 2, device=CPU)

    x = torch.ones(2)
    torch.func.vmap(function)(torch.ones(3, 2))
    torch.func.grad(lambda x: function(x).sum())(x)
    torch.func.jvp(function, (x,), (x,))
    torch.jit.trace(function, x, check_trace=False)
    with forward_ad.dual_level():
        function(forward_ad.make_dual(x, x))
    assert len(seen) >= 5 and all(seen) and not results
    with FakeTensorMode():
        function(torch.ones(2))
    assert not results
    torch.compile(function, backend='eager', fullgraph=True)(x)
    assert not results
    function(x)
    assert len(results) == 1 and not memo.is_tracing()


def run_threads(*works: Callable[[], None]) -> None:
    """Run functions at once; raises the first error of any."""
    with ThreadPoolExecutor(len(works)) as executor:
        for future in [executor.submit(work) for work in works]:
            future.result()


def test_threads_share_results(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memo, 'RESULTS', LRUCache(32, getsizeof=memo.count_bytes))

    def work(start: int) -> None:
        for step in range(1000):
            value = (start + step) % 9
            assert filled(value, 1, device=CPU).item() == value

    run_threads(*(partial(work, start) for start in range(4)))
    assert len(memo.RESULTS) == 8 and memo.RESULTS.currsize == 32


def test_a_scaling_that_changes_meanwhile_leaves_no_wrong_angles():
    """Key and value are of one reading of the scaling."""
    rope, other = AxialRoPE(8, 2), AxialRoPE(8, 2)
    scalings = None, RopeScaling((4, 4), 'linear', factor=2.0)
    sizes = [(height, width) for height in range(2, 12) for width in range(2, 12)]
    stop = Event()

    def change() -> None:
        while not stop.is_set():
            for scaling in scalings:
                rope.set_scaling(scaling)

    def compute() -> None:
        for _ in range(3):
            for size in sizes:
                rotary_of(rope, *size)

    changing = Thread(target=change)
    changing.start()
    try:
        run_threads(*[compute] * 3)
    finally:
        stop.set()
        changing.join()
    for scaling in scalings:
        rope.set_scaling(scaling)
        for size in sizes:
            freqs = (
                other.frequencies(CPU)
                if scaling is None
                else other.frequencies(CPU) / 2
            )
            positions = other.coordinates.positions(*size, device=CPU)
            assert torch.equal(
                rotary_of(rope, *size).angles, linear_angles(positions, freqs)
            )


def test_each_cuda_stream_has_its_own_results(monkeypatch: pytest.MonkeyPatch):
    """What one stream computes may not be there yet for another. Nothing here needs a GPU."""

    @memo.memo
    def made(*, device: torch.device) -> Tensor:
        return torch.zeros(1)

    empty, streams = torch.empty, iter([7, 8, 7, 8])
    monkeypatch.setattr(torch, 'empty', lambda size, device: empty(size))
    monkeypatch.setattr(torch.cuda, 'is_initialized', lambda: True)
    monkeypatch.setattr(memo, 'raw_stream', lambda index: next(streams))
    monkeypatch.setattr(torch.cuda, 'is_current_stream_capturing', lambda: False)
    found = [made(device=torch.device('cuda', 0)) for _ in range(4)]
    assert found[0] is found[2] and found[1] is found[3] and found[0] is not found[1]


# ---------------------------------------------------------------- plans


def test_what_is_made_on_the_host_is_sent_in_one_piece():
    plan = shifted_plan(2, (7, 9), (3, 4), shift=(1, 2), device=CPU)
    sent = memo.send_to_device(replace(plan, mask=plan.mask.transpose(-1, -2)), CPU)
    for field in fields(plan):
        value, found = getattr(plan, field.name), getattr(sent, field.name)
        if isinstance(value, Tensor):
            value = value.transpose(-1, -2) if field.name == 'mask' else value
            assert found.dtype == value.dtype and torch.equal(found, value), field.name
        else:
            assert found == value
    tensors = [x for x in vars(sent).values() if isinstance(x, Tensor)]
    assert (
        len({x.untyped_storage().data_ptr() for x in tensors}) == 1
        and len(tensors) == 5
    )
    empty = replace(
        plan, gather_index=plan.gather_index[:0], padding_index=None, mask=None
    )
    assert memo.send_to_device(empty, torch.device('meta')).gather_index.shape == (0,)


def test_on_host_is_the_device_of_the_host_unless_a_graph_is_captured(
    monkeypatch: pytest.MonkeyPatch,
):
    devices = []

    @memo.memo
    @memo.on_host
    def made(number: int, *, device: torch.device) -> WindowPlan:
        devices.append(device.type)
        index = torch.zeros(number, device=device)
        return WindowPlan(
            (1, 1), 1, 0, (1, 1), 1, True, gather_index=index, inverse_index=index
        )

    assert made(1, device=torch.device('meta')).gather_index.is_meta
    made(2, device=CPU)
    empty, cuda = torch.empty, torch.device('cuda', 0)
    monkeypatch.setattr(torch, 'empty', lambda size, device: empty(size))
    monkeypatch.setattr(torch, 'zeros', lambda size, device: empty(size))
    monkeypatch.setattr(memo, 'send_to_device', lambda value, device: value)
    monkeypatch.setattr(torch.cuda, 'is_initialized', lambda: True)
    monkeypatch.setattr(memo, 'raw_stream', lambda index: 7)
    for captures in (False, True):
        monkeypatch.setattr(
            torch.cuda, 'is_current_stream_capturing', lambda now=captures: now
        )
        made(3 + captures, device=cuda)
    assert devices == ['cpu', 'cpu', 'cpu', 'cuda']
    assert len(memo.RESULTS) == 3  # nothing is added while a graph is captured


# ---------------------------------------------------------------- angles


def test_fixed_angles_are_made_once():
    ropes = [AxialRoPE(8, 2), AxialRoPE(8, 2), deepcopy(AxialRoPE(8, 2)).eval()]
    with torch.inference_mode():
        first = rotary_of(ropes[0], 3, 4)
    assert all(rotary_of(rope, 3, 4) is first for rope in ropes)
    assert all(rotary_of(rope, 3, 4).cos_sin is first.cos_sin for rope in ropes)
    assert rotary_of(pickle.loads(pickle.dumps(ropes[0])), 3, 4) is first
    assert not first.angles.is_inference() and not first.cos_sin.is_inference()
    assert ropes[0](torch.empty(1, 99, 16), (9, 11), (3, 4)) is first
    assert rotary_of(ropes[0], 4, 3) is not first
    assert rotary_of(ropes[0], 3, 4, torch.float64).angles.dtype == torch.float64


@pytest.mark.parametrize(
    'name, value',
    [
        ('theta', 5.0),
        ('series', 'periods'),
        ('axes', 'yx'),
        ('k_rope', 2),
        ('shared', False),
        ('pair_layout', 'half'),
        ('coordinates', AxialRoPE(8, 2, coordinates=dict(offset=1.0)).coordinates),
        ('scaling', RopeScaling((1, 1), 'linear', factor=2.0)),
    ],
)
def test_a_changed_attribute_changes_the_angles(name: str, value: object):
    rope = AxialRoPE(8, 2)
    first = rotary_of(rope, 3, 4)
    setattr(rope, name, value)
    changed = rotary_of(rope, 3, 4)
    if name == 'pair_layout':
        assert (first.pair_layout, changed.pair_layout) == ('interleaved', 'half')
    else:
        assert not torch.equal(changed.angles, first.angles)
    assert rotary_of(AxialRoPE(8, 2), 3, 4) is first


class Diagonal(GridRoPE):
    """Frequencies of a tensor, as a subclass may have it."""

    def __init__(self, place: str) -> None:
        super().__init__(head_dim=8, num_heads=2, theta=10.0)
        weight = nn.Parameter(torch.ones(2, 2, 4))
        if place == 'submodule':
            self.part = nn.ParameterList([weight])
        elif place == 'buffer':
            self.register_buffer('weight', weight.detach())
        elif place == 'attribute':  # as FSDP leaves parameters during forward
            self.weight = weight * 1
        else:
            self.weight = weight

    def frequency_source(self) -> Tensor:
        return self.part[0] if hasattr(self, 'part') else self.weight


@pytest.mark.parametrize('place', ['parameter', 'buffer', 'submodule', 'attribute'])
def test_angles_of_tensors_are_not_cached(place: str):
    rope = Diagonal(place)
    first, second = rotary_of(rope, 2, 3), rotary_of(rope, 2, 3)
    assert first is not second
    assert first.angles.requires_grad == (place != 'buffer')


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


@pytest.mark.parametrize('rope', [MixedRoPE(8, 2), AxialRoPE(8, 2, learned=True)])
def test_a_parametrized_frequency_learns(rope: GridRoPE):
    before = rotary_of(rope, 2, 3).angles
    parametrize.register_parametrization(rope, 'freqs', Doubled())
    after = rotary_of(rope, 2, 3).angles
    torch.testing.assert_close(after, 2 * before)
    after.sum().backward()
    assert rope.parametrizations.freqs.original.grad.any()


def test_augmented_angles_are_cached_in_evaluation_only():
    rope = AxialRoPE(8, 2, coordinates=dict(shift=0.5))
    assert rotary_of(rope, 2, 3) is not rotary_of(rope, 2, 3)
    rope.eval()
    assert rotary_of(rope, 2, 3) is rotary_of(rope, 2, 3)


def test_positions_are_cached_by_all_that_they_depend_on(results: LRUCache):
    """For learned frequencies, which are not cached themselves."""
    cases = [
        (settings, size, grid, dtype)
        for settings in (dict(), dict(offset=1.0), dict(type='centres', windows='map'))
        for size, grid in (((2, 3), (2, 3)), ((3, 2), (3, 2)), ((2, 3), (4, 6)))
        for dtype in (torch.float32, torch.float64)
    ]
    for _ in range(2):
        for settings, size, grid, dtype in cases:
            rope = MixedRoPE(8, 2, coordinates=settings)
            x = torch.empty(1, grid[0] * grid[1], 16, dtype=dtype)
            angles = rope(x, grid, size).angles
            of_map = grid if rope.coordinates.windows == 'map' else size
            positions = rope.coordinates.positions(
                *size, grid=of_map, device=CPU, dtype=dtype
            )
            assert torch.equal(angles, linear_angles(positions, rope.freqs.to(dtype)))
        assert len(results) == 14  # two grids with one size of windows, but for 'map'


def test_augmentation_does_not_change_what_is_cached():
    rope = MixedRoPE(
        8, 2, coordinates=dict(type='centres', shift=0.5, jitter=2.0, rescale=2.0)
    )
    before = rotary_of(rope.eval(), 2, 3).angles
    assert not torch.equal(rotary_of(rope.train(), 2, 3).angles, before)
    assert torch.equal(rotary_of(rope.eval(), 2, 3).angles, before)


class Stretched(AxialRoPE):
    """Frequencies that depend on an attribute of its own, computed as a tensor."""

    factor = 1.0

    def frequency_source(self) -> Tensor:
        return self.factor * super().frequency_source().tensor(CPU)


def test_a_subclass_has_its_own_frequencies():
    rope = Stretched(8, 2)
    first = rotary_of(rope, 3, 4)
    rope.factor = 2.0
    torch.testing.assert_close(rotary_of(rope, 3, 4).angles, 2 * first.angles)
    assert torch.equal(rotary_of(AxialRoPE(8, 2), 3, 4).angles, first.angles)


def test_fake_tensors_are_not_cached():
    rope = AxialRoPE(8, 2, theta=77.0)
    with FakeTensorMode():
        rotary_of(rope, 2, 3)
    assert type(rotary_of(rope, 2, 3).angles) is Tensor
