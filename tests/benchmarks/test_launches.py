"""The count of launches: the counter is exact, and backbones stay within their goals."""

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from rope_dense.backbones.neighbours import neighbour_plan
from rope_dense.backbones.windows import shifted_plan, window_plan
from rope_dense.utils import memo

sys.path.insert(0, str(Path(__file__).parents[2] / 'benchmarks'))

import costs
import launches
from launches import LaunchCounter, count_passes, models

SIZE = (256, 352)
GOALS = {  # launches of forward, of backward, and of the forward at a new size, at most
    'rope-vit/mixed': (220, 450, 225),
    'rope-swin/mixed': (290, 485, 300),
    'rope-swin/bias': (463, 542, 475),
}


def test_a_linear_layer_counts_exactly():
    linear, x = nn.Linear(3, 5), torch.randn(4, 3, requires_grad=True)
    with LaunchCounter() as forward:
        out = linear(x)
    gradient = torch.ones_like(out)
    with LaunchCounter() as backward:
        out.backward(gradient)
    assert forward.operations == {'aten.addmm.default': 1}
    assert backward.operations == {'aten.mm.default': 2, 'aten.sum.dim_IntList': 1}
    assert (forward.total, backward.total) == (1, 3)


def test_views_allocations_and_questions_count_zero():
    x = torch.randn(4, 6)
    with LaunchCounter() as counter:
        x.view(2, 12).T[1:, None].expand(-1, 3, -1).unbind(1)[0].split(1)
        x.detach().unflatten(1, (2, 3)).permute(2, 0, 1)
        torch.ops.aten._unsafe_view(x, [24])  # a view of which the schema does not tell
        x.t_().t_()
        x.contiguous(), x.to(x.dtype)  # nothing to do
        torch.empty(3), torch.empty_like(x), x.new_empty(2)
        torch.promote_types(x.dtype, torch.float64), torch.result_type(x, x)
    assert counter.total == 0


def test_copies_and_writes_into_views_count():
    x = torch.randn(4, 6)
    with LaunchCounter() as counter:
        x.T.contiguous()
        x[1:].add_(1)
        x[:, 0] = x[:, 1]
        torch.zeros(3)
        float(x.sum())  # a copy to the host
    assert counter.operations == {
        'aten.clone.default': 1,
        'aten.add_.Tensor': 1,
        'aten.copy_.default': 1,
        'aten.zeros.default': 1,
        'aten.sum.default': 1,
        'aten._local_scalar_dense.default': 1,
    }


def test_passes_count_after_a_warm_up_and_the_loss_only_its_mean():
    class Doubled(nn.Linear):
        two = None

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            if self.two is None:
                self.two = torch.full((), 2.0)
            return super().forward(x), self.weight * self.two

    forward, backward, new_size = count_passes(Doubled(3, 5), torch.randn(4, 3))
    assert new_size.operations == forward.operations
    assert forward.operations == {'aten.addmm.default': 1, 'aten.mul.Tensor': 1}
    assert backward.operations == {
        'aten.div.Scalar': 2,
        'aten.mul.Tensor': 1,
        'aten.mm.default': 1,
        'aten.sum.dim_IntList': 1,
        'aten.add.Tensor': 1,
    }


def test_the_tables_and_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
):
    monkeypatch.setattr(
        launches, 'models', lambda size: {'conv/none': lambda: nn.Conv2d(3, 4, 2)}
    )
    launches.main(['--size', '8x12', '--out', str(tmp_path / 'launches.csv')])
    assert capsys.readouterr().out.splitlines()[-1] == '| conv | none | 1 | 2 | 1 |'
    with (tmp_path / 'launches.csv').open() as stream:
        (row,) = csv.DictReader(stream)
    names = 'model', 'variant', 'height', 'width', 'forward', 'backward', 'new_size'
    assert [row[name] for name in names] == ['conv', 'none', '8', '12', '1', '2', '1']
    assert row['torch'] == torch.__version__ and row['commit']
    launches.main(['--by-operation', 'conv/none'])
    lines = capsys.readouterr().out.splitlines()[2:]
    assert '| aten.convolution.default | 1 | 0 | 1 |' in lines and len(lines) == 3


class OnMeta(LaunchCounter):
    """Counts operations on a device that is not the host."""

    def __torch_dispatch__(
        self, func: object, *args: object, **kwargs: object
    ) -> object:
        before, out = (
            self.operations.copy(),
            super().__torch_dispatch__(func, *args, **kwargs),
        )
        if not all(x.is_meta for x in tree_leaves(out) if isinstance(x, torch.Tensor)):
            self.operations = before
        return out


@pytest.mark.parametrize('make', [window_plan, shifted_plan, neighbour_plan])
def test_a_plan_of_a_new_size_launches_next_to_nothing(
    make: Callable, monkeypatch: pytest.MonkeyPatch
):
    """A copy; of neighbours one for each axis, and the mask."""
    monkeypatch.setattr(memo, 'RESULTS', {})
    settings = dict(shift=(3, 3)) if make is shifted_plan else {}
    grid = ((37, 41), (7, 7), 1) if make is neighbour_plan else (4, (37, 41), (7, 7))
    with OnMeta() as counter:
        make(*grid, **settings, device=torch.device('meta'))
    copies = counter.operations['aten._to_copy.default']
    assert (copies, counter.total) == ((2, 3) if make is neighbour_plan else (1, 1)), (
        counter.operations
    )


@pytest.mark.slow
@pytest.mark.parametrize('name', GOALS)
def test_launches_of_a_backbone_are_within_the_goal(name: str):
    passes = count_passes(models(SIZE)[name](), torch.randn(1, 3, *SIZE))
    found = [counter.total for counter in passes]
    assert all(x <= goal for x, goal in zip(found, GOALS[name], strict=True)), (
        f'{found} launches, see python benchmarks/launches.py --by-operation {name}'
    )


def test_costs_of_windows():
    """At a small size: a prefix in windows costs launches, as a global one most."""
    plain, none, copy, whole = costs.windows(side=64)
    for passes in ('forward', 'backward'):
        assert plain[passes] < none[passes] < copy[passes] < whole[passes]
    assert none['gflop'] < copy['gflop'] and whole['gflop'] < copy['gflop']
    assert 0 < plain['saved_mib'] < none['saved_mib'] < copy['saved_mib']
