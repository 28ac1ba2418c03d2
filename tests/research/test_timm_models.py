"""research.timm_models: the papers' classifiers in timm, and their checkpoints."""

import argparse
import importlib
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from mmengine.registry import MODELS, DefaultScope
from PIL import Image
from torch import Tensor, nn

from research.classifier import classifier_config
from research.named_classifiers import CLASSIFIERS
from rope_dense.backbones import RoPENAT, RoPESwin, RoPEViT
from rope_dense.backbones.layers import resize_grid
from rope_dense.checkpoints import CheckpointError, load_pretrained
from rope_dense.measure.results import read_results
from rope_dense_command import command

ROOT = Path(__file__).parents[2]
INTEGRATION = 'research.timm_models'
# Parameters in millions: S4 of NAT's and DiNAT's papers, the ViT and Swin papers.
MILLIONS = {
    r'ropevit_small_.+|isotropic_small_.+|resformer_small': 22.05,
    r'ropevit_base_.+|isotropic_base_.+': 86.5,
    r'ropevit_large_.+': 304.3,
    r'(ropeswin|(di)?nat_s)_tiny_.+': 28.3,
    r'(ropeswin|(di)?nat_s)_small_.+': 49.6,
    r'(ropeswin|(di)?nat_s)_base_.+': 87.75,
    r'(di)?nat_mini_.+': 20.0,
    r'(di)?nat_tiny_.+': 27.9,
    r'(di)?nat_small_.+': 50.7,
    r'(di)?nat_base_.+': 89.75,
}
DROP_PATHS = {
    r'ropevit_small_.+': 0.0,
    r'ropevit_base_.+|isotropic_small_.+|resformer_small': 0.1,
    r'ropevit_large_.+|isotropic_base_.+': 0.4,
    r'ropeswin_tiny_.+|(di)?nat_(mini|tiny|s_tiny)_.+': 0.2,
    r'ropeswin_small_.+|(di)?nat_(small|s_small)_.+': 0.3,
    r'ropeswin_base_.+|(di)?nat_(base|s_base)_.+': 0.5,
}
VIT = dict(
    type='RoPEViT', arch=dict(embed_dims=32, depth=2, num_heads=2), final_norm=True
)
STAGES = dict(embed_dims=16, depths=(2, 2), num_heads=(1, 2))
SWIN = dict(type='RoPESwin', arch=STAGES, out_indices=(1,), shift_single_window=False)
NAT = dict(type='RoPENAT', arch=STAGES, out_indices=(1,))
FAMILIES = {
    'vit': VIT,
    'vit with table': dict(VIT, use_ape=True),
    'isotropic': dict(
        VIT,
        rope=None,
        attention=dict(type='TableBias'),
        with_cls_token=False,
        img_size=64,
        patch_norm=True,
    ),
    'resformer': dict(
        VIT, rope=None, use_ape='sine_conv', attention=dict(type='LocalPosition')
    ),
    'swin': SWIN,
    'swin with bias': dict(SWIN, attention=dict(type='TableBias')),
    'nat': NAT,
    'nat with bias': dict(NAT, rope=None, attention=dict(type='TableBias')),
}
every_family = pytest.mark.parametrize('family', FAMILIES)


@pytest.fixture(autouse=True)
def own_scope() -> Iterator[None]:
    """Leave no default scope to other tests."""
    with DefaultScope.overwrite_default_scope('mmengine'):
        yield


@pytest.fixture(scope='module')
def ours(timm: ModuleType) -> ModuleType:
    """The integration; a name that timm has already would be an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings('error', message='Overwriting')
        return importlib.import_module(INTEGRATION)


def one_of(table: dict[str, float], name: str) -> float:
    (value,) = (
        value for pattern, value in table.items() if re.fullmatch(pattern, name)
    )
    return value


def test_every_published_classifier_is_registered(
    timm: ModuleType, ours: ModuleType
) -> None:
    """With its size, its drop path and its settings."""
    assert len(CLASSIFIERS) == 3 * 6 + 3 * 7 + 2 * 3 + 14 * 3 + 1
    for name in CLASSIFIERS:
        assert timm.is_model(name)
        with torch.device('meta'):
            model = timm.create_model(name)
        millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
        assert millions == pytest.approx(one_of(MILLIONS, name), abs=0.15), name
        last = model.backbone.ordered_blocks[-1].drop_path
        first = model.backbone.ordered_blocks[0].drop_path
        rate = one_of(DROP_PATHS, name)
        assert getattr(last, 'drop_prob', 0.0) == pytest.approx(rate), name
        constant = name.startswith('ropevit')
        assert getattr(first, 'drop_prob', 0.0) == (rate if constant else 0.0), name
        settings = model.pretrained_cfg
        assert settings['crop_pct'] == (1.0 if name.startswith('ropevit') else 0.875)
        convolution = model.get_submodule(settings['first_conv'])
        assert isinstance(convolution, nn.Conv2d) and convolution.in_channels == 3
        assert model.get_submodule(settings['classifier']).out_features == 1000


# ---------------------------------------------------------------- the same as timm's own models


def randomise(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and not name.endswith('bias'):
            nn.init.uniform_(parameter, 0.5, 1.5)
        elif 'freqs' not in name:
            nn.init.normal_(parameter, std=0.05)


def saved(contents: dict, path: Path) -> str:
    torch.save(contents, path)
    return str(path)


def assert_close(actual: Tensor, expected: Tensor) -> None:
    assert actual.shape == expected.shape and expected.std() > 0.01
    assert (actual - expected).abs().max() / expected.abs().max() < 1e-4


def compare(model: nn.Module, theirs: nn.Module, images: Tensor, *, nhwc: bool) -> None:
    features = theirs.forward_features(images)
    expected = features.permute(0, 3, 1, 2) if nhwc else features
    assert_close(model.forward_features(images), expected)
    assert_close(
        model.forward_head(model.forward_features(images), pre_logits=True),
        theirs.forward_head(features, pre_logits=True),
    )
    assert_close(model(images), theirs(images))


@pytest.mark.parametrize(
    'variant, use_ape', [('mixed_', False), ('mixed_ape_', True), ('', False)]
)
@torch.no_grad()
def test_a_vit_is_that_of_timm(
    timm: ModuleType, ours: ModuleType, variant: str, use_ape: bool, tmp_path: Path
) -> None:
    theirs = timm.create_model(
        f'vit_small_patch16_rope_{variant}224', depth=2, num_classes=7, img_size=64
    ).eval()
    randomise(theirs)
    rope = (
        dict(type='MixedRoPE')
        if variant.startswith('mixed')
        else dict(type='AxialRoPE')
    )
    arch = dict(embed_dims=384, depth=2, num_heads=6)
    backbone = dict(VIT, arch=arch, rope=rope, use_ape=use_ape)
    model = ours.TimmClassifier(backbone, num_classes=7, img_size=64).eval()
    model.load_checkpoint(saved(theirs.state_dict(), tmp_path / 'timm.pth'))
    compare(model, theirs, torch.randn(2, 3, 64, 64), nhwc=False)


@torch.no_grad()
def test_a_swin_is_that_of_timm(timm: ModuleType, ours: ModuleType) -> None:
    from timm.models.swin_transformer import SwinTransformer

    theirs = SwinTransformer(
        img_size=128,
        embed_dim=32,
        depths=(2, 2),
        num_heads=(1, 2),
        window_size=4,
        num_classes=7,
    ).eval()
    randomise(theirs)
    backbone = dict(
        SWIN,
        arch=dict(STAGES, embed_dims=32),
        rope=None,
        attention=dict(type='TableBias'),
        norm_cfg=dict(type='LN'),
    )
    model = ours.TimmClassifier(backbone, num_classes=7, img_size=128).eval()
    weights = theirs.state_dict()
    renamed = {
        'norm.weight': 'backbone.norm1.weight',
        'norm.bias': 'backbone.norm1.bias',
    }
    renamed |= {f'head.fc.{name}': f'head.{name}' for name in ('weight', 'bias')}
    for key in weights:
        # timm reduces before a stage, the others after the one before.
        new = re.sub(r'layers\.1\.downsample', 'layers.0.downsample', key)
        renamed.setdefault(key, f'backbone.{new}')
    model.load_state_dict({renamed[key]: weight for key, weight in weights.items()})
    compare(model, theirs, torch.randn(2, 3, 128, 128), nhwc=True)


# ---------------------------------------------------------------- what timm's script does


def undecayed(family: str, name: str) -> bool:
    """The published lists: RoPE-ViT, RoPE-Swin, NAT, ResFormer."""
    names = {
        'vit': r'.*freqs|.*cls_token',
        'vit with table': r'.*freqs|.*cls_token|.*pos_embed',
        'isotropic': r'.*relative_position_bias_table',
        'resformer': r'.*cls_token|.*\.local\.weight|.*sine_embed\.conv\.weight',
        'swin': r'.*freqs',
        'swin with bias': r'.*freqs|.*relative_position_bias_table',
        'nat': r'never',
        'nat with bias': r'.*relative_position_bias_table',
    }
    return re.fullmatch(names[family], name) is not None


@every_family
def test_one_step_as_timms_script_takes_it(
    timm: ModuleType, ours: ModuleType, family: str
) -> None:
    from timm.data import Mixup
    from timm.loss import BinaryCrossEntropy, SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.utils import ModelEmaV2, ModelEmaV3

    model = ours.TimmClassifier(
        FAMILIES[family], num_classes=5, drop_path_rate=0.0
    ).train()
    optimizer = create_optimizer_v2(model, opt='adamw', lr=1e-3, weight_decay=0.05)
    names = {parameter: name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        for parameter in group['params']:
            exempt = parameter.ndim <= 1 or undecayed(family, names[parameter])
            assert group['weight_decay'] == (0.0 if exempt else 0.05), names[parameter]
    averages = [ModelEmaV2(model, decay=0.9), ModelEmaV3(model, decay=0.9)]
    before = {
        name: parameter.detach().clone() for name, parameter in model.named_parameters()
    }
    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=5)
    images, targets = mixup(torch.randn(4, 3, 64, 64), torch.tensor([0, 1, 2, 3]))
    criteria = SoftTargetCrossEntropy(), BinaryCrossEntropy(target_threshold=0.0)
    loss = sum(criterion(model(images), targets) for criterion in criteria)
    loss.backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        if '1.attn.local' in name:
            continue  # of the last block, which the class token does not see
        assert parameter.grad is not None and not torch.equal(
            parameter, before[name]
        ), name
    for average in averages:
        average.update(model)
        for name, parameter in average.module.named_parameters():
            expected = torch.lerp(before[name], model.get_parameter(name), 0.1)
            torch.testing.assert_close(parameter, expected)


@pytest.mark.parametrize('family', ['vit', 'swin', 'nat'])
def test_layers_learn_at_rates_of_their_own(ours: ModuleType, family: str) -> None:
    from timm.optim import create_optimizer_v2

    model = ours.TimmClassifier(FAMILIES[family], num_classes=5)
    optimizer = create_optimizer_v2(
        model, opt='adamw', lr=1.0, weight_decay=0.1, layer_decay=0.5
    )
    names = {parameter: name for name, parameter in model.named_parameters()}
    blocks = model.backbone.ordered_blocks
    number = {
        id(p): index for index, block in enumerate(blocks) for p in block.parameters()
    }
    for group in optimizer.param_groups:
        for parameter in group['params']:
            name = names[parameter]
            layer = number.get(id(parameter), len(blocks)) + 1
            if re.search('patch_embed|cls_token', name):
                layer = 0
            elif 'downsample' in name:  # with the last block of its stage
                layer = 2
            assert group['lr_scale'] == 0.5 ** (len(blocks) + 1 - layer), name


def test_image_sizes_are_multiples_of_the_patches(ours: ModuleType) -> None:
    backbone = dict(VIT, patch_size=14, use_ape=True)
    assert ours.TimmClassifier(backbone, img_size=(56, 70)).backbone.pretrain_grid == (
        4,
        5,
    )
    with pytest.raises(
        ValueError, match=r'img_size must be multiples of 14 .* got \(64, 64\)'
    ):
        ours.TimmClassifier(backbone, img_size=64)
    swin = ours.TimmClassifier(
        dict(SWIN, attention=dict(type='TableBias')), img_size=(96, 128)
    ).backbone
    assert swin.window_size == swin.pretrain_grid == (3, 4)
    with pytest.raises(
        ValueError, match='img_size must be multiples of 32 pixels for a RoPENAT'
    ):
        ours.TimmClassifier(NAT, img_size=112)


@every_family
def test_checkpointing_changes_no_gradient(ours: ModuleType, family: str) -> None:
    model = ours.TimmClassifier(
        FAMILIES[family], num_classes=5, drop_path_rate=0.0
    ).train()
    images, gradients = torch.randn(2, 3, 64, 64), []
    for enable in (False, True):
        model.set_grad_checkpointing(enable)
        assert model.backbone.with_cp == enable
        model.zero_grad()
        model(images).logsumexp(1).sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*gradients)


def test_heads_channels_and_dropout(ours: ModuleType) -> None:
    model = ours.TimmClassifier(VIT, num_classes=0, in_chans=5, drop_rate=0.5)
    images = torch.randn(2, 5, 48, 64)
    assert model.num_features == 32 and model.global_pool == 'token'
    assert model.eval()(images).shape == (2, 32) and isinstance(
        model.get_classifier(), nn.Identity
    )
    features = model.forward_features(images)
    pooled = model.forward_head(features, pre_logits=True)
    assert torch.equal(pooled, features[:, 0])
    assert (model.train().forward_head(features) == 0).any()
    model.reset_classifier(9, 'token')
    assert model.eval()(images).shape == (2, 9) and model.num_classes == 9
    assert float(model.head.weight.detach().std()) == pytest.approx(0.02, rel=0.2)
    assert not model.head.bias.any()
    assert ours.TimmClassifier(NAT).global_pool == 'avg'


@pytest.mark.parametrize(
    'arguments, says',
    [
        (dict(img_size=100), r'img_size must be multiples of 16 pixels for a RoPEViT'),
        (dict(img_size='large'), 'img_size must be'),
        (dict(drop_path_rate=1.0), 'drop_path_rate must be'),
        (dict(global_pool='avg'), 'global_pool must be one of'),
        (dict(features_only=True), 'features_only: ropevit_small_mixed has no'),
    ],
)
def test_arguments_that_are_not_allowed(
    timm: ModuleType, ours: ModuleType, arguments: dict, says: str
) -> None:
    with torch.device('meta'), pytest.raises(ValueError, match=says):
        timm.create_model('ropevit_small_mixed', **arguments)


def test_no_weights_come_with_a_name(timm: ModuleType, ours: ModuleType) -> None:
    with (
        torch.device('meta'),
        pytest.raises(RuntimeError, match='No pretrained weights exist'),
    ):
        timm.create_model('ropevit_small_mixed', pretrained=True)


def test_the_classifier_of_a_config(timm: ModuleType, ours: ModuleType) -> None:
    path = ROOT / 'configs' / 'research' / 'ablation' / 'vit-s_2d_k4_shared_in1k.py'
    with torch.device('meta'):
        model = timm.create_model(
            'rope_classifier', config=str(path), drop_path_rate=0.2
        )
        assert model.head.out_features == 1000
        assert model.backbone.blocks[0].attn.rope.k_rope == 4
        assert model.backbone.blocks[-1].drop_path.drop_prob == pytest.approx(0.2)
    for wrong in (None, str(ROOT / 'configs' / 'dino_swin_rope_mixed.py')):
        with pytest.raises(ValueError, match='give the config of a RoPEClassifier'):
            timm.create_model('rope_classifier', config=wrong)


def test_without_timm_the_error_says_what_to_do(
    ours: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, 'timm.models', None)
    monkeypatch.delitem(sys.modules, INTEGRATION)
    with pytest.raises(ImportError, match=r'needs timm .*: pip install timm'):
        importlib.import_module(INTEGRATION)


def test_nothing_else_imports_timm() -> None:
    files = [
        x for name in ('rope_dense', 'research') for x in (ROOT / name).rglob('*.py')
    ]
    having = [
        path.stem
        for path in files
        if re.search(r'^\s*(from|import) timm', path.read_text(), re.M)
    ]
    assert having == ['timm_models']


# ---------------------------------------------------------------- its checkpoints


def checkpoint(
    model: nn.Module, name: str, folder: Path, average: nn.Module | None = None
) -> str:
    """The file that timm's script writes."""
    from timm.utils import CheckpointSaver

    folder.mkdir(exist_ok=True)
    saver = CheckpointSaver(
        model,
        torch.optim.AdamW(model.parameters()),
        argparse.Namespace(model=name, lr=1e-3),
        model_ema=average,
        checkpoint_dir=str(folder),
        recovery_dir=str(folder),
    )
    saver.save_checkpoint(0, metric=12.5)
    return str(folder / 'last.pth.tar')


@every_family
@pytest.mark.parametrize('averaged', [False, True])
@torch.no_grad()
def test_a_checkpoint_is_a_backbone(
    ours: ModuleType, family: str, averaged: bool, tmp_path: Path
) -> None:
    """Of a detector, with the averaged weights if there are any."""
    from timm.utils import ModelEmaV3

    model = ours.TimmClassifier(FAMILIES[family], num_classes=5).eval()
    randomise(model)
    average = ModelEmaV3(model) if averaged else None
    if averaged:
        randomise(average)
    path = checkpoint(model, 'any', tmp_path, average)
    settings = {key: value for key, value in FAMILIES[family].items() if key != 'type'}
    kind = dict(RoPEViT=RoPEViT, RoPESwin=RoPESwin, RoPENAT=RoPENAT)[
        FAMILIES[family]['type']
    ]
    if kind is not RoPEViT:
        settings['out_indices'] = (0, 1)
    backbone = kind(**settings, init_cfg=dict(type='Pretrained', checkpoint=path))
    backbone.init_weights()
    images = torch.randn(1, 3, 64, 96)
    trained = average.module if averaged else model
    assert torch.equal(backbone.eval()(images)[-1], trained.backbone(images)[-1])


def test_a_checkpoint_of_a_detector_still_has_to_have_its_norms(tmp_path: Path) -> None:
    first = RoPESwin(STAGES, out_indices=(0,))
    path = saved(dict(state_dict=first.state_dict()), tmp_path / 'first.pth')
    with pytest.raises(CheckpointError, match=r'missing: norm1.weight, norm1.bias'):
        load_pretrained(RoPESwin(STAGES, out_indices=(0, 1)), path)


@pytest.mark.parametrize(
    'name', ['ropevit_small_axial_ape', 'ropeswin_tiny_rpb', 'nat_mini_log_axial']
)
@torch.no_grad()
def test_a_checkpoint_says_which_classifier_it_is(
    timm: ModuleType, ours: ModuleType, name: str, tmp_path: Path
) -> None:
    """Trained at another size than 224, which the tables of the first two tell."""
    model = timm.create_model(name, num_classes=5, img_size=64).eval()
    randomise(model)
    path = checkpoint(model, name, tmp_path)
    config = classifier_config(path)
    classifier = MODELS.build(config['model']).eval()
    classifier.load_checkpoint(path)
    images = torch.randn(2, 3, 64, 64)
    assert (
        config['model']['backbone'] is not CLASSIFIERS[name].backbone
    )  # tools change theirs
    assert config['model']['num_classes'] == 5
    assert config['evaluation']['crop_ratio'] == (
        1.0 if name.startswith('ropevit') else 0.875
    )
    assert_close(classifier(images), model(images))


def test_checkpoints_that_do_not_say_it(ours: ModuleType, tmp_path: Path) -> None:
    model = ours.TimmClassifier(VIT, num_classes=0)
    with pytest.raises(
        CheckpointError, match=r'which only its config describes.*--config'
    ):
        classifier_config(checkpoint(model, 'rope_classifier', tmp_path / 'a'))
    with pytest.raises(CheckpointError, match=r'has no head.weight'):
        classifier_config(checkpoint(model, 'ropevit_small_mixed', tmp_path / 'b'))


def test_the_tool_evaluates_a_checkpoint(
    timm: ModuleType, ours: ModuleType, tmp_path: Path
) -> None:
    model = timm.create_model('ropevit_small_axial', num_classes=3)
    nn.init.constant_(model.head.bias, 0.0)
    model.head.bias.data[1] = 9.0  # every picture is of the second class
    path = checkpoint(model, 'ropevit_small_axial', tmp_path / 'timm')
    for label in '012':
        (tmp_path / 'val' / label).mkdir(parents=True)
        Image.effect_noise((40, 40), 60).convert('RGB').save(
            tmp_path / 'val' / label / 'a.png'
        )
    main = command('eval_classification')
    options = ['--sizes', '32', '--workers', '0', '--work-dir', str(tmp_path / 'work')]
    assert main([path, str(tmp_path / 'val'), *options]) == 0
    (row,) = read_results(tmp_path / 'work' / 'resolutions.json')['rows']
    assert row['metrics']['accuracy/top1'] == pytest.approx(100 / 3)


@torch.no_grad()
def test_fine_tuning_at_another_size_resizes_the_tables(
    timm: ModuleType, ours: ModuleType, tmp_path: Path
) -> None:
    """--initial-checkpoint, with the head and all else as it was."""
    small = timm.create_model('ropevit_small_mixed_ape', num_classes=5, img_size=64)
    path = checkpoint(small, 'ropevit_small_mixed_ape', tmp_path)
    larger = timm.create_model(
        'ropevit_small_mixed_ape', num_classes=5, img_size=96, checkpoint_path=path
    )
    before, after = small.state_dict(), larger.state_dict()
    expected = resize_grid(before.pop('backbone.pos_embed'), (4, 4), (6, 6))
    assert torch.equal(after.pop('backbone.pos_embed'), expected)
    assert before.keys() == after.keys()
    assert all(torch.equal(after[key], weight) for key, weight in before.items())
