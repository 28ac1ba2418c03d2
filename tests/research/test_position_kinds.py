"""Attention with ALiBi, LookHere, FIRE and PaPE against sums written out pair by pair."""

import copy
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kinds
import pytest
import torch
from kinds.distance_bias import head_views
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from helpers.position_scores import Term, attend_pairwise
from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.backbones.attention import Attention, Place
from rope_dense.backbones.from_config import build_attention
from rope_dense.backbones.windows import window_plan
from rope_dense.export.exporter import trace
from rope_dense.export.graphs import graph_of
from rope_dense.rope import MixedRoPE
from rope_dense.utils import memo

ROOT = Path(__file__).resolve().parents[2]
C, HEADS, PREFIX = 24, 3, 2
CPU = torch.device('cpu')
PLACE = Place((4, 4), index=1, depth=3)
SEES = {  # columns and rows from key to query
    'all': lambda dx, dy: True,
    'up-left': lambda dx, dy: dy >= 0 and dx >= 0,
    'up-right': lambda dx, dy: dy >= 0 and dx <= 0,
    'down-left': lambda dx, dy: dy <= 0 and dx >= 0,
    'down-right': lambda dx, dy: dy <= 0 and dx <= 0,
    'up': lambda dx, dy: dy >= 0 and abs(dx) <= abs(dy),
    'down': lambda dx, dy: dy <= 0 and abs(dx) <= abs(dy),
    'left': lambda dx, dy: dx >= 0 and abs(dy) <= abs(dx),
    'right': lambda dx, dy: dx <= 0 and abs(dy) <= abs(dx),
}


def alibi(attn: Attention, size: tuple[int, int]) -> Term:
    slopes = (2**-4, 2**-8, 2**-2)
    return lambda head, token, dx, dy: -slopes[head] * math.hypot(dx, dy)


def lookhere(attn: Attention, size: tuple[int, int]) -> Term:
    """The second of three blocks: l = 1, and the views that three heads have there."""
    heads = (('up-right', 1 / 2), ('down', 1 / 2), ('all', 1 / 16))

    def term(head: int, token: Tensor, dx: int, dy: int) -> float:
        view, slope = heads[head]
        return -2 * slope * math.hypot(dx, dy) if SEES[view](dx, dy) else -math.inf

    return term


def fire(attn: Any, size: tuple[int, int]) -> Term:
    """With the diagonal of the grid or 1.25 times that of 4 x 4 tokens, whichever is longer."""
    factor = attn.factor.item()
    longest = max(math.hypot(size[0] - 1, size[1] - 1), 1.25 * math.hypot(3, 3))
    span = math.log(factor * longest + 1) + 1e-6

    def term(head: int, token: Tensor, dx: int, dy: int) -> float:
        place = math.log(factor * math.hypot(dx, dy) + 1) / span
        hidden = (attn.hidden_weight[:, 0] * place + attn.hidden_bias).clamp(min=0)
        return (attn.weight[head] @ hidden + attn.out_bias[head]).item()

    return term


def fire_of_grid(attn: Any, size: tuple[int, int]) -> Term:
    """The sum of rows and columns, from 0 to 1 in every grid."""
    factor = attn.factor.item()
    span = math.log(factor * max(size[0] + size[1] - 2, 1) + 1) + 1e-6

    def term(head: int, token: Tensor, dx: int, dy: int) -> float:
        place = math.log(factor * (abs(dx) + abs(dy)) + 1) / span
        hidden = (attn.hidden_weight[:, 0] * place + attn.hidden_bias).clamp(min=0)
        return (attn.weight[head] @ hidden + attn.out_bias[head]).item()

    return term


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def pape(attn: Any, size: tuple[int, int]) -> Term:
    def term(head: int, token: Tensor, dx: int, dy: int) -> float:
        total = 0.0
        quadratic, linear = (
            attn.quadratic_weight[head] @ token,
            attn.linear_weight[head] @ token,
        )
        for (x, y), a, b in zip(
            attn.directions[head].tolist(),
            quadratic.tolist(),
            linear.tolist(),
            strict=True,
        ):
            along = x * dx + y * dy
            total += b * along - softplus(a) * along**2
        return total

    return term


def isotropic_pape(attn: Any, size: tuple[int, int]) -> Term:
    def term(head: int, token: Tensor, dx: int, dy: int) -> float:
        a = softplus((attn.weight[head] @ token).item())
        return -a * attn.rates[head].item() * (dx**2 + dy**2)

    return term


def over_the_grid(term: Any) -> Any:
    """Of distances as in 4 x 4 tokens, whatever the size."""

    def terms(attn: Attention, size: tuple[int, int]) -> Term:
        of_patches = term(attn, size)
        return lambda head, token, dx, dy: of_patches(
            head, token, dx * 4 / size[1], dy * 4 / size[0]
        )

    return terms


KINDS: dict[str, tuple[dict, Any]] = {
    'ALiBi2D': (dict(type='ALiBi2D'), alibi),
    'LookHere': (dict(type='LookHere'), lookhere),
    'FIRE': (dict(type='FIRE', hidden_dims=5), fire),
    'FIRE, grid': (
        dict(type='FIRE', hidden_dims=5, distance='manhattan', normalizer='grid'),
        fire_of_grid,
    ),
    'PaPE': (dict(type='PaPE', num_parabolas=4), pape),
    'IsotropicPaPE': (dict(type='IsotropicPaPE'), isotropic_pape),
    'ALiBi2D, grid': (dict(type='ALiBi2D', unit='grid'), over_the_grid(alibi)),
    'PaPE, grid': (
        dict(type='PaPE', num_parabolas=4, unit='grid'),
        over_the_grid(pape),
    ),
}


def attention(name: str, with_rope: bool = False, prefix: int = PREFIX) -> Attention:
    torch.manual_seed(0)
    rope = MixedRoPE(C // HEADS, HEADS) if with_rope else None
    layers = dict(embed_dims=C, num_heads=HEADS, rope=rope, num_prefix_tokens=prefix)
    attn = build_attention(KINDS[name][0], PLACE, **layers).double()
    with torch.no_grad():
        for path, parameter in attn.named_parameters():
            if path == 'length_factor':
                parameter.fill_(-1.25)
            elif path in ('quadratic_weight', 'linear_weight', 'weight'):
                parameter.mul_(2)
    return attn


@pytest.mark.parametrize('with_rope', [False, True])
@pytest.mark.parametrize('name', KINDS)
@torch.no_grad()
def test_scores_of_a_grid(name: str, with_rope: bool) -> None:
    attn, grid = attention(name, with_rope), (3, 5)
    x = torch.randn(2, PREFIX + 15, C, dtype=torch.float64)
    out = attn(x, grid)
    expected = attend_pairwise(
        attn, x, grid, KINDS[name][1](attn, grid), 'PaPE' in name
    )
    torch.testing.assert_close(
        out, expected, atol=1e-7, rtol=1e-6
    )  # distances are float32
    plain = attend_pairwise(attn, x, grid, lambda *pair: 0.0, False)
    assert (out - plain).abs().max() > 1e-3


@pytest.mark.parametrize('name', KINDS)
@torch.no_grad()
def test_scores_in_padded_windows(name: str) -> None:
    """Each window is a grid of its own, in which padding has its place."""
    attn, grid, window = attention(name, with_rope=True), (3, 5), (2, 3)
    plan = window_plan(1, grid, window, num_copies=PREFIX, device=CPU)
    x = plan.copy_prefix(torch.randn(1, PREFIX + 15, C, dtype=torch.float64))
    windows = plan.partition(x)
    expected = attend_pairwise(
        attn, windows, window, KINDS[name][1](attn, window), 'PaPE' in name
    )
    torch.testing.assert_close(
        attn(x, grid, plan), plan.unpartition(expected), atol=1e-7, rtol=1e-6
    )


def test_slopes_of_alibi() -> None:
    powers = {1: [8], 3: [4, 8, 2], 6: [2, 4, 6, 8, 1, 3], 8: [1, 2, 3, 4, 5, 6, 7, 8]}
    powers[12] = [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]
    for heads, expected in powers.items():
        attn = build_attention(
            dict(type='ALiBi2D'), PLACE, embed_dims=heads, num_heads=heads
        )
        bias = attn.bias(torch.empty(1, heads, 2, 1), (1, 2))
        torch.testing.assert_close(
            (-bias[:, 0, 1]).log2(), -torch.tensor(expected).float()
        )


@pytest.mark.parametrize('name', ['ALiBi2D', 'LookHere', 'FIRE'])
@torch.no_grad()
def test_nothing_of_all_pairs_of_tokens_is_remembered(name: str) -> None:
    """Else few grids fill the memory that all plans and angles share."""
    memo.RESULTS.clear()
    attention(name)(torch.randn(1, PREFIX + 24 * 32, C, dtype=torch.float64), (24, 32))
    assert memo.RESULTS.currsize < 24 * 32 * 24 * 32 / 8


def test_a_config_imports_them(tmp_path: Path) -> None:
    """As a user's does: in a process that has not imported them."""
    config = tmp_path / 'config.py'
    config.write_text(
        "custom_imports = dict(imports=['rope_dense', 'kinds'])\n"
        "backbone = dict(type='RoPEViT', arch=dict(embed_dims=24, depth=1, num_heads=3),\n"
        "                rope=dict(type='RasterRoPE'), attention=dict(type='FIRE'))\n"
    )
    code = (
        'import sys; from mmengine import Config, MODELS; '
        'print(MODELS.build(Config.fromfile(sys.argv[1]).backbone).blocks[0].attn)'
    )
    paths = os.pathsep.join([str(Path(kinds.__file__).parents[1]), str(ROOT)])
    done = subprocess.run(
        [sys.executable, '-c', code, str(config)],
        capture_output=True,
        text=True,
        env={**os.environ, 'PYTHONPATH': paths},
    )
    assert 'FIREAttention' in done.stdout and 'RasterRoPE' in done.stdout, done.stderr


PICTURES = dict(  # of the middle token of 5 x 5, which sees #
    [
        ('up-left', '###.. ###.. ###.. ..... .....'),
        ('up-right', '..### ..### ..### ..... .....'),
        ('down-left', '..... ..... ###.. ###.. ###..'),
        ('down-right', '..... ..... ..### ..### ..###'),
        ('up', '##### .###. ..#.. ..... .....'),
        ('down', '..... ..... ..#.. .###. #####'),
        ('left', '#.... ##... ###.. ##... #....'),
        ('right', '....# ...## ..### ...## ....#'),
        ('all', ' '.join(['#####'] * 5)),
    ]
)


@pytest.mark.parametrize('heads, block', [(6, 0), (12, 5), (16, 11), (3, 1), (8, 2)])
def test_views_and_slopes_of_lookhere(heads: int, block: int) -> None:
    place = Place((5, 5), index=block, depth=12)
    attn = build_attention(
        dict(type='LookHere'), place, embed_dims=heads, num_heads=heads
    )
    bias = attn.bias(torch.empty(1, heads, 25, 1), (5, 5))[:, 12]
    layer = 1.5 - block / 11
    distances = [
        math.hypot(row - 2, column - 2) for row in range(5) for column in range(5)
    ]
    for head, (view, slope) in enumerate(head_views(heads, block)):
        seen = [place == '#' for place in PICTURES[view].replace(' ', '')]
        expected = [
            -2 * layer * slope * distance if sees else -math.inf
            for sees, distance in zip(seen, distances, strict=True)
        ]
        torch.testing.assert_close(bias[head], torch.tensor(expected))


def test_heads_of_lookhere() -> None:
    """The published numbers; other numbers have all twelve views in blocks that follow."""
    twelve = [view for view, _ in head_views(12, 3)]
    assert twelve == [*PICTURES][:8] + ['all'] * 4
    assert [slope for _, slope in head_views(12, 0)] == [0.5] * 8 + [
        4**-1,
        4**-2,
        4**-3,
        4**-4,
    ]
    assert [slope for _, slope in head_views(16, 0)][4:8] == [0.25] * 4
    assert head_views(6, 0) == head_views(12, 0)[:4] + head_views(12, 0)[8:10]
    dealt = [pair for block in range(4) for pair in head_views(3, block)]
    assert sorted(dealt) == sorted(head_views(12, 0))


@pytest.mark.parametrize(
    'name', [name for name in KINDS if name[:4] not in ('ALiB', 'Look')]
)
def test_gradients(name: str) -> None:
    """Those of tokens and of all parameters that the position has, one prefix token among them."""
    attn = attention(name, prefix=1)
    names = [
        path for path, _ in attn.named_parameters() if path[:4] not in ('qkv.', 'proj')
    ]
    x = torch.randn(1, 5, C, dtype=torch.float64, requires_grad=True)

    def loss(x: Tensor, *values: Tensor) -> Tensor:
        parameters = dict(attn.named_parameters()) | dict(
            zip(names, values, strict=True)
        )
        return torch.func.functional_call(attn, parameters, (x, (2, 2))).square().sum()

    values = [
        dict(attn.named_parameters())[name].detach().requires_grad_() for name in names
    ]
    assert values and torch.autograd.gradcheck(loss, (x, *values), fast_mode=True)


@pytest.mark.parametrize('name', KINDS)
def test_a_backbone_trains_with_every_kind(name: str) -> None:
    """One graph of autograd through windows with a mask; every parameter has a gradient."""
    stages = dict(embed_dims=24, depths=(2,), num_heads=(3,))
    settings = dict(attention=KINDS[name][0], out_indices=(0,), window_size=4)
    model = RoPESwin(stages, **settings, drop_path_rate=0.0)
    (out,) = model(torch.randn(1, 3, 44, 32))
    out.square().mean().backward()
    for path, parameter in model.layers.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), path


@pytest.mark.parametrize('name', ['PaPE', 'IsotropicPaPE'])
@torch.no_grad()
def test_half_precision_keeps_the_squares(name: str) -> None:
    """On 48 x 48 tokens squares are up to 1100, of which bfloat16 keeps 8 bits."""
    grid = (48, 48)
    attn, plain = (
        build_attention(kind, PLACE, embed_dims=C, num_heads=HEADS)
        for kind in (KINDS[name][0], None)
    )
    for layer in ('qkv', 'proj'):
        plain.get_submodule(layer).load_state_dict(
            attn.get_submodule(layer).state_dict()
        )
    x = torch.randn(1, 48 * 48, C)
    errors = []
    for one in (attn, plain):
        with torch.autocast('cpu', torch.bfloat16):
            rounded = one(x, grid)
        errors.append((rounded - one(x, grid)).norm() / one(x, grid).norm())
    assert errors[0] < 2 * errors[1]


SLOW = {  # of backbones with windows and a class token
    name: dict(
        attention=settings, rope=dict(type='MixedRoPE') if name == 'PaPE' else None
    )
    for name, (settings, _) in KINDS.items()
}
SLOW['golden'] = dict(rope=dict(type='DirectionRoPE'))
SLOW['random'] = dict(rope=dict(type='DirectionRoPE', directions='random'))


def small_vit(name: str) -> RoPEViT:
    arch = dict(embed_dims=C, depth=2, num_heads=HEADS, layer_scale_init_value=None)
    model = RoPEViT(arch, window_size=3, window_block_indexes=(0,), **SLOW[name])
    for block in model.blocks:
        torch.nn.init.normal_(block.attn.qkv.weight, std=0.3)
    return model


@pytest.mark.slow
@pytest.mark.parametrize('name', SLOW)
@torch.no_grad()
def test_export_with_any_size(name: str) -> None:
    model = small_vit(name).eval()
    graph = trace(graph_of(model), 'dynamic', 'dynamic').module()
    for image in (torch.randn(3, 3, 128, 80), torch.randn(1, 3, 16, 16)):
        torch.testing.assert_close(
            graph(image)[0], model(image)[0], atol=1e-4, rtol=1e-4
        )


@pytest.mark.slow
@pytest.mark.parametrize('name', SLOW)
def test_one_graph_for_five_sizes(name: str) -> None:
    """Without windows; three heads of LookHere have other views in the next block."""
    torch.compiler.reset()
    model, counter = small_vit(name), CompileCounterWithBackend('eager')
    model.set_window_size(None)
    eager = copy.deepcopy(model)
    model.compile_blocks(backend=counter, fullgraph=True)
    for size in ((64, 96), (96, 96), (48, 144), (80, 112), (128, 64)):
        image = torch.randn(2, 3, *size)
        torch.testing.assert_close(model(image), eager(image), atol=1e-4, rtol=1e-4)
    assert counter.frame_count == (2 if name == 'LookHere' else 1)
