"""The backbones in detectron2: what it asks of one, the same maps and weights as in OpenMMLab."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import hydra
import pytest
import torch
from torch import nn

from helpers import detectron2_standin
from rope_dense import backbones
from rope_dense.checkpoints import CheckpointError
from rope_dense.engine.optimizer import POSITION_NAMES
from rope_dense.models.plain_vit_fpn import PlainViTFPN

VIT = dict(arch=dict(embed_dims=32, depth=4, num_heads=2))
WINDOWS = VIT | dict(with_cls_token=False, window_size=2, window_block_indexes=[0, 2])
EVERY_TOKEN = VIT | dict(use_ape=True, num_registers=2, final_norm=True)
SWIN = dict(
    arch=dict(embed_dims=16, depths=[2, 2, 1], num_heads=[1, 2, 4]),
    window_size=4,
    out_indices=[0, 1, 2],
    attention=dict(type='TableBias'),
)
BACKBONES = [
    ('RoPEViT', WINDOWS),
    ('RoPEViT', VIT | dict(out_indices=[1, 3])),
    ('RoPESwin', SWIN),
]
every_backbone = pytest.mark.parametrize(
    'name, arguments', BACKBONES, ids=['vit', 'maps', 'swin']
)


@pytest.fixture(scope='module')
def d2() -> Iterator[ModuleType]:
    """rope_dense.models.detectron2."""
    with detectron2_standin.importable():
        from rope_dense.models import detectron2

        yield detectron2


@every_backbone
@torch.no_grad()
def test_maps_and_weights_are_those_of_the_other_stack(
    d2: ModuleType, name: str, arguments: dict
) -> None:
    ours, other = getattr(d2, name)(**arguments), getattr(backbones, name)(**arguments)
    assert list(ours.state_dict()) == list(other.state_dict())
    other.load_state_dict(ours.state_dict())
    image = torch.randn(2, 3, 70, 100)
    maps, expected = ours.eval()(image), other.eval()(image)
    shapes = ours.output_shape()
    assert list(maps) == list(shapes)
    for key, output, reference in zip(maps, maps.values(), expected, strict=True):
        assert torch.equal(output, reference)
        assert output.shape[1] == shapes[key].channels
        assert output.shape[2] in (
            70 // shapes[key].stride,
            -(-70 // shapes[key].stride),
        )


def test_outputs_are_called_as_detectron2_s(d2: ModuleType) -> None:
    assert list(d2.RoPEViT(**WINDOWS).output_shape()) == ['last_feat']
    assert list(d2.RoPEViT(**VIT, out_indices=[1, -1]).output_shape()) == [
        'block1',
        'last_feat',
    ]
    assert list(d2.RoPESwin(**SWIN).output_shape()) == ['p0', 'p1', 'p2']
    named = d2.RoPESwin(**SWIN, out_features=['res2', 'res3', 'res4'])
    assert list(named(torch.zeros(1, 3, 32, 32))) == ['res2', 'res3', 'res4']


def test_padding_is_whole_patches_at_most(d2: ModuleType) -> None:
    vit, swin = d2.RoPEViT(**VIT, patch_size=14, square_size=1024), d2.RoPESwin(**SWIN)
    assert vit.padding_constraints == dict(size_divisibility=14, square_size=1024)
    assert swin.padding_constraints == dict(size_divisibility=0, square_size=0)
    assert (vit.size_divisibility, swin.size_divisibility) == (14, 0)


@pytest.mark.parametrize('convert', ['all', 'none'])
def test_builds_from_a_lazy_config(d2: ModuleType, convert: str) -> None:
    """By hydra with plain containers, and with omegaconf's, which detectron2 hands on."""
    from detectron2.config import LazyCall
    from omegaconf import OmegaConf

    config = LazyCall(d2.RoPEViT)(
        **WINDOWS,
        rope=dict(type='MixedRoPE', theta=10.0),
        rope_scaling=dict(type='linear'),
        out_features=['last'],
    )
    if convert == 'all':
        model = hydra.utils.instantiate(config, _convert_='all')
    else:
        arguments = {key: config[key] for key in config if key != '_target_'}
        assert sum(OmegaConf.is_config(value) for value in arguments.values()) == 5
        model = config._target_(**arguments)
    assert model.window_blocks == [0, 2] and type(model.rope_scaling) is dict
    assert list(model(torch.zeros(1, 3, 48, 64))) == ['last']


@pytest.mark.parametrize(
    'arguments, message',
    [
        (dict(out_features=['a', 'b']), 'out_features must be 1 names.*got'),
        (
            dict(out_features='last_feat'),
            "out_features must be 1 names.*got 'last_feat'",
        ),
        (
            dict(out_indices=[0, 1], out_features=['a', 'a']),
            'out_features must be 2 names',
        ),
        (dict(square_size=-1), 'square_size must be an integer from 0 up, got -1'),
        (dict(init_cfg=None), 'init_cfg is not an argument in detectron2'),
        (dict(output_prefix='cls'), 'output_prefix is not an argument in detectron2'),
    ],
)
def test_what_does_not_fit_is_an_error(
    d2: ModuleType, arguments: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        d2.RoPEViT(**VIT, **arguments)


def test_checkpoints_go_both_ways(d2: ModuleType, tmp_path: Path) -> None:
    """A detector's of mmengine, and one as detectron2's checkpointer writes it."""
    path = str(tmp_path / 'model.pth')
    trained = backbones.RoPEViT(**WINDOWS)
    state = {f'backbone.{key}': value for key, value in trained.state_dict().items()}
    torch.save(dict(state_dict=state | {'neck.weight': torch.zeros(1)}), path)
    assert_equal(d2.RoPEViT(**WINDOWS, checkpoint=path), trained)

    state = {
        f'backbone.net.{key}': value for key, value in trained.state_dict().items()
    }
    pyramid = {'backbone.simfp_3.0.weight': torch.zeros(1)}
    torch.save(dict(model=state | pyramid, iteration=90000), path)
    assert_equal(
        d2.RoPEViT(**WINDOWS, checkpoint=path, prefix='backbone.net.'), trained
    )
    init_cfg = dict(type='Pretrained', checkpoint=path, prefix='backbone.net.')
    model = backbones.RoPEViT(**WINDOWS, init_cfg=init_cfg)
    model.init_weights()
    assert_equal(model, trained)


def assert_equal(model: nn.Module, other: nn.Module) -> None:
    expected = other.state_dict()
    assert model.state_dict().keys() == expected.keys()
    assert all(
        torch.equal(value, expected[key]) for key, value in model.state_dict().items()
    )


def test_loading_is_strict(d2: ModuleType, tmp_path: Path) -> None:
    path = str(tmp_path / 'model.pth')
    state = backbones.RoPEViT(**WINDOWS).state_dict()
    del state['blocks.3.attn.rope.freqs']
    torch.save(state, path)
    with pytest.raises(CheckpointError, match=r'blocks\.3\.attn\.rope\.freqs'):
        d2.RoPEViT(**WINDOWS, checkpoint=path)


@pytest.mark.parametrize(
    'name, arguments, num_layers',
    [('RoPEViT', EVERY_TOKEN, 4), ('RoPESwin', SWIN, [2, 2, 1])],
    ids=['vit', 'swin'],
)
@pytest.mark.parametrize('path', ['backbone', 'backbone.net', 'backbone.bottom_up'])
def test_learning_rates_are_those_of_the_layers(
    d2: ModuleType, name: str, arguments: dict, num_layers: int | list[int], path: str
) -> None:
    model = getattr(backbones, name)(**arguments)
    last = len(model.ordered_blocks) + 1
    for parameter, _ in model.named_parameters():
        factor = d2.get_rope_lr_decay_rate(f'{path}.{parameter}', 0.5, num_layers)
        assert factor == 0.5 ** (last - model.layer_of(parameter))
    for other in (
        'backbone.simfp_2.0.weight',
        'roi_heads.blocks.0.weight',
        'neck.cls_token',
    ):
        assert d2.get_rope_lr_decay_rate(other, 0.5, num_layers) == 1
    assert (
        d2.get_rope_lr_decay_rate('backbone.net.pos_embed') == 1
    )  # no decay by default


def test_parameters_without_weight_decay_exist(d2: ModuleType) -> None:
    offset = dict(EVERY_TOKEN, rope=dict(type='OffsetAxialRoPE'))
    models = [
        *(backbones.RoPEViT(**x) for x in (EVERY_TOKEN, offset)),
        backbones.RoPESwin(**SWIN),
    ]
    leaves = {
        n.rpartition('.')[2] for model in models for n, _ in model.named_parameters()
    }
    tables = {name for name in POSITION_NAMES if not name.startswith('rel_pos')}
    of_rope = {'freqs', 'angle_offset'}
    assert set(d2.NO_WEIGHT_DECAY) == leaves & (
        tables | {'cls_token', 'reg_token'} | of_rope
    )
    assert all(value == {'weight_decay': 0.0} for value in d2.NO_WEIGHT_DECAY.values())


# With detectron2 itself.


@pytest.fixture
def real(d2: ModuleType) -> ModuleType:
    if not detectron2_standin.is_real():
        pytest.skip('needs detectron2, which is in no package registry')
    return d2


def test_layer_decay_is_detectron2_s(real: ModuleType) -> None:
    from detectron2.modeling.backbone.vit import get_vit_lr_decay_rate

    names = [
        f'backbone.net.{name}'
        for name, _ in backbones.RoPEViT(**WINDOWS).named_parameters()
    ]
    for name in [*names, 'backbone.simfp_2.0.weight', 'roi_heads.box_head.fc1.weight']:
        theirs = get_vit_lr_decay_rate(name, 0.7, 4)
        assert real.get_rope_lr_decay_rate(name, 0.7, 4) == theirs


def test_groups_of_detectron2_s_optimizer(real: ModuleType) -> None:
    from detectron2.solver.build import get_default_optimizer_params

    model = nn.ModuleDict(dict(backbone=real.RoPEViT(**EVERY_TOKEN)))
    groups = get_default_optimizer_params(
        model,
        base_lr=1.0,
        weight_decay=0.1,
        weight_decay_norm=0.0,
        lr_factor_func=lambda name: real.get_rope_lr_decay_rate(name, 0.5, 4),
        overrides=real.NO_WEIGHT_DECAY,
    )
    settings = {p: (g['lr'], g['weight_decay']) for g in groups for p in g['params']}
    backbone = model['backbone']
    assert settings[backbone.cls_token] == settings[backbone.pos_embed] == (0.5**5, 0.0)
    assert settings[backbone.blocks[3].attn.rope.freqs] == (0.5, 0.0)
    assert settings[backbone.blocks[0].mlp.fc1.weight] == (0.5**4, 0.1)
    assert settings[backbone.blocks[0].norm1.weight] == (0.5**4, 0.0)


def test_pyramids_of_detectron2(real: ModuleType) -> None:
    from detectron2.modeling import FPN, SimpleFeaturePyramid

    net = real.RoPEViT(**WINDOWS)
    pyramid = SimpleFeaturePyramid(
        net, 'last_feat', 16, (4.0, 2.0, 1.0, 0.5), square_pad=64
    )
    assert list(pyramid(torch.zeros(1, 3, 64, 96))) == ['p2', 'p3', 'p4', 'p5']
    swin = real.RoPESwin(**SWIN, out_features=['res2', 'res3', 'res4'])
    fpn = FPN(swin, ['res2', 'res3', 'res4'], 16)
    sizes = {
        name: tuple(x.shape[2:]) for name, x in fpn(torch.zeros(1, 3, 64, 96)).items()
    }
    assert sizes == dict(p2=(16, 24), p3=(8, 12), p4=(4, 6))


@torch.no_grad()
def test_the_baseline_is_detectron2_s_vit(real: ModuleType) -> None:
    """ViTDet's: absolute position embedding, decomposed relative positions, padded windows."""
    from detectron2.modeling import ViT

    theirs = ViT(
        img_size=96,
        embed_dim=32,
        depth=4,
        num_heads=2,
        norm_layer=partial(nn.LayerNorm, eps=1e-6),
        use_rel_pos=True,
        rel_pos_zero_init=False,
        window_size=4,
        window_block_indexes=[0, 2],
        pretrain_img_size=64,
        pretrain_use_cls_token=False,
    )
    baseline = VIT | dict(img_size=64, rope=None, use_ape=True, with_cls_token=False)
    ours = real.RoPEViT(
        **baseline,
        attention=dict(type='DecomposedBias', img_size=96),
        window_size=4,
        window_block_indexes=[0, 2],
        layer_scale_init_value=None,
    )
    weights = {name: torch.randn_like(p) / 4 for name, p in theirs.state_dict().items()}
    theirs.load_state_dict(weights)
    ours.load_state_dict(weights)
    image = torch.randn(2, 3, 80, 144)  # 5 x 9 tokens
    expected = theirs.eval()(image)['last_feat']
    torch.testing.assert_close(
        ours.eval()(image)['last_feat'], expected, rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize(
    'factors', [(4.0, 2.0, 1.0, 0.5), (2.0, 1.0, 0.5)], ids=['4', '8']
)
@torch.no_grad()
def test_our_pyramid_is_detectron2_s(
    real: ModuleType, factors: tuple[float, ...]
) -> None:
    from detectron2.modeling import SimpleFeaturePyramid
    from detectron2.modeling.backbone.fpn import LastLevelMaxPool

    net = real.RoPEViT(**WINDOWS).eval()
    theirs = SimpleFeaturePyramid(net, 'last_feat', 16, factors, LastLevelMaxPool())
    ours = PlainViTFPN(32, 16, scale_factors=factors, num_outs=len(factors) + 1)
    weights = [p for n, p in theirs.named_parameters() if n.startswith('simfp')]
    for parameter, weight in zip(ours.parameters(), weights, strict=True):
        parameter.copy_(nn.init.normal_(weight))
    image = torch.randn(2, 3, 80, 144)  # 5 x 9 tokens
    for output, expected in zip(
        ours((net(image)['last_feat'],)), theirs(image).values(), strict=True
    ):
        torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-4)


def test_a_training_step_of_mask_rcnn_vitdet(real: ModuleType) -> None:
    from detectron2 import model_zoo
    from detectron2.config import LazyCall, instantiate
    from detectron2.structures import BitMasks, Boxes, Instances
    from detectron2.utils.events import EventStorage

    config = model_zoo.get_config('common/models/mask_rcnn_vitdet.py').model
    config.backbone.net = LazyCall(real.RoPEViT)(**WINDOWS)
    config.backbone.update(in_feature='last_feat', square_pad=128)
    config.roi_heads.num_classes = 3
    model = instantiate(config).train()
    sample = Instances((100, 90))
    sample.gt_boxes = Boxes(torch.tensor([[5.0, 8.0, 60.0, 50.0]]))
    sample.gt_classes = torch.tensor([1])
    masks = torch.zeros(1, 100, 90, dtype=torch.bool)
    masks[:, 8:50, 5:60] = True
    sample.gt_masks = BitMasks(masks)
    image = torch.randint(0, 256, (3, 100, 90)).float()
    with EventStorage():
        losses = model([dict(image=image, instances=sample, height=100, width=90)])
    assert len(losses) == 5 and all(torch.isfinite(loss) for loss in losses.values())
    sum(losses.values()).backward()
    without = [
        n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()
    ]
    assert not [name for name in without if name.startswith('backbone.net.')]
    (result,) = model.eval()([dict(image=image, height=100, width=90)])
    assert result['instances'].image_size == (100, 90)
