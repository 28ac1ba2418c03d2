"""Loading through init_cfg: checkpoints of our own, and what the configuration decides."""

import ast
import copy
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.logging import MessageHub
from mmengine.model import Sequential
from mmengine.registry import MODELS
from torch import nn

import rope_dense
from helpers.small_checkpoints import (
    AXIAL_SWIN,
    RPB_SWIN,
    SWIN,
    VIT,
    Weights,
    load,
    refusal,
    saved,
    swin,
    vit,
)
from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.backbones.attention import Attention
from rope_dense.backbones.base import Backbone
from rope_dense.backbones.block import Block, Mlp
from rope_dense.backbones.layers import resize_grid
from rope_dense.checkpoints import CheckpointError
from rope_dense.rope import AxialRoPE


class AveragedModel(nn.Module):
    """Named as mmengine's wrapper for the average is."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def training_checkpoint(weights: Weights) -> dict:
    """A file as mmengine's Runner saves it: weights among numbers, arrays and log histories."""
    hub = MessageHub('test_checkpoints')
    hub.update_scalars(dict(loss=dict(value=0.5, count=2), lr=1e-4))
    hub.update_info('scores', np.float64(0.5))
    hub.update_info('array', np.arange(3))
    return dict(
        meta=dict(
            epoch=1, iter=9, cfg='model = dict()', dataset_meta=dict(classes=('a', 'b'))
        ),
        state_dict=weights,
        message_hub=hub.state_dict(),
        optimizer=torch.optim.AdamW([nn.Parameter(torch.ones(2))]).state_dict(),
        param_schedulers=[dict(base_values=[1e-4])],
    )


@pytest.mark.parametrize('wrapped', [False, True])
def test_backbone_of_a_detector(wrapped: bool, tmp_path: Path):
    trained = RoPEViT(**VIT)
    detector = nn.ModuleDict(dict(backbone=trained, neck=nn.Linear(2, 2)))
    weights = (AveragedModel(detector) if wrapped else detector).state_dict()
    checkpoint = training_checkpoint(weights)
    other = {
        f'module.{key}': torch.zeros_like(value)
        for key, value in detector.state_dict().items()
    }
    checkpoint['ema_state_dict'] = dict(
        other, steps=torch.tensor(3)
    )  # not the average: swapped
    path = saved(checkpoint, tmp_path)
    for prefix in (None, 'backbone', 'backbone.'):
        model = load(RoPEViT, path, prefix, **VIT)
        for block, expected in zip(model.blocks, trained.blocks, strict=True):
            assert torch.equal(block.attn.rope.freqs, expected.attn.rope.freqs)
        assert torch.equal(
            model.blocks[2].attn.qkv.weight, trained.blocks[2].attn.qkv.weight
        )
    text = refusal(RoPEViT, path, 'encoder', **VIT)
    assert "no weights under prefix='encoder.'; the file has backbone, neck" in text


def test_other_prefix_is_suggested(tmp_path: Path):
    weights = {
        f'tower.backbone.{key}': x for key, x in RoPEViT(**VIT).state_dict().items()
    }
    path = saved({'state_dict': weights}, tmp_path)
    assert "Perhaps prefix='tower.backbone.'" in refusal(RoPEViT, path, **VIT)
    load(RoPEViT, path, 'tower.backbone', **VIT)


def load_network(path: str, network: str | None) -> RoPEViT:
    init_cfg = dict(type='Pretrained', checkpoint=path, network=network)
    model = RoPEViT(init_cfg=init_cfg, **VIT)
    model.init_weights()
    return model


@pytest.mark.parametrize('flat', [True, False])
def test_of_a_teacher_and_a_student_one_is_named(flat: bool, tmp_path: Path):
    networks = {}
    for name in ('teacher', 'student'):
        networks[name] = {
            f'backbone.{k}': x for k, x in RoPEViT(**VIT).state_dict().items()
        }
        networks[name]['head.weight'] = torch.zeros(2)
    contents = {'optimizer': {'lr': 0.1}, **networks}
    if flat:
        keys = {
            f'{name}.{k}': x for name, part in networks.items() for k, x in part.items()
        }
        contents = {'model': {**keys, 'dino_loss.center': torch.zeros(2)}}
    path = saved(contents, tmp_path)
    text = refusal(RoPEViT, path, **VIT)
    assert "set network='teacher' or network='student' in init_cfg" in text
    for name, part in networks.items():
        loaded = load_network(path, name).state_dict()
        assert all(torch.equal(x, part[f'backbone.{key}']) for key, x in loaded.items())


def test_a_single_network_needs_no_name(tmp_path: Path):
    weights = RoPEViT(**VIT).state_dict()
    alone = {f'student.backbone.{key}': x for key, x in weights.items()}
    for contents in ({'student': weights, 'epoch': 3}, alone, {'state_dict': alone}):
        path = saved(contents, tmp_path)
        assert torch.equal(load(RoPEViT, path, **VIT).cls_token, weights['cls_token'])
        with pytest.raises(CheckpointError, match="network='other'"):
            load_network(path, 'other')
    # Not the teacher of a detector that was distilled.
    whole = {f'backbone.{key}': x for key, x in weights.items()}
    path = saved({**whole, 'teacher.backbone.cls_token': torch.zeros(1)}, tmp_path)
    assert torch.equal(load(RoPEViT, path, **VIT).cls_token, weights['cls_token'])


def test_half_precision_and_parameters(tmp_path: Path):
    weights = {key: nn.Parameter(value.half()) for key, value in vit().items()}
    model = load(RoPEViT, saved(weights, tmp_path), **VIT)
    assert model.cls_token.dtype == torch.float32
    assert torch.equal(model.cls_token, weights['cls_token'].float())


# ---------------------------------------------------------------- what the configuration decides


@pytest.mark.parametrize('grid', [(14, 14), (32, 32), (10, 7)])
def test_position_embedding_is_resized_to_the_image_size(
    grid: tuple[int, int], tmp_path: Path
):
    weights = vit(ape=True)
    img_size = (16 * grid[0], 16 * grid[1])
    model = load(
        RoPEViT, saved(weights, tmp_path), use_ape=True, img_size=img_size, **VIT
    )
    as_map = weights['pos_embed'].reshape(1, 14, 14, 64).permute(0, 3, 1, 2)
    expected = F.interpolate(
        as_map, grid, mode='bicubic', antialias=False, align_corners=False
    )
    torch.testing.assert_close(
        model.pos_embed,
        expected.permute(0, 2, 3, 1).reshape(1, -1, 64),
        rtol=1e-6,
        atol=1e-6,
    )


@pytest.mark.parametrize('window_size', [4, 7, (5, 3)])
def test_bias_tables_are_resized_to_the_window(window_size, tmp_path: Path):
    weights = swin('rpb')
    settings = dict(RPB_SWIN, pretrain_window_size=window_size)
    model = load(RoPESwin, saved(weights, tmp_path), **settings)
    height, width = (
        window_size if isinstance(window_size, tuple) else (window_size,) * 2
    )
    table = weights['layers.1.blocks.2.attn.relative_position_bias_table']
    expected = F.interpolate(
        table.T.reshape(1, 2, 7, 7), (2 * height - 1, 2 * width - 1), mode='bicubic'
    )
    resized = model.layers[1].blocks[2].attn.relative_position_bias_table
    torch.testing.assert_close(resized, expected[0].flatten(1).T, rtol=1e-6, atol=1e-6)


def test_vitdet_drops_the_class_token_and_starts_its_relative_positions_at_zero(
    tmp_path: Path,
):
    path = saved(vit(mixed=False, ape=True), tmp_path)
    vitdet = dict(
        with_cls_token=False,
        window_block_indexes=(0,),
        attention=dict(type='DecomposedBias'),
        use_ape=True,
    )
    model = load(RoPEViT, path, rope=None, **vitdet, **VIT)
    assert not model.blocks[1].attn.rel_pos_h.any()


def test_a_checkpoint_of_another_head_keeps_its_output_norms(tmp_path: Path):
    trained = RoPESwin(**SWIN)
    nn.init.normal_(trained.norm1.weight)
    weights = {f'backbone.{key}': value for key, value in trained.state_dict().items()}
    model = load(RoPESwin, saved(weights, tmp_path), **dict(SWIN, out_indices=(1,)))
    assert torch.equal(model.norm1.weight, trained.norm1.weight)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float16, torch.bfloat16])
def test_axial_frequencies_are_recomputed(dtype: torch.dtype, tmp_path: Path):
    weights = {key: value.to(dtype) for key, value in swin('axial').items()}
    model = load(RoPESwin, saved(weights, tmp_path), **AXIAL_SWIN)
    assert not any('freqs' in key for key in model.state_dict())


def test_one_line_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines = []
    monkeypatch.setattr(
        'rope_dense.checkpoints.load.print_log', lambda text, logger: lines.append(text)
    )
    path = saved({'model': swin('rpb')}, tmp_path)
    load(RoPESwin, path, **dict(RPB_SWIN, pretrain_window_size=7))
    assert lines == [
        f'RoPESwin: 85 tensors from {path} (Swin with relative position bias); dropped '
        'head.weight, head.bias, layers.*.blocks.*.attn.relative_position_index (6 times), '
        'layers.*.blocks.*.attn_mask (3 times), norm.weight, norm.bias; resized '
        'layers.*.blocks.*.attn.relative_position_bias_table (6 times); new '
        'norm0.weight, norm0.bias, norm1.weight, norm1.bias'
    ]


# ---------------------------------------------------------------- a backbone of another kind


class Rows(Backbone):
    """Two blocks under names of its own, after a table over 4 x side positions."""

    def __init__(self, side: int = 4, init_cfg: dict | None = None) -> None:
        super().__init__(init_cfg)
        self.pretrain_grid, self.out_channels, self.with_cp = (4, side), [8], False
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.places = nn.Parameter(torch.randn(1, 4 * side, 8))
        self.steps = nn.ModuleList(
            Block(Attention(8, 1, rope=AxialRoPE(8, 1)), Mlp(8, 8), dict(type='LN'))
            for _ in range(2)
        )

    @property
    def ordered_blocks(self) -> list[Block]:
        return list(self.steps)

    def position_tables(self) -> dict[str, tuple[int, int]]:
        return {'places': self.pretrain_grid}

    def map_sizes(self, height: int, width: int) -> list[tuple[int, int]]:
        return [(height // 4, width // 4)]

    def layer_of(self, name: str) -> int:
        return 0


def test_a_backbone_of_another_kind_needs_to_declare_its_tables_only(tmp_path: Path):
    trained = Rows()
    path = saved({'state_dict': trained.state_dict()}, tmp_path)
    same, wider = load(Rows, path), load(Rows, path, side=6)
    assert torch.equal(same.places, trained.places)
    expected = resize_grid(trained.places, (4, 4), (4, 6))
    torch.testing.assert_close(wider.places, expected)
    assert torch.equal(wider.steps[1].attn.qkv.weight, trained.steps[1].attn.qkv.weight)
    weights = {
        key: x for key, x in trained.state_dict().items() if key != 'steps.1.norm2.bias'
    }
    text = refusal(Rows, saved(weights, tmp_path))
    assert text.endswith('does not fit Rows:\n  missing: steps.1.norm2.bias')
    text = refusal(Rows, saved(vit(), tmp_path))
    assert 'missing: places, stem.weight' in text and 'nearest' not in text


# ---------------------------------------------------------------- as a part of mmengine


def test_backbones_do_not_import_checkpoints():
    folder = Path(rope_dense.__file__).parent
    for path in [*folder.glob('rope/**/*.py'), *folder.glob('backbones/**/*.py')]:
        imports = [
            ast.unparse(node)
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, (ast.Import, ast.ImportFrom))
        ]
        assert not any('checkpoints' in line for line in imports), path


def test_strict_initialisation_by_its_own_name(tmp_path: Path):
    weights = vit()
    init_cfg = dict(type='StrictPretrained', checkpoint=saved(weights, tmp_path))
    model = RoPEViT(init_cfg=init_cfg, **VIT)
    model.init_weights()
    assert torch.equal(model.cls_token, weights['cls_token'])
    with pytest.raises(CheckpointError, match='does not fit RoPEViT'):
        RoPEViT(init_cfg=init_cfg, **VIT, use_ape=True).init_weights()


def test_copied_and_frozen_in_a_larger_model(tmp_path: Path):
    weights = vit()
    init_cfg = dict(type='Pretrained', checkpoint=saved(weights, tmp_path))
    backbone = MODELS.build(
        dict(type='RoPEViT', frozen_stages=2, init_cfg=init_cfg, **VIT)
    )
    model = copy.deepcopy(Sequential(backbone))
    model.init_weights()
    assert torch.equal(model[0].cls_token, weights['cls_token'])
    assert not torch.equal(backbone.cls_token, weights['cls_token'])
    assert not model[0].blocks[1].norm1.weight.requires_grad
    assert model[0].blocks[2].norm1.weight.requires_grad


def test_what_names_no_checkpoint(tmp_path: Path):
    path = Path(saved(vit(), tmp_path))
    load(RoPEViT, path, **VIT)
    for checkpoint in (None, 3, {}):
        text = refusal(RoPEViT, checkpoint, **VIT)
        assert text == f'checkpoint must be a path or an address, got {checkpoint!r}'
    assert 'got None' in refusal(RoPEViT, None, 'backbone', **VIT)
    init_cfg = dict(type='Pretrained', checkpoint=path, map_location='cpu')
    with pytest.raises(
        ValueError, match=r"init_cfg has \['map_location'\], allowed are"
    ):
        RoPEViT(init_cfg=init_cfg, **VIT)


def test_other_initialisations_are_mmengine_s(tmp_path: Path):
    model = RoPEViT(init_cfg=dict(type='Constant', val=0.25, layer='Linear'), **VIT)
    model.init_weights()
    assert (model.blocks[0].mlp.fc1.weight == 0.25).all()
    weights = vit()
    pretrained = dict(type='Pretrained', checkpoint=saved(weights, tmp_path))
    with pytest.raises(
        ValueError, match="'Pretrained' sets all weights, so it stands alone"
    ):
        RoPEViT(init_cfg=[model.init_cfg, pretrained], **VIT)
    model = RoPEViT(init_cfg=[pretrained], **VIT)
    model.init_weights()
    assert torch.equal(model.cls_token, weights['cls_token'])
