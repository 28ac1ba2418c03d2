"""Hooks, adapters, transforms, export and threads: uses of a backbone besides calling it.

Each test failed with the hand-tuned engine that came before (633e01c).
"""

import copy
import io
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from rope_dense.backbones import RoPENAT, RoPESwin, RoPEViT

AXIAL, MIXED = dict(type='AxialRoPE'), dict(type='MixedRoPE')
TINY = dict(embed_dims=16, depth=4, num_heads=2, layer_scale_init_value=None)


def vit(rope: dict | None = MIXED, **arguments: object) -> RoPEViT:
    return strong(RoPEViT(TINY, patch_size=8, rope=rope, **arguments))


def vitdet(rope: dict | None = MIXED, **arguments: object) -> RoPEViT:
    windows = dict(with_cls_token=False, window_size=3, window_block_indexes=(0, 2))
    return vit(rope, **windows, **arguments)


def copies(rope: dict | None = MIXED, **arguments: object) -> RoPEViT:
    """Each window has a copy of the class token and of a register."""
    windows = dict(num_registers=1, window_size=3, window_block_indexes=(0, 2))
    return vit(rope, **windows, **arguments)


def global_prefix(rope: dict | None = MIXED, **arguments: object) -> RoPEViT:
    return copies(rope, window_prefix='global', **arguments)


def swin(rope: dict | None = MIXED, **arguments: object) -> RoPESwin:
    arch = dict(embed_dims=8, depths=(2, 2), num_heads=(1, 2))
    settings = dict(window_size=4, out_indices=(0, 1), drop_path_rate=0.0)
    return strong(RoPESwin(arch, rope=rope, **settings, **arguments))


def nat(rope: dict | None = MIXED, **arguments: object) -> RoPENAT:
    arch = dict(embed_dims=8, depths=(2, 2), num_heads=(1, 2), dilations=((1, 2), (1,)))
    settings = dict(kernel_size=3, out_indices=(0, 1), drop_path_rate=0.0)
    return strong(RoPENAT(arch, rope=rope, **settings, **arguments))


def strong(model: nn.Module) -> nn.Module:
    """Weights with which attention, and so the rotation, matters."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 or 'bias' in name:
                parameter.normal_(std=0.3)
    return model


MODELS = {
    'vit': vit,
    'vitdet': vitdet,
    'copies': copies,
    'global prefix': global_prefix,
    'swin': swin,
    'nat': nat,
}
every_model = pytest.mark.parametrize('make', MODELS.values(), ids=MODELS)
every_rope = pytest.mark.parametrize(
    'rope', [None, AXIAL, MIXED], ids=['none', 'axial', 'mixed']
)


def images(*shape: int) -> Tensor:
    return torch.randn(*(shape or (2, 3, 40, 56)))


def loss_of(model: nn.Module, image: Tensor) -> Tensor:
    return sum(out.square().mean() for out in model(image))


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> bool:
    return bool((actual - expected).abs().max() <= tolerance * expected.abs().max())


# Hooks, adapters and replaced layers


@every_model
@pytest.mark.parametrize('rope', [AXIAL, MIXED], ids=['axial', 'mixed'])
def test_a_hook_on_the_projection_sees_the_projection(make, rope: dict):
    model, seen = make(rope).eval(), []
    qkv = model.ordered_blocks[1].attn.qkv
    qkv.register_forward_hook(lambda module, args, out: seen.append((args[0], out)))
    with torch.no_grad():
        model(images())
    ((x, out),) = seen
    assert torch.equal(out, F.linear(x, qkv.weight, qkv.bias))


@every_rope
def test_a_hook_sees_the_biases_of_queries_and_values(rope: dict | None):
    model, seen = vitdet(rope, qkv_bias='qv'), []
    qkv = model.blocks[0].attn.qkv
    qkv.register_forward_hook(lambda module, args, out: seen.append((args[0], out)))
    model(images())
    ((x, out),) = seen
    bias = torch.cat([qkv.q_bias, torch.zeros(16), qkv.v_bias])
    assert torch.equal(out, F.linear(x, qkv.weight, bias))


class LoRA(nn.Module):
    """An adapter as people write it."""

    def __init__(self, base: nn.Module, rank: int = 2) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


@every_model
@pytest.mark.parametrize('qkv_bias', [True, 'qv'])
def test_an_adapter_takes_the_place_of_every_linear_layer(make, qkv_bias: bool | str):
    """Merged into the weights, it gives the same maps; only it trains."""
    if make in (swin, nat) and qkv_bias == 'qv':
        pytest.skip('Swin and NAT have no such bias')
    model = make(qkv_bias=qkv_bias).requires_grad_(False)
    merged = copy.deepcopy(model)
    linears = [
        name for name, part in model.named_modules() if isinstance(part, nn.Linear)
    ]
    for name in linears:
        parent, _, leaf = name.rpartition('.')
        adapter = LoRA(model.get_submodule(name))
        setattr(model.get_submodule(parent), leaf, adapter)
        merged.get_submodule(name).weight.add_(adapter.up.weight @ adapter.down.weight)
    image = images()
    assert all(
        close(a, b, 1e-4) for a, b in zip(model(image), merged(image), strict=True)
    )
    loss_of(model, image).backward()
    trained = {
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    assert trained == {
        f'{name}.{part}.weight' for name in linears for part in ('up', 'down')
    }


@every_model
def test_linear_layers_can_be_quantized(make):
    model = make().eval()
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', DeprecationWarning)
        quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    image = images()
    for actual, expected in zip(quantized(image), model(image), strict=True):
        assert (actual - expected).norm() < 0.2 * expected.norm()


@pytest.mark.parametrize('qkv_bias', [True, 'qv'])
@pytest.mark.parametrize('change', ['prune', 'parametrize'])
def test_pruned_and_parametrized_projections_train(change: str, qkv_bias: bool | str):
    model = vitdet(qkv_bias=qkv_bias)
    for block in model.blocks:
        if change == 'prune':
            prune.l1_unstructured(block.attn.qkv, 'weight', amount=0.3)
        else:
            parametrizations.weight_norm(block.attn.qkv)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        losses.append(loss_of(model, torch.ones(1, 3, 40, 40)))
        losses[-1].backward()
        optimizer.step()
    assert losses[2] < losses[0]


# Transforms


def plain_attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask=None, scale=None
) -> Tensor:
    """torch's own has no forward-mode derivative on a CPU."""
    scores = q @ k.transpose(-1, -2) * scale
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    return scores.softmax(-1) @ v


@every_model
@every_rope
def test_derivatives_of_functions(
    monkeypatch: pytest.MonkeyPatch, make, rope: dict | None
):
    """torch.func.grad and jvp, against autograd; vmap, against a loop."""
    model, image = make(rope).double(), images(2, 3, 40, 48).double()
    monkeypatch.setattr(F, 'scaled_dot_product_attention', plain_attention)
    parameters = dict(model.named_parameters())

    def loss(parameters: dict[str, Tensor], image: Tensor) -> Tensor:
        outs = torch.func.functional_call(model, parameters, (image,))
        return sum(out.square().mean() for out in outs)

    expected = torch.autograd.grad(loss(parameters, image), list(parameters.values()))
    grads = torch.func.grad(loss)(parameters, image)
    assert all(close(a, b, 1e-9) for a, b in zip(grads.values(), expected, strict=True))

    tangents = {
        name: torch.randn_like(parameter) for name, parameter in parameters.items()
    }
    _, directional = torch.func.jvp(
        lambda p: loss(p, image), (parameters,), (tangents,)
    )
    sum_of_products = sum(
        (t * g).sum() for t, g in zip(tangents.values(), expected, strict=True)
    )
    assert close(directional, sum_of_products, 1e-9)

    for_each = torch.func.vmap(lambda x: model(x[None])[-1][0])(image)
    assert close(for_each, torch.cat([model(x[None])[-1] for x in image]), 1e-9)


@every_model
@pytest.mark.parametrize('rope', [AXIAL, MIXED], ids=['axial', 'mixed'])
def test_second_derivatives(make, rope: dict):
    """The gradient of a squared gradient norm, against finite differences along a direction."""
    model, image = make(rope).double(), images(1, 3, 40, 48).double()
    parameters = [block.attn.qkv.weight for block in model.ordered_blocks]
    parameters += [p for name, p in model.named_parameters() if name.endswith('freqs')]

    def squared_norm() -> Tensor:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            loss = loss_of(model, image)
        grads = torch.autograd.grad(loss, parameters, create_graph=True)
        return sum(grad.square().sum() for grad in grads)

    grads = torch.autograd.grad(squared_norm(), parameters)
    directions = [torch.randn_like(parameter) for parameter in parameters]
    expected = sum((g * d).sum() for g, d in zip(grads, directions, strict=True)).item()
    values, step = [], 1e-5
    for sign in (1, -1):
        moved = [p.detach().clone() for p in parameters]
        with torch.no_grad():
            for p, d in zip(parameters, directions, strict=True):
                p.add_(sign * step * d)
        values.append(squared_norm().item())
        with torch.no_grad():
            for p, old in zip(parameters, moved, strict=True):
                p.copy_(old)
    assert (values[0] - values[1]) / (2 * step) == pytest.approx(expected, rel=1e-4)


@every_model
def test_jit_trace(make):
    model, image = make().eval(), images()
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        traced = torch.jit.trace(model, image)
    assert all(close(a, b) for a, b in zip(traced(image), model(image), strict=True))


@pytest.mark.filterwarnings('ignore::torch.jit.TracerWarning')
@pytest.mark.parametrize(
    'settings', [{}, dict(window_prefix='global'), dict(mask_padding=True)]
)
def test_a_trace_follows_windows_that_fit_the_image(settings: dict) -> None:
    arch = dict(embed_dims=16, depth=2, num_heads=2)
    model = RoPEViT(
        arch, img_size=80, window_size='auto', window_block_indexes=[0], **settings
    )
    traced = torch.jit.trace(model.eval(), images(1, 3, 80, 96), check_trace=False)
    for sides in ((48, 160), (100, 130), (16, 16), (200, 33), (112, 112)):
        image = images(2, 3, *sides)
        assert all(
            close(a, b) for a, b in zip(traced(image), model(image), strict=True)
        )


def test_export_with_dynamic_sizes():
    model = vitdet().eval()
    dim = torch.export.Dim
    sizes = {0: dim('batch', max=64), 2: dim('height', min=48, max=4096)}
    sizes[3] = dim('width', min=48, max=4096)  # two windows or more at least
    exported = torch.export.export(
        model, (images(2, 3, 80, 96),), dynamic_shapes=(sizes,)
    )
    operations = {
        str(node.target) for node in exported.graph.nodes if node.op == 'call_function'
    }
    assert not [
        name for name in operations if 'complex' in name or 'rope_dense' in name
    ]
    for shape in ((1, 3, 56, 120), (3, 3, 97, 65), (2, 3, 49, 200), (4, 3, 64, 64)):
        image = images(*shape)
        with torch.no_grad():
            outs = zip(exported.module()(image), model(image), strict=True)
            assert all(close(a, b) for a, b in outs)


@pytest.mark.slow
def test_compiles_twice_at_most_for_five_sizes_without_a_graph_break():
    torch._dynamo.reset()
    model, compilations = vitdet().train(), []

    def backend(graph: torch.fx.GraphModule, inputs: list) -> object:
        compilations.append(graph)
        return graph.forward

    compiled = torch.compile(model, backend=backend, dynamic=True, fullgraph=True)
    shapes = [
        (2, 80, 96),
        (2, 56, 120),
        (2, 97, 65),
        (2, 128, 48),
        (3, 64, 64),
        (1, 80, 96),
    ]
    for batch, height, width in shapes:  # PyTorch compiles for a batch of one anew
        image = images(batch, 3, height, width)
        outs = zip(compiled(image), model(image), strict=True)
        assert all(close(a, b) for a, b in outs)
        assert 1 <= len(compilations) <= (2 if batch > 1 else 3)


@pytest.mark.slow
@pytest.mark.parametrize('make', [vitdet, swin, nat])
def test_compiled_training_equals_eager(make):
    torch._dynamo.reset()
    model, image = make(), images()
    compiled = torch.compile(model, backend='aot_eager', dynamic=False)
    expected = torch.autograd.grad(loss_of(model, image), list(model.parameters()))
    grads = torch.autograd.grad(loss_of(compiled, image), list(model.parameters()))
    assert all(close(a, b, 1e-4) for a, b in zip(grads, expected, strict=True))


# Memory and processes


@every_model
def test_selective_checkpointing_keeps_products(make):
    model, image = make(), images()
    expected = torch.autograd.grad(loss_of(model, image), list(model.parameters()))
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)

    def policy(ctx: object, operation: object, *args: object, **kwargs: object):
        keep = operation in products
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    outs = checkpoint(
        model,
        image,
        use_reentrant=False,
        context_fn=lambda: create_selective_checkpoint_contexts(policy),
    )
    loss = sum(out.square().mean() for out in outs)
    grads = torch.autograd.grad(loss, list(model.parameters()))
    assert all(close(a, b) for a, b in zip(grads, expected, strict=True))


@every_model
def test_checkpointed_blocks_train_alike(make):
    model, image = make(), images()
    expected = torch.autograd.grad(loss_of(model, image), list(model.parameters()))
    model.with_cp = True
    grads = torch.autograd.grad(loss_of(model, image), list(model.parameters()))
    assert all(close(a, b) for a, b in zip(grads, expected, strict=True))


@every_model
@pytest.mark.parametrize('rope', [AXIAL, MIXED], ids=['axial', 'mixed'])
def test_copies_and_files(make, rope: dict):
    """deepcopy, pickle, torch.save of the module, and an average of models, after a forward."""
    model, image, file = make(rope).eval(), images(), io.BytesIO()
    expected = model(image)
    torch.save(model, file)
    file.seek(0)
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    copies = [
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(file, weights_only=False),
        average.eval(),
    ]
    for other in copies:
        assert all(
            torch.equal(a, b) for a, b in zip(other(image), expected, strict=True)
        )


@pytest.mark.parametrize('make', [vitdet, swin, nat], ids=['vitdet', 'swin', 'nat'])
def test_threads_share_a_model(make):
    model = make().eval()
    inputs = [images(1, 3, 24 + 8 * i, 24 + 8 * j) for i in range(4) for j in range(4)]
    with torch.no_grad():
        expected = [model(image)[-1] for image in inputs]

    def run(offset: int) -> bool:
        with torch.no_grad():
            order = [(7 * i + offset) % len(inputs) for i in range(len(inputs))]
            return all(close(model(inputs[i])[-1], expected[i]) for i in order)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(4)))


@every_model
@every_rope
def test_nothing_is_moved_to_the_device_in_a_forward(make, rope: dict | None):
    """Lists that index tensors and numbers that become tensors are uploads, which a captured CUDA
    graph forbids."""
    from torch.utils._python_dispatch import TorchDispatchMode

    names = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(function.name())
            return function(*args, **(kwargs or {}))

    model, image = make(rope), images()
    loss_of(model, image).backward()
    with Record():
        model(image)
    assert not {
        'aten::lift_fresh',
        'aten::_to_copy',
        'aten::arange',
        'aten::nonzero',
    } & set(names)


@pytest.mark.parametrize(
    'make, rope',
    [
        *((vit, AXIAL), (vitdet, MIXED), (copies, AXIAL), (global_prefix, MIXED)),
        *((swin, AXIAL), (nat, MIXED)),
    ],
)
def test_the_meta_device_and_fake_tensors(make, rope: dict):
    """Shapes and gradients without values, for planners of memory and sharded models."""
    options = dict(attention=dict(type='TableBias')) if make in (swin, nat) else {}
    expected = [out.shape for out in make(rope, **options)(images())]
    for mode in (torch.device('meta'), FakeTensorMode()):
        with mode:
            model = make(rope, **options)
            outs = model(torch.empty(2, 3, 40, 56))
            sum(out.sum() for out in outs).backward()
        assert [out.shape for out in outs] == expected
        assert all(parameter.grad is not None for parameter in model.parameters())
    assert all(
        out.isfinite().all() for out in make(rope, **options)(images())
    )  # nothing cached


# Settings that change


@pytest.mark.parametrize('later', [False, True])
def test_window_blocks_that_attend_globally_are_scaled_like_the_others(later: bool):
    """A fixed factor, as if there were no windows; in windows it comes from their size."""
    scaling = dict(type='linear', factor=2.0)
    windows = dict(with_cls_token=False, window_block_indexes=(0, 2))
    model = vit(
        window_size=3 if later else None, rope_scaling=scaling, **windows
    ).eval()
    if later:
        model.set_window_size(None)
    other = vit(with_cls_token=False, rope_scaling=scaling).eval()
    other.load_state_dict(model.state_dict())
    image = images()
    assert torch.equal(model(image)[0], other(image)[0])
    model.set_window_size(3)
    factors = [block.attn.rope.scaling.factor for block in model.blocks]
    assert factors == [None, (2.0, 2.0), None, (2.0, 2.0)]


# Frozen parts


def test_frozen_frequencies_are_frozen():
    for frozen, make in (
        (4, vit),
        ('all', vit),
        (4, vitdet),
        (2, swin),
        ('all', swin),
        ('all', nat),
    ):
        model = make(frozen_stages=frozen)
        assert not any(parameter.requires_grad for parameter in model.parameters())


def test_frequencies_of_frozen_blocks_do_not_drift():
    model = vit(frozen_stages=2)
    freqs = [block.attn.rope.freqs for block in model.blocks]
    before = [tensor.detach().clone() for tensor in freqs]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    loss_of(model, images()).backward()
    optimizer.step()
    moved = [not torch.equal(a, b) for a, b in zip(freqs, before, strict=True)]
    assert moved == [False, False, True, True]


def test_a_frozen_dinov3_is_the_same_in_training():
    model = RoPEViT('dinov3_small', frozen_stages=12, final_norm=True).train()
    image = images(1, 3, 64, 96)
    assert torch.equal(model(image)[0], model(image)[0])
    assert not any(parameter.requires_grad for parameter in model.parameters())
    model = RoPEViT('dinov3_small').train()
    with torch.no_grad():
        for block in model.blocks:
            block.gamma_1.fill_(1.0)
        assert not torch.equal(
            model(image)[0], model(image)[0]
        )  # coordinates are augmented


def test_a_changed_setting_changes_the_angles():
    model, image = vit(AXIAL).eval(), images()
    before = model(image)[0]
    for block in model.blocks:
        block.attn.rope.theta = 5.0
    assert not torch.equal(model(image)[0], before)
    other = RoPEViT(TINY, patch_size=8, rope=dict(AXIAL, theta=5.0)).eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(image)[0], other(image)[0])


# Input that is wrong or empty


@every_model
def test_no_images(make):
    model = make()
    empty = images()[:0]
    outs = model(empty)
    assert [out.shape[1:] for out in outs] == [out.shape[1:] for out in model(images())]
    sum(out.sum() for out in outs).backward()
    assert all(not parameter.grad.any() for parameter in model.parameters())


@every_model
@pytest.mark.parametrize(
    'image, message',
    [
        (torch.zeros(3, 40, 40), r'\[batch, 3, height, width\], got \[3, 40, 40\]'),
        (
            torch.zeros(1, 4, 40, 40),
            r'\[batch, 3, height, width\], got \[1, 4, 40, 40\]',
        ),
        (
            torch.zeros(1, 3, 40, 40, dtype=torch.uint8),
            'floating point, got torch.uint8',
        ),
    ],
)
def test_wrong_images(make, image: Tensor, message: str):
    with pytest.raises(ValueError, match=message):
        make()(image)


NAN = float('nan')
WRONG = [
    ('patch_size', 0),
    ('patch_size', '16'),
    ('patch_size', (16, 8)),
    ('mlp_ratio', -1),
    ('mlp_ratio', NAN),
    ('out_indices', 3),
    ('out_indices', (0, 99)),
    ('frozen_stages', 1.5),
    ('frozen_stages', 99),
    ('drop_path_rate', NAN),
    ('drop_path_rate', 1.0),
    ('drop_path_rate', -0.1),
    ('rope', True),
    ('in_channels', 0),
    ('window_size', 0),
    ('window_size', 'large'),
]
WRONG_ROPE = [
    ('theta', NAN),
    ('theta', '10'),
    ('theta', 0),
    ('offset', NAN),
    ('reference', NAN),
    ('reference', 0),
    ('pair_layout', 'split'),
]


@pytest.mark.parametrize('name, value', [*WRONG, ('layer_scale_init_value', NAN)])
def test_wrong_arguments_of_a_vit(name: str, value: object):
    with pytest.raises(ValueError, match=rf'{name} must be .+, got '):
        RoPEViT(TINY, **{name: value})


@pytest.mark.parametrize('name, value', WRONG)
def test_wrong_arguments_of_a_swin(name: str, value: object):
    with pytest.raises(ValueError, match=rf'{name} must be .+, got '):
        RoPESwin('tiny', **{name: value})


@pytest.mark.parametrize('name', ['embed_dims', 'depth', 'num_heads'])
@pytest.mark.parametrize('value', [0, 1.5, '4', True])
def test_wrong_sizes(name: str, value: object):
    with pytest.raises(ValueError, match=rf'{name} must be an integer from 1 up, got '):
        RoPEViT({**TINY, name: value})


@pytest.mark.parametrize('make', [vit, swin], ids=['vit', 'swin'])
@pytest.mark.parametrize('name, value', WRONG_ROPE)
def test_wrong_arguments_of_an_embedding(make, name: str, value: object):
    coordinates = name in ('offset', 'reference')
    settings = {'coordinates': {name: value}} if coordinates else {name: value}
    with pytest.raises(ValueError, match=rf'{name} must be .+, got '):
        make(dict(AXIAL, **settings))
