"""configs/nat against SHI-Labs' settings, and configs/research/ablation against the paper's tables.

The former are transcribed from SHI-Labs/Neighborhood-Attention-Transformer at d334f5b, detection/
and segmentation/; keys are (head, family), families as in the names of the configs.
"""

import copy
import itertools
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import InstanceData
from PIL import Image

from helpers.grid import CONFIGS, read, readme_options, value
from helpers.published import shi_nat
from helpers.small_checkpoints import saved
from rope_dense.backbones import RoPENAT
from rope_dense.commands.sweep.results import read_results
from rope_dense.rope import LogAxialRoPE

NAT, ABLATION = CONFIGS / 'nat', CONFIGS / 'research' / 'ablation'
# Drop path, learning rate, and the published results: box and mask AP, or mIoU at one scale and at
# several.
MASK, CASCADE, UPERNET = 'mask-rcnn', 'cascade-mask-rcnn', 'upernet'
RECIPES = {
    (MASK, 'nat', 'mini'): (0.2, 1e-4, 46.5, 41.7),
    (MASK, 'nat', 'tiny'): (0.2, 1e-4, 47.7, 42.6),
    (MASK, 'nat', 'small'): (0.35, 1e-4, 48.4, 43.2),
    (MASK, 'dinat', 'mini'): (0.2, 1e-4, 47.2, 42.5),
    (MASK, 'dinat', 'tiny'): (0.2, 1e-4, 48.6, 43.5),
    (MASK, 'dinat', 'small'): (0.35, 1e-4, 49.3, 44.0),
    (MASK, 'dinat-s', 'tiny'): (0.2, 1e-4, 46.6, 42.1),
    (MASK, 'dinat-s', 'small'): (0.35, 1e-4, 48.6, 43.5),
    (CASCADE, 'nat', 'mini'): (0.2, 1e-4, 50.3, 43.6),
    (CASCADE, 'nat', 'tiny'): (0.3, 1e-4, 51.4, 44.5),
    (CASCADE, 'nat', 'small'): (0.3, 1e-4, 52.0, 44.9),
    (CASCADE, 'nat', 'base'): (0.5, 1e-4, 52.3, 45.1),
    (CASCADE, 'dinat', 'mini'): (0.2, 1e-4, 51.2, 44.4),
    (CASCADE, 'dinat', 'tiny'): (0.3, 1e-4, 52.2, 45.1),
    (CASCADE, 'dinat', 'small'): (0.5, 1e-4, 52.9, 45.8),
    (CASCADE, 'dinat', 'base'): (0.6, 7.5e-5, 53.4, 46.2),
    (CASCADE, 'dinat-s', 'tiny'): (0.3, 1e-4, 51.0, 44.1),
    (CASCADE, 'dinat-s', 'small'): (0.5, 1e-4, 52.3, 45.2),
    (CASCADE, 'dinat-s', 'base'): (0.6, 7.5e-5, 52.6, 45.3),
    (UPERNET, 'nat', 'mini'): (0.2, 6e-5, 45.1, 46.4),
    (UPERNET, 'nat', 'tiny'): (0.3, 6e-5, 47.1, 48.4),
    (UPERNET, 'nat', 'small'): (0.5, 6e-5, 48.0, 49.5),
    (UPERNET, 'nat', 'base'): (0.5, 6e-5, 48.5, 49.7),
    (UPERNET, 'dinat', 'mini'): (0.2, 6e-5, 45.8, 47.2),
    (UPERNET, 'dinat', 'tiny'): (0.3, 6e-5, 47.8, 48.8),
    (UPERNET, 'dinat', 'small'): (0.5, 6e-5, 48.9, 49.9),
    (UPERNET, 'dinat', 'base'): (0.5, 6e-5, 49.6, 50.4),
    (UPERNET, 'dinat-s', 'tiny'): (0.3, 6e-5, 46.0, 47.4),
    (UPERNET, 'dinat-s', 'small'): (0.3, 6e-5, 48.6, 49.9),
    (UPERNET, 'dinat-s', 'base'): (0.3, 6e-5, 49.4, 50.2),
}
DILATIONS = {  # of the first blocks of each stage; those of NAT are 1
    (MASK, 'dinat'): ((1, 28, 1), (1, 7, 1, 14), (1, 3, 1, 5, 1, 7), (1, 3, 1, 3, 1)),
    (MASK, 'dinat-s'): ((1, 28), (1, 14), (1, 3, 1, 5, 1, 7), (1, 3)),
    (UPERNET, 'dinat'): ((1, 16, 1), (1, 4, 1, 8), (1, 2, 1, 3, 1, 4), (1, 2, 1, 2, 1)),
    (UPERNET, 'dinat-s'): ((1, 16), (1, 8), (1, 2, 1, 3, 1, 4), (1, 2)),
}
WEIGHTS = {
    'nat': 'nat/checkpoints/CLS/nat_{}.pth',
    'dinat': 'dinat/checkpoints/imagenet1k/dinat_{}_in1k_224.pth',
    'dinat-s': 'dinat/checkpoints/imagenet1k/dinat_s_{}_in1k_224.pth',
}
COCO = {
    'model.data_preprocessor.pad_size_divisor': 32,
    'model.neck.num_outs': 5,
    'model.rpn_head.anchor_generator.scales': [8],
    'model.roi_head.mask_head.num_convs': 4,
    'model.test_cfg.rcnn.max_per_img': 100,
    'optim_wrapper.optimizer.weight_decay': 0.05,
    'optim_wrapper.clip_grad': None,
    'train_cfg.max_iters': 36 * 7330,
    'param_scheduler.1.milestones': [27 * 7330, 33 * 7330],
    'param_scheduler.0.end': 500,
    'train_dataloader.batch_size': 2,
    'val_evaluator.metric': ['bbox', 'segm'],
}
SETTINGS = {
    MASK: COCO
    | {
        'model.type': 'MaskRCNN',
        'model.rpn_head.loss_bbox.type': 'L1Loss',
        'model.roi_head.bbox_head.type': 'Shared2FCBBoxHead',
        'model.train_cfg.rpn.allowed_border': -1,
        'model.train_cfg.rpn_proposal.max_per_img': 1000,
        'model.train_cfg.rcnn.assigner.match_low_quality': True,
    },
    CASCADE: COCO
    | {
        'model.type': 'CascadeRCNN',
        'model.rpn_head.loss_bbox': dict(type='SmoothL1Loss', beta=1 / 9, loss_weight=1.0),
        'model.roi_head.stage_loss_weights': [1, 0.5, 0.25],
        'model.roi_head.bbox_head.2.num_shared_convs': 4,
        'model.roi_head.bbox_head.2.norm_cfg.type': 'SyncBN',
        'model.roi_head.bbox_head.2.loss_bbox': dict(type='GIoULoss', loss_weight=10.0),
        'model.roi_head.bbox_head.2.bbox_coder.target_stds': [0.033, 0.033, 0.067, 0.067],
        'model.train_cfg.rpn.allowed_border': 0,
        'model.train_cfg.rpn_proposal.max_per_img': 2000,
        'model.train_cfg.rcnn.2.assigner.min_pos_iou': 0.7,
    },
    UPERNET: {
        'model.type': 'EncoderDecoder',
        'model.decode_head.channels': 512,
        'model.decode_head.num_classes': 150,
        'model.auxiliary_head.channels': 256,
        'model.auxiliary_head.loss_decode.loss_weight': 0.4,
        'model.test_cfg': dict(mode='whole'),
        'optim_wrapper.optimizer.weight_decay': 0.01,
        'optim_wrapper.clip_grad': None,
        'param_scheduler.0.end': 1500,
        'param_scheduler.1.power': 1.0,
        'train_cfg.max_iters': 160000,
        'train_dataloader.batch_size': 2,
    },
}
every_leaf = pytest.mark.parametrize('key', RECIPES, ids='-'.join)


def path_of(key: tuple[str, str, str]) -> Path:
    head, family, size = key
    tail = '160k_ade20k-512x512' if head == UPERNET else '264k_coco'
    return NAT / f'{head}_{family}-{size}_rpb_8xb2-{tail}.py'


def load(path: Path) -> Config:
    cfg = copy.deepcopy(read(path))
    init_default_scope(cfg.default_scope)
    return cfg


def with_log_axial_rope(key: tuple[str, str, str]) -> Config:
    """The config with the options of README.md."""
    cfg = load(path_of(key))
    cfg.merge_from_dict(readme_options(NAT / 'README.md', 'upernet_nat-mini'))
    return cfg


def test_all_configs_are_here() -> None:
    assert {*NAT.glob('*.py')} == {path_of(key) for key in RECIPES} and len(RECIPES) == 30


@every_leaf
def test_parameters_are_those_of_the_readme(key: tuple[str, str, str]) -> None:
    """With the bias, and with log-axial RoPE by the options that it gives."""
    with torch.device('meta'):
        model = MODELS.build(load(path_of(key)).model)
        backbone = MODELS.build(with_log_axial_rope(key).model.backbone)
    total, published, ours = (
        sum(p.numel() for p in module.parameters()) for module in (model, model.backbone, backbone)
    )
    rope = backbone.layers[0].blocks[0].attn.rope
    assert isinstance(rope, LogAxialRoPE) and rope.k_rope == 2
    assert not any(name.endswith('bias_table') for name, _ in backbone.named_parameters())
    (row,) = re.findall(rf'\({path_of(key).name}\) \|(.*)\|', (NAT / 'README.md').read_text())
    assert [cell.strip() for cell in row.split('|')][-2:] == [
        f'{total:,}',
        f'{total - published + ours:,}',
    ]


@every_leaf
def test_settings_are_the_published_ones(key: tuple[str, str, str]) -> None:
    (head, family, size), (drop_path, rate, *results) = key, RECIPES[key]
    path = path_of(key)
    cfg = load(path)
    actual = {name: value(cfg, name) for name in SETTINGS[head]}
    assert actual == SETTINGS[head]
    assert cfg.optim_wrapper.optimizer.lr == rate
    backbone, text = cfg.model.backbone, path.read_text()
    arch = f'{family}_{size}'.replace('-', '_')
    assert (backbone.arch, backbone.drop_path_rate) == (arch, drop_path)
    assert (backbone.rope, backbone.use_rpb) == (None, True)
    weights = f'https://shi-labs.com/projects/{WEIGHTS[family].format(size)}'
    assert backbone.init_cfg == dict(type='Pretrained', checkpoint=weights)
    assert all(str(result) in text.partition('_base_')[0] for result in results)
    if (family, size) != ('nat', 'mini'):
        assert len(text.splitlines()) <= 8
    sizes = RoPENAT.ARCHS[arch]
    channels = [sizes['embed_dims'] * 2**stage for stage in range(4)]
    if head == UPERNET:
        assert cfg.model.decode_head.in_channels == channels
        assert cfg.model.auxiliary_head.in_channels == channels[2]
    else:
        assert cfg.model.neck.in_channels == channels


@pytest.mark.parametrize('key', RECIPES, ids='-'.join)
def test_backbones_have_the_published_dilations(key: tuple[str, str, str]) -> None:
    head, family, _ = key
    with torch.device('meta'):
        model = MODELS.build(dict(load(path_of(key)).model.backbone, init_cfg=None))
    expected = DILATIONS.get((MASK if head == CASCADE else head, family), ((1,),) * 4)
    for dilations, of_stage in zip(model.arch.block_dilations, expected, strict=True):
        assert dilations == [of_stage[i % len(of_stage)] for i in range(len(dilations))]


@pytest.mark.parametrize('head', [MASK, CASCADE, UPERNET])
def test_models_are_built_with_the_decay_of_the_recipe(head: str) -> None:
    cfg = load(path_of((head, 'nat', 'mini')))
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    decays = {id(p): group['weight_decay'] for group in groups for p in group['params']}
    free = {name for name, p in model.named_parameters() if decays[id(p)] == 0}
    named = {name for name, _ in model.named_parameters()}
    assert free == {name for name in named if re.search('norm|bias_table', name)}
    assert len(decays) == len(named) and 'backbone.norm3.weight' in free


@torch.no_grad()
def test_a_segmentor_predicts() -> None:
    cfg = with_log_axial_rope((UPERNET, 'dinat-s', 'tiny'))
    arch = dict(embed_dims=16, depths=(1, 2, 1, 1), num_heads=(1, 1, 2, 2), overlapping=False)
    cfg.model.backbone.arch = arch
    cfg.model.decode_head.update(in_channels=[16, 32, 64, 128], channels=16)
    cfg.model.auxiliary_head.update(in_channels=64, channels=8)
    model = revert_sync_batchnorm(MODELS.build(cfg.model)).eval()
    scores = model.encode_decode(torch.randn(1, 3, 70, 53), [dict(img_shape=(70, 53))])
    assert scores.shape == (1, 150, 70, 53)


@pytest.mark.parametrize('head', [MASK, CASCADE])
def test_a_detector_trains_and_predicts(head: str) -> None:
    from mmdet.structures import DetDataSample
    from mmdet.structures.mask import BitmapMasks

    cfg = with_log_axial_rope((head, 'dinat', 'mini'))
    cfg.model.backbone.update(
        arch=dict(embed_dims=16, depths=(1, 2, 1, 1), num_heads=(1, 1, 2, 2)), drop_path_rate=0.0
    )
    cfg.model.neck.update(in_channels=[16, 32, 64, 128])
    few = dict(max_per_img=20)
    cfg.model.train_cfg.rpn_proposal.update(few)
    cfg.model.test_cfg.rpn.update(few)
    stages = cfg.model.train_cfg.rcnn
    for stage in stages if isinstance(stages, list) else [stages]:
        stage.sampler.num = 8
    model = revert_sync_batchnorm(MODELS.build(cfg.model))
    model.init_weights()
    mask = np.zeros((1, 70, 96), np.uint8)
    mask[:, 10:50, 20:80] = 1
    instances = InstanceData(
        bboxes=torch.tensor([[20.0, 10.0, 80.0, 50.0]]),
        labels=torch.tensor([3]),
        masks=BitmapMasks(mask, 70, 96),
    )
    meta = dict(img_shape=(70, 96), ori_shape=(70, 96), scale_factor=(1.0, 1.0))
    sample = DetDataSample(metainfo=meta, gt_instances=instances)
    batch = dict(inputs=[torch.randint(0, 256, (3, 70, 96), dtype=torch.uint8)] * 2)
    batch['data_samples'] = [sample, copy.deepcopy(sample)]
    data = model.data_preprocessor(batch, training=True)
    loss, parts = model.train().parse_losses(model(**data, mode='loss'))
    assert loss.isfinite() and any('loss_mask' in name for name in parts)
    loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in model.backbone.parameters())
    batch = dict(inputs=batch['inputs'][:1], data_samples=[sample])
    with torch.no_grad():
        (result,) = model.eval().test_step(batch)
    assert len(result.pred_instances.masks) == len(result.pred_instances.bboxes)


# -------------------------------------------------------------------- ablations

PARENT = 'vit-s_log-axial_k2_per-head'
K = (1, 2, 4, 8, 16)
FLAT = dict(type='AxialRoPE', theta=100.0, axes='yx', pair_layout='half')
CENTRES = dict(type='centres', normalize='max', windows='map')
ROPES = {
    **{
        f'vit-s_{kind}_k{k}_{how}': dict(rope, k_rope=k, shared=how == 'shared')
        for kind, rope in (('2d', FLAT), ('log-axial', dict(type='LogAxialRoPE')))
        for k, how in itertools.product(K, ('shared', 'per-head'))
    },
    'vit-s_rpb': None,
}
for table, k, shared in ((8, 2, False), (9, 1, True)):
    settings = dict(k_rope=k, shared=shared)
    name = f'vit-s_table{table}'
    ROPES |= {
        f'{name}_exponential_index': dict(FLAT, **settings),
        f'{name}_exponential_unit': dict(FLAT, **settings, coordinates=CENTRES),
        f'{name}_bounded-log_index': dict(
            type='LogAxialRoPE', **settings, coordinates=dict(type='index')
        ),
        f'{name}_bounded-log_unit': dict(type='LogAxialRoPE', **settings),
    }
for model in ('nat-s', 'dinat-s', 'swin-s', 'vit-s'):
    ROPES[f'{model}_table10'] = dict(type='LogAxialRoPE', k_rope=8, shared=True)


UNIT = {f'coordinates.{key}': setting for key, setting in CENTRES.items()}
OPTIONS = {  # of README.md, for the rows without a file: from (name of a file, options of its rope)
    **{
        f'vit-s_{kind}_k{k}_per-head': (f'vit-s_{kind}_k{k}_shared', {'shared': False})
        for kind, k in itertools.product(('2d', 'log-axial'), (1, 4, 8, 16))
    },
    **{
        f'vit-s_table{table}_{row}': (f'vit-s_{kind}_{how}', options)
        for table, how in ((8, 'k2_per-head'), (9, 'k1_shared'))
        for row, kind, options in (
            ('exponential_index', '2d', {}),
            ('exponential_unit', '2d', UNIT),
            ('bounded-log_index', 'log-axial', {'coordinates.type': 'index'}),
            ('bounded-log_unit', 'log-axial', {}),
        )
    },
}


def test_the_ablations_are_those_of_the_tables() -> None:
    files = {f'{name}_in1k' for name in ROPES.keys() - OPTIONS.keys()}
    assert {path.stem for path in ABLATION.glob('*.py')} == files
    assert len(ROPES) == 20 + 1 + 8 + 4 and len(files) == 17
    readme = (ABLATION / 'README.md').read_text()
    for _, options in OPTIONS.values():
        text = ' '.join(f'rope.{key}={setting}' for key, setting in options.items())
        assert f'`{text}`' in readme or not text


@pytest.mark.parametrize('name', ROPES)
def test_an_ablation_differs_in_its_rope(name: str) -> None:
    file, options = OPTIONS.get(name, (name, {}))
    path = ABLATION / f'{file}_in1k.py'
    cfg, text = load(path), path.read_text()
    cfg.merge_from_dict({f'model.backbone.rope.{key}': value for key, value in options.items()})
    backbone = cfg.model.backbone
    assert backbone.rope == ROPES[name] and backbone.get('use_rpb', False) == (name == 'vit-s_rpb')
    assert file == PARENT or len(text.splitlines()) <= 8
    assert re.search(r'As published: \d+\.\d+ %', text)
    assert cfg.evaluation.sizes == [128, 192, 224, 256, 320, 384, 480, 512]
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    assert model.head.out_features == 1000
    parameters = sum(p.numel() for p in model.parameters()) / 1e6
    assert parameters == pytest.approx(22 if name.startswith('vit') else 50, abs=1)
    parent = load(ABLATION / f'{PARENT}_in1k.py')
    if name.startswith('vit'):
        assert backbone.arch.num_heads == (6 if 'k16' in name else 12)
        for config in (cfg, parent):
            config.model.backbone.update(rope=None, use_rpb=None)
            config.model.backbone.arch.num_heads = None
        assert cfg.to_dict() == parent.to_dict()


def test_the_vit_of_the_ablations_is_the_published_one() -> None:
    """And the rows with k = 16 build with heads of 64 channels only."""
    backbone = load(ABLATION / f'{PARENT}_in1k.py').model.backbone
    isotropic = dict(backbone, arch='isotropic_small')
    with torch.device('meta'):
        built, expected = MODELS.build(backbone), MODELS.build(isotropic)
        for name in ('vit-s_2d_k16_shared', 'vit-s_log-axial_k16_shared'):
            backbone = load(ABLATION / f'{name}_in1k.py').model.backbone
            assert MODELS.build(backbone).blocks[0].attn.rope.k_rope == 16
            backbone.arch.num_heads = 12
            with pytest.raises(ValueError, match=r'head_dim|k_rope'):
                MODELS.build(backbone)
    assert built.arch == expected.arch


def test_the_tool_takes_the_model_and_the_sizes_of_a_config(tmp_path: Path) -> None:
    """And the weights of a model that was trained from it."""
    config = tmp_path / 'small.py'
    arch = 'dict(_delete_=True, embed_dims=16, depths=(1, 1), num_heads=(1, 1))'
    config.write_text(
        f"_base_ = '{ABLATION / 'nat-s_table10_in1k.py'}'\n"
        f'backbone = dict(arch={arch}, rope=dict(k_rope=4), out_indices=(1,))\n'
        'model = dict(backbone=backbone, num_classes=3)\n'
        'evaluation = dict(sizes=[32, 40])\n'
    )
    model = MODELS.build(Config.fromfile(config).model)
    torch.nn.init.normal_(model.head.weight)
    checkpoint = saved(dict(state_dict=model.state_dict()), tmp_path)
    rng, truth = np.random.default_rng(0), []
    for number in range(6):
        pixels = rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)
        with torch.no_grad():
            image = [torch.from_numpy(pixels[..., ::-1].copy()).permute(2, 0, 1)]
            data = model.eval().data_preprocessor(dict(inputs=image))
            truth.append(int(model(torch.stack(list(data['inputs']))).argmax()))
        folder = tmp_path / 'val' / str(truth[-1] if number else (truth[-1] + 1) % 3)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f'{number}.png')
    main = runpy.run_path(str(CONFIGS.parent / 'tools' / 'eval_classification.py'))['main']
    options = [
        '--config',
        config,
        '--crop-ratio',
        1,
        '--workers',
        0,
        '--work-dir',
        tmp_path / 'work',
    ]
    assert main([str(x) for x in (checkpoint, tmp_path / 'val', *options)]) == 0
    rows = read_results(tmp_path / 'work' / 'resolutions.json')['rows']
    found = {row['size']: row['metrics'] for row in rows}
    assert list(found) == ['32', '40']
    (top1,) = (number for name, number in found['40'].items() if name.endswith('top1'))
    assert top1 == pytest.approx(100 * 5 / 6)


def test_published_classifiers_need_a_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights of a size without a name."""
    weights = shi_nat(16, (1, 1), (1, 1), mlp_ratio=4.0)
    path = saved(weights, tmp_path)
    main = runpy.run_path(str(CONFIGS.parent / 'tools' / 'eval_classification.py'))['main']
    assert main([path, str(tmp_path)]) == 2
    assert 'fit none of the 88 classifiers with a name' in capsys.readouterr().err
    assert main([path, str(tmp_path), '--config', str(path_of((MASK, 'nat', 'mini')))]) == 2
    assert 'its model must be a RoPEClassifier' in capsys.readouterr().err
    arch = dict(embed_dims=16, depths=(1, 1), num_heads=(1, 1))
    backbone = dict(type='RoPENAT', arch=arch, rope=None, use_rpb=True, out_indices=(1,))
    model = MODELS.build(dict(type='RoPEClassifier', backbone=backbone, num_classes=1000))
    model.load_checkpoint(path)
    assert torch.equal(model.backbone.norm1.weight, weights['norm.weight'])
    assert torch.equal(model.head.bias, weights['head.bias'])
