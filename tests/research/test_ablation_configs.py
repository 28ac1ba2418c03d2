"""configs/research/ablation against the fused-attention paper's tables."""

import copy
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from PIL import Image

from helpers.grid import CONFIGS, read
from helpers.published import shi_nat
from helpers.small_checkpoints import saved
from rope_dense.measure.results import read_results
from rope_dense_command import command

ABLATION = CONFIGS / 'research' / 'ablation'
DETECTOR = CONFIGS / 'nat' / 'mask-rcnn_nat-mini_rpb_8xb2-264k_coco.py'


def load(path: Path) -> Config:
    cfg = copy.deepcopy(read(path))
    init_default_scope(cfg.default_scope)
    return cfg


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
    cfg.merge_from_dict(
        {f'model.backbone.rope.{key}': value for key, value in options.items()}
    )
    backbone = cfg.model.backbone
    bias = dict(type='TableBias') if name == 'vit-s_rpb' else None
    assert backbone.rope == ROPES[name] and backbone.get('attention') == bias
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
            config.model.backbone.update(rope=None, attention=None)
            config.model.backbone.arch.num_heads = None
        assert cfg.to_dict() == parent.to_dict()


def test_the_vit_of_the_ablations_is_the_published_one() -> None:
    """And the rows with k = 16 build with heads of 64 channels only."""
    backbone = load(ABLATION / f'{PARENT}_in1k.py').model.backbone
    isotropic = dict(backbone, arch='isotropic_small', attention=None)
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
    main = command('eval_classification')
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
    main = command('eval_classification')
    assert main([path, str(tmp_path)]) == 2
    assert 'fit none of the 88 classifiers with a name' in capsys.readouterr().err
    assert main([path, str(tmp_path), '--config', str(DETECTOR)]) == 2
    assert 'its model must be a RoPEClassifier' in capsys.readouterr().err
    arch = dict(embed_dims=16, depths=(1, 1), num_heads=(1, 1))
    backbone = dict(
        type='RoPENAT',
        arch=arch,
        rope=None,
        attention=dict(type='TableBias'),
        out_indices=(1,),
    )
    model = MODELS.build(
        dict(type='RoPEClassifier', backbone=backbone, num_classes=1000)
    )
    model.load_checkpoint(path)
    assert torch.equal(model.backbone.norm1.weight, weights['norm.weight'])
    assert torch.equal(model.head.bias, weights['head.bias'])
