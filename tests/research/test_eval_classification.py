"""`rope-dense research eval-classification`, and the classifiers it builds from published files."""

import csv
import json
import zipfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import DATASETS, MODELS, DefaultScope
from PIL import Image
from torch import Tensor, nn

from helpers.published import naver_swin, naver_vit, shi_nat
from research.classification import evaluation_config
from research.classifier import PROTOCOLS, RoPEClassifier, classifier_config
from research.named_classifiers import (
    AXIAL,
    CLASSIFIERS,
    MIXED,
    SWIN_AXIAL,
    NamedClassifier,
    swin_config,
    vit,
)
from research.papers import expand_sizes
from rope_dense.checkpoints import CheckpointError
from rope_dense.measure.results import read_results
from rope_dense.utils.configs import DOCS
from rope_dense_command import command

Weights = dict[str, Tensor]
Run = Callable[..., int]
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CLASSES, SIDE = 7, 64
HEAD_BIAS = torch.zeros(3)


SMALL_VIT = dict(embed_dims=64, depth=2, num_heads=1)
SMALL_SWIN = dict(embed_dims=32, depths=(2, 2), num_heads=(1, 2))
SMALL = {
    'small_vit_ape': NamedClassifier(vit(SMALL_VIT, 0.0, rope=None, use_ape=True), 1.0),
    'small_vit_axial': NamedClassifier(vit(SMALL_VIT, 0.0, rope=AXIAL), 1.0),
    'small_vit_mixed': NamedClassifier(
        vit(SMALL_VIT, 0.0, rope=MIXED), 1.0, 'table-a.4'
    ),
    'small_vit_axial_ape': NamedClassifier(
        vit(SMALL_VIT, 0.0, rope=AXIAL, use_ape=True), 1.0
    ),
    'small_swin_rpb': NamedClassifier(
        swin_config(SMALL_SWIN, 0.0, rope=None, attention=dict(type='TableBias'))
    ),
    'small_swin_axial': NamedClassifier(swin_config(SMALL_SWIN, 0.0, rope=SWIN_AXIAL)),
    'small_swin_mixed': NamedClassifier(
        swin_config(SMALL_SWIN, 0.0, rope=MIXED), sizes='table-a.8'
    ),
}


@pytest.fixture(autouse=True, scope='module')
def small_names() -> Iterator[None]:
    """Classifiers with a name that are small."""
    with pytest.MonkeyPatch.context() as patched:
        for name, named in SMALL.items():
            if named.backbone['type'] == 'RoPESwin':
                named.backbone['out_indices'] = (1,)
            patched.setitem(CLASSIFIERS, name, named)
        yield


@pytest.fixture(autouse=True)
def own_scope() -> Iterator[None]:
    """Leave no default scope to other tests."""
    with DefaultScope.overwrite_default_scope('mmengine'):
        yield


def saved(contents: dict, path: Path) -> str:
    torch.save(contents, path)
    return str(path)


def loaded(checkpoint: str, rope: str | None = None) -> RoPEClassifier:
    model = MODELS.build(classifier_config(checkpoint, rope)['model']).eval()
    model.load_checkpoint(checkpoint)
    return model


def randomise(model: nn.Module) -> None:
    """Weights under which every part has a say in the scores; timm's own make LayerScale 1e-5."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and not name.endswith('bias'):
            nn.init.uniform_(parameter, 0.5, 1.5)
        elif 'freqs' not in name:
            nn.init.normal_(parameter, std=0.05)


@pytest.mark.parametrize(
    'name, rope, sizes',
    [
        ('vit_small_patch16_rope_224', None, (224, 160)),
        ('vit_small_patch16_rope_mixed_224', None, (224, 160)),
        # Only at 224: elsewhere timm resizes the position embedding with another kernel.
        ('vit_small_patch16_rope_ape_224', 'axial', (224,)),
        ('vit_small_patch16_rope_mixed_ape_224', None, (224,)),
    ],
)
@torch.no_grad()
def test_scores_are_those_of_timm(
    timm: ModuleType,
    name: str,
    rope: str | None,
    sizes: tuple[int, ...],
    tmp_path: Path,
) -> None:
    reference = timm.create_model(name, dynamic_img_size=True).eval()
    randomise(reference)
    model = loaded(saved(reference.state_dict(), tmp_path / 'timm.pth'), rope)
    for size in sizes:
        images = torch.randn(1, 3, size, size)
        expected = reference(images)
        assert expected.shape == (1, 1000) and expected.std() > 0.1
        difference = (model(images) - expected).abs().max() / expected.abs().max()
        assert difference < 1e-4


@pytest.mark.parametrize(
    'size', [64, 32]
)  # at 32 one window has the last map, and does not shift
@torch.no_grad()
def test_scores_of_the_swin_baseline_are_those_of_timm(
    timm: ModuleType, size: int, tmp_path: Path
) -> None:
    from timm.models.swin_transformer import SwinTransformer, checkpoint_filter_fn

    weights = trained(naver_swin(32, (2, 2), (1, 2), 'rpb', window_size=4), 1000)
    sizes = dict(embed_dim=32, depths=(2, 2), num_heads=(1, 2), window_size=4)
    reference = SwinTransformer(img_size=size, **sizes).eval()
    reference.load_state_dict(
        checkpoint_filter_fn(dict(weights), reference), strict=False
    )
    model = loaded(saved(dict(model=weights), tmp_path / 'swin.pth'))
    images = torch.randn(2, 3, size, size)
    torch.testing.assert_close(model(images), reference(images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('variant', ['mixed', 'axial'])
@torch.no_grad()
def test_swin_pools_after_its_norm(variant: str, tmp_path: Path) -> None:
    """Norm, mean over tokens, head, as published, written out."""
    weights = trained(naver_swin(32, (2, 2), (1, 2), variant), CLASSES)
    model = loaded(saved(dict(model=weights), tmp_path / 'swin.pth'))
    model.backbone.set_window_size('auto')
    seen = []
    model.backbone.norm1.register_forward_pre_hook(
        lambda norm, inputs: seen.append(inputs[0])
    )
    scores = model(torch.randn(2, 3, 56, 56))
    tokens = seen[0].flatten(1, -2)  # [B, N, C]
    normed = F.layer_norm(tokens, (64,), weights['norm.weight'], weights['norm.bias'])
    expected = F.linear(normed.mean(1), weights['head.weight'], weights['head.bias'])
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-4)


def trained(weights: Weights, classes: int) -> Weights:
    """Random weights scaled as trained ones are, with a head for some classes."""
    channels = weights['head.weight'].shape[1]
    head = {
        'head.weight': torch.randn(classes, channels),
        'head.bias': torch.randn(classes),
    }
    return (
        {
            key: tensor * 0.1
            if tensor.ndim > 1 and tensor.is_floating_point()
            else tensor
            for key, tensor in weights.items()
            if 'freqs' not in key
        }
        | {key: tensor for key, tensor in weights.items() if 'freqs' in key}
        | head
    )


@torch.no_grad()
def small_vit(path: Path) -> str:
    """A classifier whose answers depend on the picture: its mean scores of noise are taken off."""
    weights = trained(naver_vit(64, 2, mixed=True, ape=False), CLASSES)
    weights['cls_token'].zero_()
    noise = torch.rand(32, 3, 1, 1).sub(0.5).mul(4).expand(-1, -1, SIDE, SIDE)
    scores = loaded(saved(dict(model=weights), path))(noise)
    weights['head.bias'] -= scores.mean(0)
    return saved(dict(model=weights), path)


@pytest.mark.parametrize('settings', [dict(final_norm=False), dict(out_indices=(0,))])
def test_backbones_without_what_the_head_needs(settings: dict) -> None:
    vit = dict(
        type='RoPEViT', arch=dict(embed_dims=64, depth=2, num_heads=1), final_norm=True
    )
    with pytest.raises(ValueError, match='needs final_norm=True and the last block'):
        RoPEClassifier(dict(vit, **settings), num_classes=3)
    several = RoPEClassifier(dict(vit, out_indices=(0, 1)), num_classes=3)
    assert several(torch.randn(1, 3, 32, 32)).shape == (1, 3)


def test_names_that_weights_fit(tmp_path: Path) -> None:
    weights = naver_vit(64, 2, mixed=False, ape=True)
    path = saved(dict(model=weights), tmp_path / 'ape.pth')
    both = r'ape.pth \(timm or naver ViT\): the weights fit small_vit_ape, small_vit_axial_ape: '
    with pytest.raises(
        CheckpointError, match=both + r'say which \(--model NAME, or --rope axial'
    ):
        classifier_config(path)
    for kind in ('axial', 'none'):
        config = classifier_config(path, kind)
        assert config['model']['backbone']['rope'] == (
            AXIAL if kind == 'axial' else None
        )
    by_name = classifier_config(path, name='small_vit_axial_ape')
    assert by_name == classifier_config(path, 'axial')
    without_head = {key: value for key, value in weights.items() if 'head' not in key}
    with pytest.raises(CheckpointError, match=r'has no head.weight, head.bias'):
        classifier_config(saved(without_head, tmp_path / 'backbone.pth'))
    other = saved(naver_vit(64, 3, mixed=True, ape=False), tmp_path / 'other.pth')
    with pytest.raises(
        CheckpointError, match=r'fit none of the 95 classifiers with a name; give'
    ):
        classifier_config(other)
    model = MODELS.build(classifier_config(path, name='small_vit_mixed')['model'])
    with pytest.raises(CheckpointError, match=r'does not fit RoPEViT'):
        model.load_checkpoint(path)


def test_a_dilation_is_not_told_by_weights(tmp_path: Path) -> None:
    weights = shi_nat(64, (3, 4, 6, 5), (2, 4, 8, 16), mlp_ratio=3.0)
    weights |= {'head.weight': torch.zeros(3, 512), 'head.bias': HEAD_BIAS}
    path = saved(weights, tmp_path / 'nat.pth')
    with pytest.raises(
        CheckpointError, match=r'fit nat_mini_rpb, dinat_mini_rpb: say which'
    ):
        classifier_config(path)
    assert (
        classifier_config(path, name='dinat_mini_rpb')['evaluation']['crop_ratio']
        == 0.875
    )


@torch.no_grad()
def test_a_classifier_of_this_package(tmp_path: Path) -> None:
    """Its weights name it as published ones do; of other sizes only its config says what it is."""
    backbone = SMALL['small_vit_mixed'].backbone
    trained = RoPEClassifier(backbone, CLASSES).eval()
    randomise(trained)
    model = loaded(saved(trained.state_dict(), tmp_path / 'own.pth'))
    images = torch.randn(2, 3, 64, 80)
    torch.testing.assert_close(model(images), trained(images))
    other = RoPEClassifier(dict(backbone, arch=dict(SMALL_VIT, depth=3)), CLASSES)
    with pytest.raises(CheckpointError, match=r'other.pth .* fit none .* its config'):
        classifier_config(saved(other.state_dict(), tmp_path / 'other.pth'))


def test_the_protocol_is_that_of_the_source(tmp_path: Path) -> None:
    resformer = MODELS.build(
        dict(type='RoPEViT', arch='resformer_small', final_norm=True)
    )
    names = (r'sine_embed.conv', 'pos_embed.embed_layer'), ('attn.local', 'attn.get_v')
    weights = resformer.state_dict() | {
        'head.weight': torch.zeros(3, 384),
        'head.bias': HEAD_BIAS,
    }
    for ours, published in names:
        weights = {
            key.replace(ours, published): value for key, value in weights.items()
        }
    for state, sizes, ratio in (
        (naver_vit(64, 2, mixed=True, ape=False), ['table-a.4'], 1.0),
        (naver_swin(32, (2, 2), (1, 2), 'mixed'), ['table-a.8'], 0.875),
        (weights, ['table-5'], 0.875),
    ):
        config = classifier_config(saved(dict(model=state), tmp_path / 'weights.pth'))
        assert config['evaluation'] == dict(sizes=sizes, crop_ratio=ratio)
    for named in CLASSIFIERS.values():
        assert all(size.isdecimal() for size in expand_sizes([named.sizes]))
    for protocol in PROTOCOLS.values():
        assert all(size.isdecimal() for size in expand_sizes(protocol['sizes']))


# The tool on pictures whose right answers are known


@pytest.fixture(scope='module')
def run() -> Run:
    main, numbers = command('eval_classification'), count()

    def run(*argv: object) -> int:
        return main(
            [*map(str, argv), '--workers', '0', '--label', f'run {next(numbers)}']
        )

    return run


@pytest.fixture(scope='module')
def pictures() -> list[Image.Image]:
    """Twelve pictures of several shapes, each of noise about a colour of its own."""
    draw = np.random.default_rng(0)
    found = []
    for height, width in [(90, 120), (120, 90), (64, 64), (200, 70)] * 3:
        noise = draw.integers(-40, 40, (height // 10 + 1, width // 10 + 1, 3))
        pixels = np.clip(noise + draw.integers(0, 256, 3), 0, 255).astype(np.uint8)
        found.append(
            Image.fromarray(pixels).resize((width, height), Image.Resampling.NEAREST)
        )
    return found


@torch.no_grad()
def ranked(checkpoint: str, pictures: list[Image.Image], size: int) -> list[list[int]]:
    """Classes of each picture from the best, by the published protocol for ViTs."""
    model, ranks = loaded(checkpoint), []
    for picture in pictures:
        width, height = picture.size
        scale = size / min(width, height)
        sides = (
            (size, int(height * scale))
            if width <= height
            else (int(width * scale), size)
        )
        image = picture.resize(sides, Image.Resampling.BICUBIC)
        left, top = (round((side - size) / 2) for side in image.size)
        image = (
            np.asarray(image, np.float32)[top : top + size, left : left + size] / 255
        )
        normalised = (image - np.float32(MEAN)) / np.float32(STD)
        scores = model(torch.from_numpy(normalised).permute(2, 0, 1)[None])[0]
        ranks.append(scores.argsort(descending=True).tolist())
    return ranks


def write(
    folder: Path, pictures: list[Image.Image], names: list[str], classes: list[str]
) -> Path:
    """Each picture into the folder that `names` has for it; all `classes` get one."""
    for name in classes:
        (folder / name).mkdir(parents=True)
    for number, (picture, name) in enumerate(
        zip(pictures, names, strict=True), start=1
    ):
        picture.save(folder / name / f'picture_{number:08d}.png')
    return folder


def accuracies(work_dir: Path) -> dict[str, tuple[float, float]]:
    rows = read_results(work_dir / 'resolutions.json')['rows']
    metrics = ((row['size'], row['metrics']) for row in rows)
    return {size: (of['accuracy/top1'], of['accuracy/top5']) for size, of in metrics}


def test_accuracy_of_known_answers(
    run: Run,
    pictures: list[Image.Image],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nine of twelve pictures in their best class, two in their second, one in their last."""
    checkpoint = small_vit(tmp_path / 'vit.pth')
    ranks = ranked(checkpoint, pictures, SIDE)
    classes = [f'n{index:08d}' for index in range(CLASSES)]
    places = [0] * 9 + [1, 1, CLASSES - 1]
    truth = [classes[rank[place]] for rank, place in zip(ranks, places, strict=True)]
    folder = write(tmp_path / 'val', pictures, truth, classes)
    arguments = [
        checkpoint,
        folder,
        '--sizes',
        SIDE,
        96,
        '--work-dir',
        tmp_path / 'work',
    ]
    assert run(*arguments) == 0
    found = accuracies(tmp_path / 'work')
    assert found[str(SIDE)] == pytest.approx((75, 100 * 11 / 12))
    other = ranked(checkpoint, pictures, 96)
    right = [
        classes.index(name) in rank[:1] for name, rank in zip(truth, other, strict=True)
    ]
    assert found['96'][0] == pytest.approx(100 * np.mean(right))
    lines = [line.split()[:4] for line in capsys.readouterr().out.splitlines()]
    assert ['size', 'scaling', 'window', 'top1'] in lines
    assert ['64', 'config', 'config', '75.000'] in lines
    assert (tmp_path / 'work' / 'resolutions.png').exists()


@pytest.mark.slow
def test_figures_beside_those_of_a_paper(
    run: Run,
    pictures: list[Image.Image],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Sizes and baseline from a table; the same command with other ones uses its own figures."""
    checkpoint = small_vit(tmp_path / 'vit.pth')
    names = [str(number % CLASSES) for number in range(len(pictures))]
    folder = write(tmp_path / 'val', pictures, names, sorted(set(names)))
    arguments = [
        checkpoint,
        folder,
        '--work-dir',
        tmp_path / 'work',
        '--scaling',
        'none',
        'linear',
    ]
    options = ['--overlay', 'table-a.2', '--relative-to', 'table-a.4:vit-b_ape']
    assert run(*arguments, '--sizes', 'fused-table-2', 96, 48, *options) == 0
    printed = capsys.readouterr().out
    assert 'crop ratio 1.0' in printed
    assert f'scalings: {DOCS}/evaluation.md' in printed
    assert 'without 48 pixels, which vit-b_ape, table-a.4 does not have' in printed
    assert (
        printed.count('relative.png: ') == 1
    )  # those of table-a.2 have the sizes of table-a.4
    content = read_results(tmp_path / 'work' / 'resolutions.json')
    assert [row['scaling'] for row in content['rows']][::3] == ['none', 'linear:1']
    found = {
        row['size']: row['metrics']['accuracy/top1'] for row in content['rows'][:2]
    }
    assert list(found) == ['224', '96']
    with open(tmp_path / 'work' / 'relative.csv') as file:
        rows = [row for row in csv.DictReader(file) if 'linear' not in row['scaling']]
    differences = {
        (row['label'], row['size']): float(row['accuracy/top1']) for row in rows
    }
    own = rows[0]['label']
    assert differences[own, '96'] == pytest.approx(found['96'] - 57.6)
    assert differences['vit-b_rope-axial-learned, table-a.2', '512'] == pytest.approx(
        1.8
    )
    assert (tmp_path / 'work' / 'relative.png').exists()
    for option, name, message in (
        ('--relative-to', 'table-a.4', '--relative-to table-a.4: give one of its rows'),
        (
            '--relative-to',
            'table-a.9:vit-b_rope-mixed',
            'differences to table-a.4:vit-b_ape',
        ),
        ('--overlay', 'table-a.4:x', '--overlay table-a.4:x: no such row'),
        ('--sizes', 'table-6', '--sizes table-6: no such table'),
    ):
        given = [] if option == '--sizes' else ['--sizes', '96']
        assert run(*arguments, *given, option, name) == 2
        assert message in capsys.readouterr().err
    elsewhere = [*arguments[:2], '--work-dir', tmp_path / 'other', '--sizes', '32']
    assert run(*elsewhere, '--relative-to', 'table-a.4:vit-b_ape') == 2
    assert (
        'at 96, 144, 192, 224, 256, 320, 384, 512 pixels (s' in capsys.readouterr().err
    )
    baseline = dict(
        read_results(tmp_path / 'work' / 'resolutions.json'), rows=content['rows'][2:3]
    )
    (tmp_path / 'small.json').write_text(json.dumps(baseline))  # 48 pixels only
    options = [
        '--sizes',
        '48',
        '--relative-to',
        tmp_path / 'small.json',
        '--overlay',
        'table-a.2',
    ]
    assert run(*arguments, *options) == 2
    assert (
        ' has results at 48 pixels (shorter side), vit-b_rope-axial'
        in capsys.readouterr().err
    )
    assert not (tmp_path / 'other' / 'resolutions.json').exists()


@pytest.mark.parametrize(
    'kind, short', [('RoPEViT', 224), ('RoPESwin', 256), ('RoPENAT', 256)]
)
def test_pictures_are_read_and_cut_as_published(
    kind: str, short: int, tmp_path: Path
) -> None:
    """Crop ratios of each source; a camera's note that the picture is upside down is ignored."""
    picture = Image.effect_noise((300, 300), 80).convert('RGB')
    note = picture.getexif()
    note[0x0112] = 3  # orientation: turned by 180 degrees
    (tmp_path / 'val' / 'a').mkdir(parents=True)
    picture.save(tmp_path / 'val' / 'a' / 'a.png', exif=note)
    data = dict(data_root=str(tmp_path / 'val'))
    config = evaluation_config(dict(backbone=dict(type=kind)), PROTOCOLS[kind], data)
    image = DATASETS.build(config.test_dataloader.dataset)[0]['inputs']
    corner = (short - 224) // 2
    whole = np.asarray(picture.resize((short, short), Image.Resampling.BICUBIC))
    expected = whole[
        corner : corner + 224, corner : corner + 224, ::-1
    ]  # BGR until normalised
    assert np.array_equal(image.permute(1, 2, 0).numpy(), expected)


def test_names_that_are_wrong(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, message in (
        (
            ['--model', 'ropevit_small_mxed'],
            "is called 'ropevit_small_mxed'; close are ropevit_small_mixed,",
        ),
        (['--model', 'nat_mini_rpb', '--config', 'x.py'], 'give one of them'),
    ):
        assert run(tmp_path / 'x.pth', tmp_path, *options) == 2
        assert message in capsys.readouterr().err


def test_a_checkpoint_is_read_once(
    run: Run,
    pictures: list[Image.Image],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To find its name, to try it, and to evaluate it."""
    checkpoint = small_vit(tmp_path / 'vit.pth')
    names = [str(number % CLASSES) for number in range(len(pictures))]
    folder = write(tmp_path / 'val', pictures, names, sorted(set(names)))
    reads: list[str] = []
    load, test = torch.load, zipfile.ZipFile.testzip
    monkeypatch.setattr(
        torch, 'load', lambda *args, **kw: reads.append('load') or load(*args, **kw)
    )
    monkeypatch.setattr(
        zipfile.ZipFile, 'testzip', lambda file: reads.append('sum') or test(file)
    )
    options = [
        '--model',
        'small_vit_mixed',
        '--sizes',
        SIDE,
        '--work-dir',
        tmp_path / 'work',
    ]
    assert run(checkpoint, folder, *options) == 0
    assert sorted(reads) == ['load', 'sum']


def test_swin_takes_windows_of_a_32nd(
    run: Run, pictures: list[Image.Image], tmp_path: Path
) -> None:
    weights = trained(naver_swin(32, (2, 2), (1, 2), 'mixed'), CLASSES)
    checkpoint = saved(dict(model=weights), tmp_path / 'swin.pth')
    names = [str(number % CLASSES) for number in range(len(pictures))]
    folder = write(tmp_path / 'val', pictures, names, sorted(set(names)))
    assert run(checkpoint, folder, '--sizes', 64, '--work-dir', tmp_path / 'work') == 0
    (row,) = read_results(tmp_path / 'work' / 'resolutions.json')['rows']
    assert row['window'] == 'auto'


@pytest.mark.slow
def test_a_bias_is_resized_as_asked(
    run: Run,
    pictures: list[Image.Image],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = {
        variant: saved(
            dict(model=trained(naver_swin(32, (2, 2), (1, 2), variant), CLASSES)),
            tmp_path / f'{variant}.pth',
        )
        for variant in ('rpb', 'mixed')
    }
    names = [str(number % CLASSES) for number in range(len(pictures))]
    folder = write(tmp_path / 'val', pictures, names, sorted(set(names)))
    options = ['--sizes', 64, '--work-dir', tmp_path / 'work']
    for resize in (
        'zeros',
        'bicubic',
    ):  # the former as published, without being asked for
        asked = ['--rpb-resize', resize, '--overwrite'] * (resize == 'bicubic')
        assert run(files['rpb'], folder, *options, *asked) == 0
        assert f"resize='{resize}'" in (tmp_path / 'work' / 'classifier.py').read_text()
    assert run(files['mixed'], folder, *options, '--rpb-resize', 'zeros') == 2
    assert '--rpb-resize zeros: ' in capsys.readouterr().err


@pytest.mark.slow
def test_eval_resolutions_goes_on_with_a_classifier(
    run: Run,
    pictures: list[Image.Image],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The config that the tool leaves is one of the other tool, whose figures join the first."""
    weights = trained(naver_swin(32, (2, 2), (1, 2), 'mixed'), CLASSES)
    checkpoint = saved(dict(model=weights), tmp_path / 'swin.pth')
    names = [str(number % CLASSES) for number in range(len(pictures))]
    folder = write(tmp_path / 'val', pictures, names, sorted(set(names)))
    assert (
        run(checkpoint, folder, '--sizes', 64, 96, '--work-dir', tmp_path / 'work') == 0
    )
    main = command('eval_resolutions')
    config = str(tmp_path / 'work' / 'classifier.py')
    options = ['--sizes', '64', '96', '--cfg-options', 'experiment_name=other_tool']
    assert main([config, checkpoint, *options]) == 0
    found = {'auto': {}, 'config': {}}
    for row in read_results(tmp_path / 'work' / 'resolutions.json')['rows']:
        found[row['window']][row['size']] = row['metrics']
    assert found['auto'] == found['config'] and len(found['auto']) == 2
    other = saved(
        dict(model=trained(naver_vit(64, 2, mixed=True, ape=False), 3)), tmp_path / 'o'
    )
    assert main([config, other, *options]) == 2
    assert 'does not fit' in capsys.readouterr().err
    missing = 'test_dataloader.dataset.data_root=/none'
    assert main([config, checkpoint, *options, missing]) == 2
    assert '/none: No such file or directory' in capsys.readouterr().err


@pytest.mark.slow
def test_subset_competes_alone(
    run: Run, pictures: list[Image.Image], tmp_path: Path
) -> None:
    """ImageNet-A and -R: 200 of 1000 classes, here 3 of 7, named in an index of all."""
    checkpoint = small_vit(tmp_path / 'vit.pth')
    ranks = ranked(checkpoint, pictures, SIDE)
    classes = [f'n{index:08d}' for index in range(CLASSES)]
    allowed = [1, 4, 6]
    best = [next(index for index in rank if index in allowed) for rank in ranks]
    chosen = [classes[index] for index in allowed]
    folder = write(tmp_path / 'a', pictures, [classes[index] for index in best], chosen)
    index = tmp_path / 'index.json'
    index.write_text(
        json.dumps({str(i): [name, 'name'] for i, name in enumerate(classes)})
    )
    options = ['--sizes', SIDE, '--class-index', index]
    work_dirs = [tmp_path / 'subset', tmp_path / 'all']
    assert (
        run(checkpoint, folder, *options, '--subset', '--work-dir', work_dirs[0]) == 0
    )
    assert run(checkpoint, folder, *options, '--work-dir', work_dirs[1]) == 0
    assert accuracies(work_dirs[0])[str(SIDE)] == (100, 100)
    agreeing = np.mean([rank[0] in allowed for rank in ranks])
    assert agreeing < 1  # or the test would show nothing
    assert accuracies(work_dirs[1])[str(SIDE)][0] == pytest.approx(100 * agreeing)


def test_real_labels_replace_the_folders(
    run: Run, pictures: list[Image.Image], tmp_path: Path
) -> None:
    """Of twelve pictures four have no label, four have a right one among others, four none."""
    checkpoint = small_vit(tmp_path / 'vit.pth')
    ranks = ranked(checkpoint, pictures, SIDE)
    labels = [
        [[], [rank[6], rank[0]], [rank[6]]][number % 3]
        for number, rank in enumerate(ranks)
    ]
    real = tmp_path / 'real.json'
    real.write_text(json.dumps(labels))
    names = [str(number % CLASSES) for number in range(len(pictures))]
    folder = write(tmp_path / 'val', pictures, names, sorted(set(names)))
    options = ['--sizes', SIDE, '--real-labels', real, '--work-dir', tmp_path / 'work']
    assert run(checkpoint, folder, *options) == 0
    assert accuracies(tmp_path / 'work')[str(SIDE)] == (50, 50)


def test_folders_that_do_not_fit_the_head(
    run: Run,
    pictures: list[Image.Image],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoint = small_vit(tmp_path / 'vit.pth')
    work_dir = tmp_path / 'work'
    three = write(tmp_path / 'three', pictures[:3], ['a', 'b', 'c'], ['a', 'b', 'c'])
    eight = write(tmp_path / 'eight', pictures[:1], ['7'], ['7'])
    for folder, options, message in (
        (three, [], '3 folders of classes, but the head has 7 classes: say which'),
        (eight, [], 'class 7 (from 0), but the head has 7 classes'),
        (tmp_path / 'none', [], 'none: No such file or directory'),
        (eight, ['--class-index', three], 'three has no class 7'),
        (eight, ['--crop-ratio', '1.5'], '--crop-ratio 1.5'),
        (eight, ['--sizes', '96x128'], 'tested on squares'),
    ):
        assert run(checkpoint, folder, *options, '--work-dir', work_dir) == 2
        assert message in capsys.readouterr().err
    assert not (work_dir / 'resolutions.json').exists()
