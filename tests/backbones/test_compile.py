"""``compile_blocks``: a graph for each kind of block, for all sizes of images."""

import copy
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch
from mmengine.model import ExponentialMovingAverage
from torch import Tensor, distributed, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.parallel import DistributedDataParallel

from rope_dense.backbones import RoPENAT, RoPESwin, RoPEViT
from rope_dense.backbones.base import RECOMPILE_LIMIT, Backbone
from rope_dense.engine import CompileBlocksHook
from rope_dense.engine.fsdp import shard_backbone

VIT = dict(embed_dims=16, depth=4, num_heads=2, layer_scale_init_value=None)
TWO_STAGES = dict(embed_dims=8, depths=(2, 2), num_heads=(1, 2))
SIZES = ((256, 384), (224, 288), (295, 363), (256, 256), (416, 416))


def vit(**arguments: object) -> Backbone:
    return lively(RoPEViT(VIT, patch_size=32, **arguments))


def windowed(**arguments: object) -> Backbone:
    return vit(window_size=3, window_block_indexes=(0, 1, 2), **arguments)


def swin(**arguments: object) -> Backbone:
    settings = dict(window_size=4, out_indices=(0, 1), drop_path_rate=0.0)
    return lively(RoPESwin(TWO_STAGES, **(settings | arguments)))


def nat(**arguments: object) -> Backbone:
    settings = dict(kernel_size=3, out_indices=(0, 1), drop_path_rate=0.0)
    return lively(RoPENAT(TWO_STAGES, **(settings | arguments)))


def lively(model: Backbone) -> Backbone:
    """Weights for which attention, and so the rotation, matters."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 or 'bias' in name:
                parameter.normal_(std=0.3)
    return model.train()


def gradients(model: nn.Module, image: Tensor) -> list[Tensor]:
    """The maps, and the gradients of the trained parameters that they have."""
    outs = model(image)
    parameters = [
        parameter for parameter in model.parameters() if parameter.requires_grad
    ]
    loss = sum(out.square().mean() for out in outs)
    grads = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [*outs, *(grad for grad in grads if grad is not None)]


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-4) -> bool:
    return bool((actual - expected).abs().max() <= tolerance * expected.abs().max())


def all_close(
    compiled: nn.Module, eager: nn.Module, image: Tensor, tolerance: float = 1e-4
) -> bool:
    pairs = zip(gradients(compiled, image), gradients(eager, image), strict=True)
    return all(close(actual, expected, tolerance) for actual, expected in pairs)


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    torch.compiler.reset()


slow = pytest.mark.slow
SCALED = dict(rope_scaling=dict(type='linear'), with_cp=True)
CASES = [  # a model, and its graphs; others are below
    pytest.param(vit, {}, 1, id='ViT'),
    # Frozen blocks are in evaluation mode, and the first has an input without gradient.
    pytest.param(
        vit, dict(lora=dict(rank=2), frozen_stages=2), 3, id='ViT, adapters', marks=slow
    ),
    pytest.param(
        windowed, SCALED | dict(with_cls_token=False), 2, id='windows', marks=slow
    ),
    pytest.param(
        windowed, dict(window_prefix='global'), 2, id='global prefix', marks=slow
    ),
    pytest.param(
        swin, dict(attention=dict(type='TableBias')), 2, id='Swin', marks=slow
    ),
    pytest.param(nat, dict(attention=dict(type='TableBias')), 2, id='NAT', marks=slow),
]


@pytest.mark.parametrize('make, arguments, graphs', CASES)
def test_one_graph_for_each_kind_of_block(
    make: Callable[..., Backbone], arguments: dict, graphs: int
) -> None:
    model, counter = make(**arguments), CompileCounterWithBackend('eager')
    eager, keys = copy.deepcopy(model), list(model.state_dict())
    model.compile_blocks(backend=counter, fullgraph=True)
    for size in SIZES:
        assert all_close(model, eager, torch.randn(2, 3, *size))
    assert counter.frame_count == graphs
    assert list(model.state_dict()) == keys


@slow
@pytest.mark.parametrize(
    'backend, dtype', [('aot_eager', None), ('eager', torch.bfloat16)]
)
def test_recorded_backward_and_autocast(
    backend: str, dtype: torch.dtype | None
) -> None:
    """With forward and backward as AOTAutograd records them, which guards more."""
    model, counter = windowed(), CompileCounterWithBackend(backend)
    eager = copy.deepcopy(model)
    model.compile_blocks(backend=counter, fullgraph=True)
    for size in SIZES[:2]:
        with torch.autocast('cpu', dtype, enabled=dtype is not None):
            assert all_close(
                model, eager, torch.randn(2, 3, *size), 0.1 if dtype else 1e-4
            )
    assert counter.frame_count == 2


@slow
def test_more_graphs_than_the_limit_of_pytorch() -> None:
    """Without the limit of our own, PyTorch refuses the next (or leaves it uncompiled)."""
    counter = CompileCounterWithBackend('eager')
    with torch._dynamo.config.patch(recompile_limit=2):
        for heads in (1, 2, 3, 4):
            model = RoPEViT(
                dict(embed_dims=48, depth=1, num_heads=heads), patch_size=32
            ).eval()
            model.compile_blocks(backend=counter, fullgraph=True)
            model(torch.randn(1, 3, 64, 96))
    assert 2 < counter.frame_count == 4 < RECOMPILE_LIMIT


@pytest.fixture
def one_process() -> Iterator[None]:
    distributed.init_process_group(
        'gloo', store=distributed.HashStore(), rank=0, world_size=1
    )
    yield
    distributed.destroy_process_group()


@slow
@pytest.mark.usefixtures('one_process')
@pytest.mark.parametrize('before', [True, False])
@pytest.mark.parametrize('wrap', [DistributedDataParallel, shard_backbone])
def test_wrappers_of_distributed_training(before: bool, wrap: Callable) -> None:
    """``fully_shard`` and DDP, around blocks that are compiled before or after."""
    model = vit(with_cp=before)
    eager = copy.deepcopy(model)
    if before:
        model.compile_blocks(backend='eager')
    wrapped = wrap(model) or model
    if not before:
        model.compile_blocks(backend='eager')
    for size in SIZES[:2]:
        image = torch.randn(2, 3, *size)
        for each in (wrapped, eager):
            each.zero_grad()
            each(image)[0].square().mean().backward()
        for actual, expected in zip(
            model.parameters(), eager.parameters(), strict=True
        ):
            grad = getattr(actual.grad, 'full_tensor', lambda grad=actual.grad: grad)()
            assert close(grad, expected.grad)


@pytest.mark.parametrize('make', [windowed, swin, nat], ids=['ViT', 'Swin', 'NAT'])
def test_plans_of_compiled_blocks_change_nothing(
    make: Callable[..., Backbone], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks run as they are, with the plans of compiled ones."""
    model, image = make().eval(), torch.randn(2, 3, 295, 363)
    expected = model(image)
    monkeypatch.setattr(type(model), 'has_compiled_blocks', True)
    assert all(close(*pair, 1e-5) for pair in zip(model(image), expected, strict=True))


def test_the_hook_compiles_and_averages_stay_eager() -> None:
    model, counter = vit(), CompileCounterWithBackend('eager')
    hook = CompileBlocksHook(backend=counter)
    hook.before_run(SimpleNamespace(model=nn.Sequential(model)))
    with pytest.raises(ValueError, match='no backbone of this package'):
        hook.before_run(SimpleNamespace(model=nn.Linear(1, 1)))
    assert model.has_compiled_blocks
    average = ExponentialMovingAverage(model, momentum=0.5)
    assert not average.module.has_compiled_blocks
    average.update_parameters(model)
    with torch.no_grad():
        model.blocks[0].attn.proj.weight.mul_(3.0)
    average.update_parameters(model)
    image = torch.randn(1, 3, 96, 64)
    assert not close(model(image)[0], average(image)[0])
    assert counter.frame_count == 1
    assert list(average.module.state_dict()) == list(model.state_dict())
