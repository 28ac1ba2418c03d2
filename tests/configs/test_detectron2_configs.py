"""configs/detectron2: LazyConfigs that plug in the backbones of the mm configs, and the recipes."""

import re
from collections.abc import Iterator
from pathlib import Path

import hydra
import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from helpers import detectron2_standin
from helpers.grid import CONFIGS, Leaf, build_offline
from helpers.recipes import SCHEDULES

FOLDER = CONFIGS / 'detectron2'
PAGE = CONFIGS.parent / 'docs' / 'detectron2.md'
# Config -> the mm config with the same backbone.
DINO = {
    'dino_vitdet_b_rope_mixed_12ep': Leaf('dino_vitdet', 'b', 'rope-mixed'),
    'dino_vitdet_l_rope_mixed_12ep': Leaf('dino_vitdet', 'l', 'rope-mixed'),
    'dino_swin_t_rope_mixed_12ep': Leaf('dino_swin', 't', 'rope-mixed'),
    'dino_swin_s_rope_mixed_12ep': Leaf('dino_swin', 's', 'rope-mixed'),
    'dino_swin_b_rope_mixed_12ep': Leaf('dino_swin', 'b', 'rope-mixed'),
}
MASK_RCNN = {
    'mask_rcnn_vitdet_b_rope_mixed_100ep': Leaf('dino_vitdet', 'b', 'rope-mixed'),
    'mask_rcnn_vitdet_l_rope_mixed_100ep': Leaf('dino_vitdet', 'l', 'rope-mixed'),
}
ALL = DINO | MASK_RCNN
DEVICE = 'cuda'  # of detrex's DINO, which trains on no other
every_config = pytest.mark.parametrize('name', ALL)
every_dino = pytest.mark.parametrize('name', DINO)


@pytest.fixture(autouse=True, scope='module')
def detectron2() -> Iterator[None]:
    with detectron2_standin.importable():
        yield


def load(name: str) -> DictConfig:
    from detectron2.config import LazyConfig

    if name in DINO and detectron2_standin.is_real():
        pytest.importorskip(
            'projects.dino.modeling', reason='needs detrex, run in its root'
        )
    return LazyConfig.load(str(FOLDER / f'{name}.py'))


def backbone_of(cfg: DictConfig) -> DictConfig:
    """Ours, within a pyramid or not."""
    return cfg.model.backbone.get('net', cfg.model.backbone)


def test_there_are_no_others() -> None:
    assert {path.stem for path in FOLDER.glob('*.py')} == {'backbones', *ALL}


def test_the_page_lists_every_config_with_the_paper_s_result() -> None:
    text = PAGE.read_text()
    links = re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)', text)
    configs = [
        link for link in links if 'configs/detectron2' in link and link.endswith('.py')
    ]
    assert sorted(Path(link).stem for link in configs) == sorted(ALL)
    assert all((PAGE.parent / link).exists() for link in links)
    for name, leaf in DINO.items():
        (row,) = (line for line in text.splitlines() if f'{name}.py) |' in line)
        assert float(row.split(' | ')[-1].strip(' |')) == leaf.results[0]


@every_config
def test_backbones_are_those_of_the_other_stack(name: str) -> None:
    expected = ALL[name].load().model.backbone.to_dict()
    if 'ViT' in expected['type']:  # the reference of sweeps, which detectron2 has not
        assert expected.pop('rope_scaling')['type'] == 'none'
    weights, kind = expected.pop('init_cfg')['checkpoint'], expected.pop('type')
    actual = OmegaConf.to_container(backbone_of(load(name)))
    assert (actual.pop('checkpoint'), actual.pop('_target_').__name__) == (
        weights,
        kind,
    )
    sequences = ('out_indices', 'window_block_indexes')
    assert actual == {k: list(v) if k in sequences else v for k, v in expected.items()}


@every_config
def test_backbones_build_and_fit_what_is_around_them(name: str) -> None:
    cfg = load(name)
    net = backbone_of(cfg)
    net.checkpoint = None
    with torch.device('meta'):
        model = hydra.utils.instantiate(net, _convert_='all')
    shapes = model.output_shape()
    if 'net' in cfg.model.backbone:
        (only,) = shapes
        assert only == cfg.model.backbone.in_feature and shapes[only].stride == 16
    else:
        given = cfg.model.neck.input_shapes
        assert list(shapes) == list(cfg.model.neck.in_features) == list(given)
        assert [shapes[n].channels for n in shapes] == [
            given[n].channels for n in shapes
        ]


@every_config
def test_weights_are_loaded_by_the_backbone(name: str) -> None:
    cfg = load(name)
    assert cfg.train.init_checkpoint == ''
    assert cfg.train.output_dir == f'./output/{name}'
    if name in DINO:
        assert cfg.dataloader.evaluator.output_dir == cfg.train.output_dir


@every_config
def test_frequencies_have_no_weight_decay(name: str) -> None:
    exempt = load(name).optimizer.params.overrides
    assert exempt.freqs == {'weight_decay': 0.0}
    # detrex decays all but norms, ViTDet in detectron2 position embeddings neither.
    assert list(exempt) == ['freqs'] if name in DINO else 'pos_embed' in exempt


@pytest.mark.parametrize('size, rate, blocks', [('b', 0.7, 12), ('l', 0.8, 24)])
def test_mask_rcnn_has_the_recipe_of_vitdet(
    size: str, rate: float, blocks: int
) -> None:
    cfg = load(f'mask_rcnn_vitdet_{size}_rope_mixed_100ep')
    assert (cfg.train.max_iter, cfg.train.amp.enabled) == (184375, True)
    assert cfg.train.ddp.fp16_compression
    assert (cfg.optimizer.lr, cfg.optimizer.weight_decay) == (1e-4, 0.1)
    assert cfg.optimizer.params.weight_decay_norm == 0
    factor = cfg.optimizer.params.lr_factor_func
    assert factor('backbone.net.patch_embed.proj.weight') == pytest.approx(
        rate ** (blocks + 1)
    )
    assert factor(f'backbone.net.blocks.{blocks - 1}.attn.rope.freqs') == pytest.approx(
        rate
    )
    assert (
        factor('backbone.simfp_2.0.weight')
        == factor('roi_heads.box_head.fc1.weight')
        == 1
    )
    warm_up = cfg.lr_multiplier
    assert warm_up.warmup_length * cfg.train.max_iter == pytest.approx(250)
    assert warm_up.warmup_factor == 0.001
    assert list(warm_up.scheduler['values']) == [1.0, 0.1, 0.01]
    assert list(warm_up.scheduler.milestones) == [163889, 177546]
    data = cfg.dataloader.train
    assert (data.total_batch_size, data.mapper.image_format) == (64, 'RGB')
    flip, resize, crop = data.mapper.augmentations
    assert flip.horizontal and (resize.min_scale, resize.max_scale) == (0.1, 2.0)
    assert (
        (resize.target_height, resize.target_width)
        == tuple(crop.crop_size)
        == (1024, 1024)
    )
    assert crop.pad is False and data.mapper.recompute_boxes
    (resize,) = cfg.dataloader.test.mapper.augmentations
    assert (resize.short_edge_length, resize.max_size) == (1024, 1024)


@every_dino
def test_warm_up(name: str) -> None:
    cfg = load(name)
    iterations = cfg.lr_multiplier.warmup_length * 90000
    assert iterations == pytest.approx(250 if 'vitdet' in name else 0)
    assert cfg.lr_multiplier.warmup_factor == 0.001


# With detrex itself: every item of the recipe.

ITEMS = {
    # training
    'train.max_iter': 90000,
    'train.eval_period': 5000,
    'train.checkpointer.period': 5000,
    'train.amp.enabled': False,
    'train.model_ema.enabled': False,
    'train.clip_grad.enabled': True,
    'train.clip_grad.params.max_norm': 0.1,
    'train.clip_grad.params.norm_type': 2,
    'optimizer.lr': 1e-4,
    'optimizer.betas': [0.9, 0.999],
    'optimizer.weight_decay': 1e-4,
    'optimizer.params.weight_decay_norm': 0.0,
    'dataloader.train.total_batch_size': 16,
    'dataloader.train.mapper.img_format': 'RGB',
    'dataloader.train.mapper.augmentation.1.max_size': 1333,
    'dataloader.train.mapper.augmentation_with_crop.1.short_edge_length': [
        400,
        500,
        600,
    ],
    'dataloader.train.mapper.augmentation_with_crop.2.crop_size': [384, 600],
    'dataloader.test.mapper.augmentation.0.short_edge_length': 800,
    'dataloader.test.mapper.augmentation.0.max_size': 1333,
    # model
    'model.num_classes': 80,
    'model.num_queries': 900,
    'model.aux_loss': True,
    'model.dn_number': 100,
    'model.label_noise_ratio': 0.5,
    'model.box_noise_scale': 1.0,
    'model.pixel_mean': [123.675, 116.28, 103.53],
    'model.pixel_std': [58.395, 57.12, 57.375],
    'model.input_format': 'RGB',
    'model.position_embedding.num_pos_feats': 128,
    'model.position_embedding.temperature': 10000,
    'model.position_embedding.normalize': True,
    'model.position_embedding.offset': -0.5,
    'model.neck.num_outs': 4,
    'model.neck.kernel_size': 1,
    'model.neck.out_channels': 256,
    'model.neck.norm_layer.num_groups': 32,
    'model.transformer.num_feature_levels': 4,
    'model.transformer.encoder.num_layers': 6,
    'model.transformer.encoder.feedforward_dim': 2048,
    'model.transformer.encoder.num_heads': 8,
    'model.transformer.encoder.ffn_dropout': 0.0,
    'model.transformer.decoder.num_layers': 6,
    'model.transformer.decoder.feedforward_dim': 2048,
    'model.transformer.decoder.num_heads': 8,
    'model.transformer.decoder.attn_dropout': 0.0,
    'model.criterion.matcher.cost_class': 2.0,
    'model.criterion.matcher.cost_bbox': 5.0,
    'model.criterion.matcher.cost_giou': 2.0,
    'model.criterion.weight_dict.loss_class': 1,
    'model.criterion.weight_dict.loss_bbox': 5.0,
    'model.criterion.weight_dict.loss_giou_dn': 2.0,
    'model.criterion.weight_dict.loss_bbox_enc': 5.0,
    'model.criterion.weight_dict.loss_giou_4': 2.0,
    'model.criterion.alpha': 0.25,
    'model.criterion.gamma': 2.0,
}
PYRAMID = {
    'model.backbone.out_channels': 256,
    'model.backbone.scale_factors': [2.0, 1.0, 0.5],
    'model.backbone.norm': 'LN',
    'model.neck.in_features': ['p3', 'p4', 'p5', 'p6'],
}


@pytest.fixture
def detrex() -> None:
    if not detectron2_standin.is_real():
        pytest.skip('needs detectron2 and detrex, which are in no package registry')


@pytest.mark.usefixtures('detrex')
@every_dino
def test_every_item_of_the_recipe(name: str) -> None:
    cfg = load(name)
    for path, expected in (ITEMS | PYRAMID if 'vitdet' in name else ITEMS).items():
        actual = OmegaConf.select(cfg, path)
        actual = (
            OmegaConf.to_container(actual) if OmegaConf.is_config(actual) else actual
        )
        assert (list(actual) if isinstance(actual, tuple) else actual) == expected, path
    factor = cfg.optimizer.params.lr_factor_func
    assert factor('backbone.net.blocks.0.attn.rope.freqs') == 0.1
    assert factor('neck.convs.0.conv.weight') == factor('transformer.level_embeds') == 1
    if 'vitdet' in name:  # the pyramid is part of the backbone
        assert factor('backbone.simfp_3.0.weight') == 0.1


@pytest.mark.usefixtures('detrex')
@every_dino
def test_learning_rates_are_those_of_the_other_stack(name: str) -> None:
    from detectron2.config import instantiate

    cfg, leaf = load(name), DINO[name]
    multiplier = instantiate(cfg.lr_multiplier)
    for iteration, expected in SCHEDULES[leaf.recipe].items():
        assert multiplier(iteration / cfg.train.max_iter) == pytest.approx(
            expected, rel=1e-5
        )


@pytest.mark.usefixtures('detrex')
@every_dino
def test_models_have_as_many_parameters_as_the_other_stack_s(name: str) -> None:
    from detectron2.config import instantiate

    cfg = load(name)
    backbone_of(cfg).checkpoint = None
    cfg.model.device = 'meta'
    with torch.device('meta'):
        model, other = instantiate(cfg.model), build_offline(DINO[name])
    numbers = [sum(p.numel() for p in m.parameters()) for m in (model, other)]
    assert numbers[0] == numbers[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason=f'needs {DEVICE}')
@pytest.mark.usefixtures('detrex')
@pytest.mark.parametrize(
    'name', ['dino_vitdet_b_rope_mixed_12ep', 'dino_swin_t_rope_mixed_12ep']
)
def test_a_training_step_in_detrex(name: str) -> None:
    from detectron2.config import instantiate
    from detectron2.structures import Boxes, Instances

    pytest.importorskip('detrex._C', reason='needs detrex with its operators')
    cfg = load(name)
    net = backbone_of(cfg)
    net.update(checkpoint=None, drop_path_rate=0.0)
    if 'vitdet' in name:
        net.update(
            arch=dict(embed_dims=32, depth=2, num_heads=2), window_block_indexes=[0]
        )
        net.layer_scale_init_value = 1.0
    else:
        net.arch = dict(embed_dims=16, depths=[1, 1, 1, 1], num_heads=[1, 2, 4, 8])
        for name, channels in zip(
            cfg.model.neck.in_features, (32, 64, 128), strict=True
        ):
            cfg.model.neck.input_shapes[name].channels = channels
    cfg.model.update(device=DEVICE, num_queries=10, dn_number=4)
    for part in ('encoder', 'decoder'):
        cfg.model.transformer[part].update(num_layers=1, feedforward_dim=32)
    model = instantiate(cfg.model).to(DEVICE).train()
    cfg.optimizer.params.model = model
    optimizer = instantiate(cfg.optimizer)
    sample = Instances((100, 130))
    sample.gt_boxes = Boxes(torch.tensor([[5.0, 8.0, 60.0, 50.0]]))
    sample.gt_classes = torch.tensor([1])
    image = torch.randint(0, 256, (3, 100, 130)).float()
    losses = model([dict(image=image, instances=sample)])
    total = sum(losses.values())
    assert torch.isfinite(total)
    total.backward()
    without = [n for n, p in model.backbone.named_parameters() if p.grad is None]
    assert without == []
    optimizer.step()
    rates = {
        p: (g['lr'], g['weight_decay'])
        for g in optimizer.param_groups
        for p in g['params']
    }
    freqs = [p for n, p in model.named_parameters() if n.endswith('rope.freqs')]
    assert freqs and all(rates[p] == (pytest.approx(1e-5), 0.0) for p in freqs)
