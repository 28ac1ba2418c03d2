"""Published detectors: the state dicts of transformers' model and of EdgeCrafter's source."""

from __future__ import annotations

import os
from pathlib import Path

import mmengine
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

from helpers import deim
from helpers.edgecrafter import VARIABLE, edgecrafter
from helpers.grid import CONFIGS
from rope_dense.checkpoints import CheckpointError
from rope_dense.checkpoints.detectors import (
    PUBLISHED_MODELS,
    convert_detector,
    find_detector,
    to_published,
)
from rope_dense.project.weights import load_from_source, preload_tested_weights
from rope_dense_command import command

IMAGES = [(64, 64), (96, 160)]


def predict(model: nn.Module, image: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        prediction = model.bbox_head(model.extract_feat(image))
    return prediction.logits, prediction.boxes


def as_published(model: nn.Module) -> dict[str, Tensor]:
    """With the layer that the authors have not as transformers' conversion writes it."""
    weights, channels = model.state_dict(), model.config.d_model
    norm = dict(weight=torch.ones(channels), bias=torch.zeros(channels))
    weights |= {f'model.enc_output.1.{key}': x for key, x in norm.items()}
    weights['model.enc_output.0.weight'] = torch.eye(channels)
    return weights | {'model.enc_output.0.bias': torch.zeros(channels)}


@pytest.mark.parametrize('size', 'smlx')
def test_transformers_detector_is_the_same_in_ours(size: str) -> None:
    """All sizes, by ``load_from`` of a file as transformers saves it."""
    reference = deim.theirs(size)
    ours = deim.ours(size)
    contents = convert_detector(as_published(reference), 'file')
    ours.load_state_dict(contents['state_dict'])
    for side in IMAGES:
        image = torch.randn(2, 3, *side)
        with torch.no_grad():
            expected = reference(image)
        logits, boxes = predict(ours, image)
        assert deim.close(logits, expected.logits) and deim.close(
            boxes, expected.pred_boxes
        )


@pytest.mark.parametrize('size', 'smlx')
def test_deimv2_s_own_layout_and_back(size: str) -> None:
    """Names of DEIMv2's code that transformers' conversion reads; nothing is lost on the way."""
    model = deim.ours(size)
    deim.randomise(model)
    weights = model.state_dict()
    published = to_published(weights, 'deimv2')
    names = [
        'backbone.sta.stem.0.weight',
        'backbone.sta.conv3.2.running_mean',
        'backbone.convs.1.weight',
        'backbone.norms.2.bias',
        'encoder.encoder.0.layers.0.self_attn.in_proj_weight',
        'encoder.encoder.0.layers.0.linear1.weight',
        'encoder.fpn_blocks.0.cv2.0.bottlenecks.0.conv2.conv.weight',
        'encoder.pan_blocks.1.cv4.norm.weight',
        'encoder.downsample_convs.0.0.cv2.conv.weight',
        'decoder.decoder.layers.1.swish_ffn.w12.bias',
        'decoder.decoder.layers.0.norm3.scale',
        'decoder.decoder.layers.0.gateway.norm.scale',
        'decoder.decoder.lqe_layers.0.reg_conf.layers.1.weight',
        'decoder.dec_bbox_head.1.layers.2.bias',
        'decoder.pre_bbox_head.layers.0.weight',
        'decoder.query_pos_head.layers.1.weight',
        'decoder.denoising_class_embed.weight',
    ]
    vit = 'backbone.dinov3._model.' if size in 'sm' else 'backbone.dinov3.'
    names += [
        f'{vit}cls_token',
        f'{vit}rope_embed.periods',
        f'{vit}blocks.0.attn.qkv.weight',
    ]
    if size == 'x':
        names += [f'{vit}blocks.0.mlp.w3.weight', f'{vit}blocks.0.ls1.gamma']
    assert published.keys() >= set(names)
    contents = dict(ema=dict(module=published, updates=3), model={})
    found = find_detector(contents)
    assert found is not None and found[0] is PUBLISHED_MODELS['deimv2']
    back = convert_detector(contents, 'file')['state_dict']
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[key], x) for key, x in weights.items())


def without_memory(path: Path) -> dict[str, Tensor]:
    """Zeros under the keys of a config's model."""
    init_default_scope('mmdet')
    with torch.device('meta'):
        model = MODELS.build(Config.fromfile(path).model)
    zeros = {True: torch.zeros(()), False: torch.zeros((), dtype=torch.long)}
    return {
        key: zeros[x.is_floating_point()].expand(x.shape)
        for key, x in model.state_dict().items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    'path', sorted((CONFIGS / 'deim').glob('*.py')), ids=lambda p: p.stem
)
def test_every_key_of_the_full_sizes(path: Path) -> None:
    """The configs' models to their authors' layouts and back."""
    kind, weights = (
        'edgecrafter' if path.stem.startswith('ec') else 'deimv2',
        without_memory(path),
    )
    published = to_published(weights, kind)
    found = find_detector(published)
    assert found is not None and found[0] is PUBLISHED_MODELS[kind]
    back = convert_detector(published, path.stem)['state_dict']
    assert {key: x.shape for key, x in back.items()} == {
        k: x.shape for k, x in weights.items()
    }


@pytest.mark.parametrize('size', 'smlx')
@pytest.mark.parametrize('kind', ['ecdet', 'ecseg'])
def test_full_sizes_are_those_of_edgecrafter(kind: str, size: str) -> None:
    """Keys and shapes of the model of its YAML files."""
    paths = list((CONFIGS / 'deim').glob(f'{kind}-{size}_*.py'))
    source = edgecrafter('ecvit')
    folder = Path(os.environ[VARIABLE], 'ecdetseg', 'configs')
    settings: dict[str, dict] = {}
    for name in (
        'ecdet/ecdet',
        f'ecdet/ecdet_{size}',
        *(['ecseg/ecseg'] * (kind == 'ecseg')),
    ):
        for part, values in mmengine.load(folder / f'{name}.yml').items():
            if isinstance(values, dict):
                settings.setdefault(part, {}).update(values)
    settings['ViTAdapter'] |= dict(weights_path=None, skip_load_backbone=True)
    if kind == 'ecseg':
        settings['ECTransformer']['eval_spatial_size'] = [640, 640]
    theirs = {
        'backbone': source.ViTAdapter(**settings['ViTAdapter']),
        'encoder': edgecrafter('hybrid_encoder').HybridEncoder(
            **settings['HybridEncoder']
        ),
        'decoder': edgecrafter('decoder').ECTransformer(
            80, **settings['ECTransformer']
        ),
    }
    expected = {
        f'{name}.{key}': x.shape
        for name, part in theirs.items()
        for key, x in part.state_dict().items()
        if not computed_key(f'.{key}')
    }
    (path,) = paths
    published = to_published(without_memory(path), 'edgecrafter')
    assert {key: x.shape for key, x in published.items()} == expected


def ecdet(masks: bool = False, proj_dim: int | None = 48) -> nn.Module:
    """The source's whole model: backbone, encoder, decoder, as its YAML builds it."""
    hidden = proj_dim or 64
    backbone = edgecrafter('ecvit').ViTAdapter(
        'ecvits',
        interaction_indexes=[10, 11],
        embed_dim=64,
        num_heads=1,
        proj_dim=proj_dim,
        skip_load_backbone=True,
    )
    encoder = edgecrafter('hybrid_encoder').HybridEncoder(
        [hidden] * 3,
        hidden_dim=hidden,
        dim_feedforward=64,
        dropout=0.0,
        expansion=0.75,
        depth_mult=0.67,
        csp_type='csp2',
        fuse_op='sum',
    )
    decoder = edgecrafter('decoder').ECTransformer(
        num_classes=7,
        hidden_dim=hidden,
        num_queries=20,
        feat_channels=[hidden] * 3,
        num_points=[3, 6, 3],
        num_layers=3,
        dim_feedforward=64,
        num_denoising=20,
        **(dict(mask_downsample_ratio=4, eval_spatial_size=[96, 96]) if masks else {}),
    )
    kind = edgecrafter('modeling').ECSeg if masks else edgecrafter('modeling').ECDet
    model = kind(backbone, encoder, decoder)
    deim.randomise(model)
    backbone.backbone.rope_embed._init_weights()
    return model.eval()


def our_ecdet(masks: bool = False, proj_dim: int | None = 48) -> nn.Module:
    hidden = proj_dim or 64
    arch = dict(MODELS.get('RoPEViT').ARCHS['ecvit_tiny'], embed_dims=64, num_heads=1)
    head = dict(
        type='DEIMHead',
        num_classes=7,
        embed_dims=hidden,
        num_queries=20,
        denoising=dict(num_queries=20),
        decoder=dict(num_layers=3, feedforward_channels=64, norm='layer', ffn='mlp'),
    )
    return MODELS.build(
        dict(
            type='DEIM',
            data_preprocessor=dict(type='mmdet.DetDataPreprocessor'),
            backbone=dict(type='RoPEViT', arch=arch, out_indices=(10, 11)),
            neck=dict(type='MeanMapPyramid', in_channels=64, out_channels=proj_dim),
            encoder=dict(
                type='DEIMEncoder',
                in_channels=(hidden,) * 3,
                embed_dims=hidden,
                feedforward_channels=64,
                num_blocks=2,
                expansion=0.75,
                act='SiLU',
            ),
            bbox_head=dict(head, masks=dict(eval_blocks=1)) if masks else head,
            test_cfg=dict(max_per_img=20),
        )
    ).eval()


@pytest.mark.parametrize('masks, proj_dim', [(False, 48), (False, None), (True, 48)])
def test_edgecrafter_s_detectors_are_the_same_in_ours(
    masks: bool, proj_dim: int | None
) -> None:
    """Both directions, strictly; its outputs for a square image are ours."""
    theirs, ours = ecdet(masks, proj_dim), our_ecdet(masks, proj_dim)
    contents = convert_detector(dict(model=theirs.state_dict(), last_epoch=3), 'file')
    ours.load_state_dict(contents['state_dict'])
    image = torch.randn(2, 3, 96, 96)
    with torch.no_grad():
        expected = theirs(image)
    logits, boxes = predict(ours, image)
    assert deim.close(logits, expected['pred_logits'])
    assert deim.close(boxes, expected['pred_boxes'])
    back = to_published(ours.state_dict(), 'edgecrafter')
    weights = theirs.state_dict()
    computed = {key for key in weights if key not in back}
    assert all(map(computed_key, computed))
    assert not back.keys() - weights.keys()
    assert all(torch.equal(x, weights[key]) for key, x in back.items())


def computed_key(key: str) -> bool:
    ends = ('.up', '.reg_scale', '.num_points_scale', '.anchors', '.valid_mask')
    return key.endswith(ends)


# ---------------------------------------------------------------- files


@pytest.mark.slow
def test_a_file_of_the_authors_is_tested_and_converted(tmp_path: Path) -> None:
    """By the reader of the tools, strictly, and by the tool itself, there and back."""
    model = deim.ours('s')
    deim.randomise(model)
    weights = model.state_dict()
    source = tmp_path / 'deimv2.pth'
    torch.save(dict(model=to_published(weights, 'deimv2'), last_epoch=1), source)
    preload_tested_weights(str(source), model)
    loaded = load_from_source(str(source))['state_dict']
    assert all(torch.equal(loaded[key], x) for key, x in weights.items())
    for arguments in (
        ['deimv2.pth', 'ours.pth'],
        ['ours.pth', 'back.pth', '--to', 'deimv2'],
    ):
        paths = [
            str(tmp_path / name) if name.endswith('.pth') else name
            for name in arguments
        ]
        assert command('convert_checkpoint')(paths) == 0
    back = torch.load(tmp_path / 'back.pth', weights_only=True)['model']
    given = torch.load(source, weights_only=True)['model']
    assert back.keys() == given.keys()
    assert all(torch.equal(back[key], x) for key, x in given.items())


def test_other_files_stay_as_they_are() -> None:
    for contents in (
        {},
        dict(model=None),
        dict(state_dict={'backbone.x': torch.zeros(1)}),
    ):
        assert convert_detector(contents, 'file') is contents


@pytest.mark.parametrize(
    'change, says',
    [
        ({'decoder.extra': torch.zeros(1)}, r'not known: decoder\.extra'),
        (
            {'decoder.decoder.up': torch.tensor([0.7])},
            r'up is 0\.7, and 0\.5 is supported',
        ),
        ({'backbone.dinov3._model.blocks.0.extra': torch.zeros(1)}, None),
    ],
)
def test_what_does_not_fit_is_named(change: dict, says: str | None) -> None:
    model = deim.ours('s')
    published = to_published(model.state_dict(), 'deimv2') | change
    if says is None:  # the model has no such key: the loader says so
        with pytest.raises(RuntimeError, match='extra'):
            model.load_state_dict(convert_detector(published, 'file')['state_dict'])
        return
    with pytest.raises(CheckpointError, match=says):
        convert_detector(published, 'file')


def test_a_trained_layer_of_transformers_is_refused() -> None:
    weights = as_published(deim.theirs('s'))
    weights['model.enc_output.0.weight'] = torch.ones_like(
        weights['model.enc_output.0.weight']
    )
    with pytest.raises(CheckpointError, match='enc_output was trained'):
        convert_detector(weights, 'file')


def test_weights_of_another_detector_are_refused() -> None:
    with pytest.raises(
        CheckpointError, match='not the weights of a detector of EdgeCrafter'
    ):
        to_published(deim.ours('s').state_dict(), 'edgecrafter')
