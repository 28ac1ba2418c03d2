"""``PositionalDebias``: the formula, identity without prefix tokens, changed weights, exports."""

import copy
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor, nn

from rope_dense.backbones import RoPEViT
from rope_dense.models.positional_debias import PositionalDebias, RoPEViTWithConstant

VARIABLE = 'ROPE_DENSE_INSID3'  # a checkout of visinf/INSID3 (checked at f1c9622)
SMALL = dict(
    embed_dims=32, depth=3, num_heads=2, patch_size=8, layer_scale_init_value=None
)


def vit(num_registers: int = 4, **settings: object) -> RoPEViTWithConstant:
    """Random weights so large that positions matter."""
    torch.manual_seed(0)
    model = RoPEViTWithConstant(
        SMALL, num_registers=num_registers, img_size=64, **settings
    )
    for name, weights in model.named_parameters():
        if 'freqs' not in name:
            nn.init.normal_(weights, std=0.2)
    return model.eval()


def project(x: Tensor, constant: Tensor, number: int, normalize: bool) -> Tensor:
    """INSID3's formula for one image [C, H, W] in float64, by the covariance of the channels."""
    x, e = x.double(), constant[0].double().flatten(1)
    if normalize:
        x, e = x / x.norm(dim=0), e / e.norm(dim=0)
    e = e - e.mean(1, keepdim=True)
    directions = torch.linalg.eigh(e @ e.T).eigenvectors[:, -number:]  # [C, K]
    x = x - torch.einsum('ck,dk,dhw->chw', directions, directions, x)
    return x / x.norm(dim=0) if normalize else x


@pytest.mark.parametrize('normalize', [False, True])
@pytest.mark.parametrize('size', [(64, 64), (40, 72)])
def test_equals_the_formula(size: tuple[int, int], normalize: bool) -> None:
    model, image = vit(out_indices=(1, 2)), torch.randn(2, 3, *size)
    neck = PositionalDebias(num_directions=9, normalize=normalize)
    with torch.no_grad():
        maps, constants = (
            RoPEViT.forward(model, image),
            RoPEViT.forward(model, 0 * image[:1]),
        )
        outs = neck(model(image))
    assert len(outs) == 2
    for out, x, constant in zip(outs, maps, constants, strict=True):
        expected = torch.stack([project(of, constant, 9, normalize) for of in x])
        torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


def test_a_share_of_the_energy_is_removed() -> None:
    model, image = vit(), torch.zeros(1, 3, 64, 48)
    with torch.no_grad():
        x, constant, sign = model(image)
        for share in (0.5, 0.9, 0.999):
            (out,) = PositionalDebias(share)((x, constant, sign))
            energies = [
                (y - y.mean((2, 3), keepdim=True)).square().sum() for y in (out, x)
            ]
            fewer = PositionalDebias(share).directions(constant).shape[1] - 1
            assert energies[0] / energies[1] < 1 - share + 1e-5
            if fewer:
                (out,) = PositionalDebias(num_directions=fewer)((x, constant, sign))
                left = (out - out.mean((2, 3), keepdim=True)).square().sum()
                assert left / energies[1] > 1 - share


def test_without_prefix_tokens_it_is_the_identity() -> None:
    model, image = (
        vit(0, with_cls_token=False, out_indices=(0, 2)),
        torch.randn(2, 3, 40, 64),
    )
    maps = RoPEViT.forward(model, image)
    for normalize in (False, True):
        outs = PositionalDebias(normalize=normalize)(model(image))
        assert all(torch.equal(*pair) for pair in zip(outs, maps, strict=True))


CHANGES = {
    'a step': lambda model: torch.optim.SGD(model.parameters(), 0.1).step(),
    'weights that are loaded': lambda model: model.load_state_dict(
        {name: 1.1 * x for name, x in model.state_dict().items()}
    ),
    'another precision': lambda model: model.double(),
    'a scaling': lambda model: model.set_rope_scaling(dict(type='linear', factor=2.0)),
    'windows': lambda model: model.set_window_size(2),
}


@pytest.mark.parametrize('change', CHANGES.values(), ids=CHANGES)
def test_a_basis_is_made_anew_when_the_model_changes(change: Callable) -> None:
    model = vit(window_block_indexes=(0,), window_size=3, rope=dict(type='AxialRoPE'))
    neck, image = PositionalDebias(), torch.randn(1, 3, 64, 64)
    neck(model(image))[0].sum().backward()
    change(model)
    image = image.to(model.patch_embed.proj.weight)
    fresh = copy.deepcopy(model).eval()
    with torch.no_grad():
        torch.testing.assert_close(neck(model(image)), PositionalDebias()(fresh(image)))


def test_averages_that_are_swapped_in_are_seen() -> None:
    """mmengine's EMAHook writes behind the back of autograd, and evaluates then."""
    model, neck, image = vit(), PositionalDebias(), torch.randn(1, 3, 64, 64)
    first = neck(model(image))[0]
    for weights in model.parameters():
        weights.data.copy_(weights.data.flip(0))
    model.eval()
    fresh = copy.deepcopy(model)
    torch.testing.assert_close(neck(model(image)), PositionalDebias()(fresh(image)))
    assert not torch.allclose(neck(model(image))[0], first)


def test_a_size_costs_one_pass_more() -> None:
    model, neck, sizes = vit(), PositionalDebias(), []
    model.patch_embed.register_forward_hook(
        lambda _, args, out: sizes.append(args[0].shape[2])
    )
    for side in (64, 64, 40, 64, 40):
        neck(model(torch.randn(2, 3, side, side)))
    assert sizes == [64, 64, 64, 40, 40, 64, 40]


def test_gradients_reach_the_backbone_in_training_and_modes_stay() -> None:
    model, neck = vit(frozen_stages=1).train(), PositionalDebias()
    neck(model(torch.randn(2, 3, 48, 48)))[0].square().sum().backward()
    assert model.training and not model.blocks[0].training
    assert model.blocks[2].mlp.fc2.weight.grad is not None and not neck.state_dict()


def test_another_backbone_is_named() -> None:
    with pytest.raises(ValueError, match='needs RoPEViTWithConstant as the backbone'):
        PositionalDebias()((torch.randn(2, 8, 4, 4),))
    with pytest.raises(ValueError, match='needs RoPEViTWithConstant as the backbone'):
        PositionalDebias()((torch.randn(1, 8, 4, 4), torch.randn(1, 8, 4, 4)))
    with pytest.raises(ValueError, match='without output_prefix'):
        PositionalDebias()(vit(output_prefix='cls')(torch.randn(2, 3, 64, 64)))


def test_it_is_exported_with_the_basis_of_a_size(tmp_path: Path) -> None:
    """In a file the basis is a constant, and there is one pass through the backbone."""
    pytest.importorskip('mmseg')
    from rope_dense.export import export
    from rope_dense.export.compare import largest_difference, runners
    from rope_dense.export.graphs import graph_of

    head = dict(
        type='FCNHead', in_channels=32, channels=32, num_convs=0, concat_input=False
    )
    arch = dict(SMALL, num_registers=4)
    settings = dict(
        type='EncoderDecoder',
        data_preprocessor=dict(type='SegDataPreProcessor', mean=[0] * 3, std=[9] * 3),
        backbone=dict(type='RoPEViTWithConstant', arch=arch, img_size=64),
        neck=dict(type='PositionalDebias'),
        decode_head=dict(head, num_classes=3, in_index=0),
        test_cfg=dict(mode='whole'),
    )
    with MODELS.switch_scope_and_registry('mmseg') as models:
        model = models.build(settings).eval()
    model.backbone.load_state_dict(vit().state_dict())
    nn.init.normal_(model.decode_head.conv_seg.weight)
    with pytest.raises(
        ValueError, match=r"size 'dynamic': RoPEViTWithConstant .* a fixed size"
    ):
        export(model, tmp_path / 'model.pt2')
    path, graph = tmp_path / 'model.pt2', graph_of(model)
    export(model, path, size=(64, 80))
    image = torch.randint(0, 256, (1, 3, 64, 80), dtype=torch.uint8)
    (run_file,) = runners(path).values()
    found = run_file(image)
    with torch.no_grad():
        assert largest_difference(graph, found, graph(image)) < 1e-5
    names = [str(node.target) for node in torch.export.load(path).graph.nodes]
    assert (
        sum('scaled_dot_product_attention' in name for name in names) == SMALL['depth']
    )
    model.neck.forward = lambda maps: maps[:1]
    graph = graph_of(model)
    with torch.no_grad():
        assert largest_difference(graph, found, graph(image)) > 1e-2


# The authors' code


def normalized(x: Tensor, mean: list[float], std: list[float]) -> Tensor:
    """What torchvision's function of this purpose does."""
    return (x - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]


@pytest.fixture(scope='module')
def insid3() -> Iterator[type[nn.Module]]:
    """The authors' class, without the parts that only masks need; skips without a checkout."""
    if VARIABLE not in os.environ:
        pytest.skip(f'{VARIABLE} names no checkout of INSID3')
    pytest.importorskip('einops')
    source = Path(os.environ[VARIABLE], 'models', 'insid3.py').read_text()
    lines = [line for line in source.splitlines() if not line.startswith('from utils.')]
    vision = ModuleType('torchvision.transforms.functional')
    vision.normalize = normalized
    with pytest.MonkeyPatch.context() as patch:
        for name in ('torchvision', 'torchvision.transforms'):
            patch.setitem(sys.modules, name, ModuleType(name))
        patch.setitem(sys.modules, vision.__name__, vision)
        scope: dict = dict(build_transform=lambda size: None, __name__='insid3')
        exec('\n'.join(lines), scope)
        yield scope['INSID3']


class INSID3Encoder(nn.Module):
    """Our backbone under the names of DINOv3's."""

    def __init__(self, model: RoPEViT) -> None:
        super().__init__()
        self.model = model

    def get_intermediate_layers(
        self, x: Tensor, n: int, reshape: bool
    ) -> tuple[Tensor, ...]:
        assert n == 1 and reshape
        return RoPEViT.forward(self.model, x.double())


@torch.no_grad()
@pytest.mark.parametrize('number', [5, 20])
def test_equals_the_authors_code(insid3: type[nn.Module], number: int) -> None:
    """With their image of zeros before normalisation, and their number of directions.

    In float64: in float32 their own directions are rounded, by up to 4e-5 here.
    """
    model = vit().double()
    source = insid3(
        INSID3Encoder(model), image_size=64, svd_components=number, device='cpu'
    )
    image = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    maps = F.normalize(source._extract_features(image[None]), p=2, dim=2)
    expected = source._debias_features(maps)[0]  # [2, C, H, W]
    black = normalized(
        torch.zeros(1, 3, 64, 64), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    )
    (constant,) = RoPEViT.forward(model, black.double())
    (x,) = RoPEViT.forward(model, image)
    (out,) = PositionalDebias(num_directions=number, normalize=True)(
        (x, constant, x.new_empty(0))
    )
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-7)
