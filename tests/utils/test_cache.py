"""Caches: what they hold, for how long, and when nothing is cached."""

import pickle
import threading
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.nn.utils import parametrize

from rope_dense.backbones import neighbours, windows
from rope_dense.backbones.neighbours import neighbour_plan
from rope_dense.backbones.windows import window_plan
from rope_dense.rope import (
    AxialRoPE,
    GridRoPE,
    MixedRoPE,
    RopeScaling,
    Rotary,
    RotaryEmbedding,
)
from rope_dense.rope.frequencies import linear_angles
from rope_dense.utils.cache import Budget, Cache
from rope_dense.utils.tracing import is_tracing

CPU = torch.device('cpu')


def rotary_of(
    rope: RotaryEmbedding, height: int, width: int, dtype: torch.dtype = torch.float32
) -> Rotary:
    return rope(torch.empty(1, height * width, 1, dtype=dtype), (height, width))


def test_the_last_results_are_cached_by_key_and_device():
    cache: Cache[Tensor] = Cache(budget=Budget(3 * 400))
    made = []

    def get(key: int, device: torch.device = CPU) -> Tensor:
        def make() -> Tensor:
            made.append(key)
            return torch.full((100,), float(key), device=device)

        return cache.get(key, device, make)

    first = get(0)
    assert get(0) is first and made == [0]
    get(1), get(2)
    assert get(0) is first and made == [0, 1, 2]
    get(3)  # one too many: the oldest is dropped
    assert len(cache.values) == 3 and get(0) is not first
    assert get(0, torch.device('meta')).is_meta and not get(0).is_meta


def test_a_value_larger_than_the_cache_is_not_cached():
    cache: Cache[Tensor] = Cache(budget=Budget(100))
    small = cache.get('small', CPU, lambda: torch.ones(25))
    assert cache.get('large', CPU, lambda: torch.ones(26)).shape == (26,)
    assert cache.get('small', CPU, lambda: torch.zeros(25)) is small
    assert list(cache.values) == [('small', CPU)] and cache.budget.num_bytes == 100


def test_caches_share_a_budget():
    budget = Budget(100)
    first: Cache[Tensor] = Cache(budget=budget)
    second: Cache[Tensor] = Cache(budget=budget)
    first.get('a', CPU, lambda: torch.ones(15))
    second.get('b', CPU, lambda: torch.ones(10))
    assert first.values and budget.num_bytes == 100
    second.get('c', CPU, lambda: torch.ones(1))
    assert not first.values and len(second.values) == 2 and budget.num_bytes == 44
    assert len(budget.sizes) == 2


def held_bytes(cache: Cache) -> int:
    """The memory of all tensors that a cache keeps alive, shared memory once."""
    seen, storages = set(), {}

    def visit(value: object) -> None:
        if isinstance(value, Tensor):
            storages[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        elif isinstance(value, (tuple, list, dict)):
            for part in value.values() if isinstance(value, dict) else value:
                visit(part)
        elif hasattr(value, '__dict__') and id(value) not in seen:
            seen.add(id(value))
            visit(vars(value))

    visit(cache.values)
    return sum(storages.values())


@pytest.mark.parametrize('name', ['angles', 'positions', 'windows', 'neighbours'])
def test_500_grids_stay_within_the_bound(name: str, monkeypatch: pytest.MonkeyPatch):
    """Grids of a training at many scales; a bound that about one in ten of them fits in."""
    axial, mixed = AxialRoPE(8, 2), MixedRoPE(8, 2)
    where, attribute, call = {
        'angles': (GridRoPE, 'ANGLE_CACHE', lambda *grid: rotary_of(axial, *grid).cos_sin),
        'positions': (GridRoPE, 'POSITION_CACHE', lambda *grid: rotary_of(mixed, *grid)),
        'windows': (
            windows,
            'PLANS',
            lambda *grid: window_plan(1, grid, (4, 4), shift=(2, 2), device=CPU),
        ),
        'neighbours': (
            neighbours,
            'PLANS',
            lambda *grid: neighbour_plan(grid, (3, 3), 1, device=CPU),
        ),
    }[name]
    cache = Cache(getattr(where, attribute).measure, Budget(2**20))
    monkeypatch.setattr(where, attribute, cache)
    held = []
    for height in range(8, 28):
        for width in range(8, 33):
            call(height, width)
            held.append(held_bytes(cache))
    assert len(held) == 500 and max(held) <= 2**20
    assert cache.budget.num_bytes > 0.9 * 2**20 and 4 < len(cache.values) < 450
    assert held_bytes(cache) <= cache.budget.num_bytes


def test_what_is_made_in_inference_mode_can_train():
    cache: Cache[Tensor] = Cache()
    with torch.inference_mode():
        value = cache.get('ones', CPU, lambda: torch.ones(3))
    assert not value.is_inference()
    x = torch.ones(3, requires_grad=True)
    (x * cache.get('ones', CPU, lambda: torch.ones(3))).sum().backward()
    assert torch.equal(x.grad, value)


def test_what_is_cached_has_no_graph():
    weight = torch.ones(3, requires_grad=True)
    assert not Cache().get('weight', CPU, lambda: weight * 2).requires_grad


def test_nothing_is_cached_while_tracing_or_with_fake_tensors():
    cache: Cache[Tensor] = Cache()
    seen = []

    def function(x: Tensor) -> Tensor:
        seen.append(is_tracing())
        return x * cache.get('ones', CPU, lambda: torch.ones(2))

    x = torch.ones(2)
    torch.func.vmap(function)(torch.ones(3, 2))
    torch.func.grad(lambda x: function(x).sum())(x)
    torch.func.jvp(function, (x,), (x,))
    torch.jit.trace(function, x, check_trace=False)
    with forward_ad.dual_level():
        function(forward_ad.make_dual(x, x))
    assert len(seen) >= 5 and all(seen) and not cache.values
    with FakeTensorMode():
        function(torch.ones(2))
    assert not cache.values
    torch.compile(function, backend='eager', fullgraph=True)(x)
    assert not cache.values
    function(x)
    assert len(cache.values) == 1 and not is_tracing()


def test_threads_share_a_cache():
    cache: Cache[Tensor] = Cache(budget=Budget(32))
    errors = []

    def work(start: int) -> None:
        try:
            for step in range(2000):
                key = (start + step) % 9
                assert cache.get(key, CPU, lambda key=key: torch.full((1,), key)).item() == key
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(cache.values) == 4 and cache.budget.num_bytes == 32


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

    def frequencies(self, device: torch.device) -> Tensor:
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


def test_positions_are_cached_by_all_that_they_depend_on(monkeypatch: pytest.MonkeyPatch):
    """For learned frequencies, which are not cached themselves."""
    cache = Cache()
    monkeypatch.setattr(GridRoPE, 'POSITION_CACHE', cache)
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
            positions = rope.coordinates.positions(*size, grid=of_map, device=CPU, dtype=dtype)
            assert torch.equal(angles, linear_angles(positions, rope.freqs.to(dtype)))
        assert len(cache.values) == 14  # two grids with one size of windows, but for 'map'


def test_augmentation_does_not_change_what_is_cached(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(GridRoPE, 'POSITION_CACHE', Cache())
    rope = MixedRoPE(8, 2, coordinates=dict(type='centres', shift=0.5, jitter=2.0, rescale=2.0))
    before = rotary_of(rope.eval(), 2, 3).angles
    assert not torch.equal(rotary_of(rope.train(), 2, 3).angles, before)
    assert torch.equal(rotary_of(rope.eval(), 2, 3).angles, before)


class Stretched(AxialRoPE):
    """Frequencies that depend on an attribute of its own, which no key names."""

    factor = 1.0

    def frequencies(self, device: torch.device) -> Tensor:
        return self.factor * super().frequencies(device)


class Keyed(Stretched):
    def cache_key(self) -> tuple:
        return AxialRoPE.cache_key(self), self.factor


@pytest.mark.parametrize('cls', [Stretched, Keyed, type('Child', (Keyed,), {})])
def test_a_key_is_not_inherited(cls: type[AxialRoPE]):
    rope = cls(8, 2)
    first = rotary_of(rope, 3, 4)
    assert (rotary_of(rope, 3, 4) is first) == (cls is Keyed)
    rope.factor = 2.0
    torch.testing.assert_close(rotary_of(rope, 3, 4).angles, 2 * first.angles)
    assert rotary_of(AxialRoPE(8, 2), 3, 4) is not first


def test_fake_tensors_are_not_cached():
    rope = AxialRoPE(8, 2, theta=77.0)
    with FakeTensorMode():
        rotary_of(rope, 2, 3)
    assert type(rotary_of(rope, 2, 3).angles) is Tensor
