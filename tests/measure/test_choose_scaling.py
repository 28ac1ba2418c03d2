"""`rope-dense choose-scaling`: what it tries, its choice, the configs that it writes."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import cv2
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from mmengine.runner import Runner
from torch import nn

from helpers.rows import attributes, column, read_json
from helpers.tool_names import Fails
from rope_dense.backbones import RoPENAT, RoPESwin, RoPEViT
from rope_dense.backbones.archs import VIT_ARCHS
from rope_dense.backbones.base import Backbone
from rope_dense.engine.figure_source import FigureSource
from rope_dense.measure import choose as chooser
from rope_dense.measure.candidates import settings_at
from rope_dense.measure.choice_files import config_of
from rope_dense.measure.evaluator import Evaluator
from rope_dense.measure.per_image import Sample
from rope_dense.measure.scores import ImageMeans
from rope_dense.measure.settings import Setting
from rope_dense.project.contents import configured_size
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model
from rope_dense_command import command

MIXED = dict(type='MixedRoPE')
AXIAL = dict(type='AxialRoPE')
TINY = dict(
    embed_dims=32,
    depth=2,
    num_heads=2,
)
STAGES = dict(
    embed_dims=16,
    depths=(2, 2),
    num_heads=(1, 2),
)
main = command('choose_scaling')


def vit(**settings: object) -> RoPEViT:
    return RoPEViT(
        **{
            **dict(
                arch=TINY,
                img_size=64,
                rope=MIXED,
            ),
            **settings,
        }
    )


def tried(
    backbone: Backbone,
    size: str,
    trained: tuple[int, int] = (64, 64),
    keep_ratio: bool = False,
    scalings: Sequence[str] = (),
    windows: Sequence[str] = (),
) -> list[tuple[str, str]]:
    """Scaling and window of what is compared with the config's own, of 64 x 64 pixels."""
    model = nn.Module()
    model.backbone = backbone
    resize = dict(
        type='Resize',
        scale=(64, 64),
        keep_ratio=keep_ratio,
    )
    loader = dict(dataset=dict(pipeline=[resize]))
    evaluator = Evaluator(model, Config(dict(model={}, test_dataloader=loader)))
    own, *others = settings_at(evaluator, size, trained, scalings, windows)
    assert own == Setting(size)
    return [(setting.scaling, setting.window) for setting in others]


def test_scalings_grow_with_the_images() -> None:
    config = 'config'
    assert tried(vit(), '64') == []
    temperatures = [('none:1.5+log', config), ('none:1.5+yarn', config)]
    both = [('linear:1.5', config), ('by_parts:1.5', config)]
    others = [*temperatures, ('by_parts:1.5+log', config)]
    assert tried(vit(), '96') == [*both, *others]
    assert ('ntk:1.5', config) in tried(vit(rope=AXIAL), '96')
    assert tried(vit(), '48') == [('linear:0.75', config)]
    assert ('linear:1.5x2', config) in tried(vit(), '96x128')
    assert ('linear:2', config) in tried(vit(), '96x128', (48, 48), keep_ratio=True)
    for name in ('dinov3_small', 'lingbot_small', 'eva02_tiny'):
        normalized = VIT_ARCHS[name]['rope']
        assert tried(vit(rope=normalized), '96') == temperatures
    assert tried(vit(rope=None), '96') == []


def test_the_scaling_of_the_config_is_one_of_them() -> None:
    for size, factor in (('64', 2), ('128', 4)):
        # By 2 at 64 x 64 pixels.
        scaled = vit(img_size=32, rope_scaling=dict(type='linear'))
        expected = [('none', 'config'), (f'by_parts:{factor}', 'config')]
        for kind in ('none:{}+log', 'none:{}+yarn', 'by_parts:{}+log'):
            expected.append((kind.format(factor), 'config'))
        assert tried(scaled, size) == expected
    fixed = vit(rope_scaling=dict(type='linear', factor=1.25))
    assert ('linear:2.5', 'config') in tried(fixed, '128')


def test_windows_grow_with_the_images() -> None:
    backbone = vit(window_size=2, window_block_indexes=(0,))
    found = tried(backbone, '128')
    assert {window for _, window in found} == {'config', 'auto', 'none', '4x4'}
    scalings = (
        'config',
        'linear:2',
        'by_parts:2',
        'none:2+log',
        'none:2+yarn',
        'by_parts:2+log',
    )
    assert {scaling for scaling, _ in found} == {*scalings}
    assert len(found) == 3 * 4 - 1 + 3  # temperatures with the config's windows alone
    assert ('config', '4x4') in found
    assert ('linear:2', 'none') in found


def test_a_scaling_of_unchanged_windows_is_not_tried() -> None:
    swin = RoPESwin(
        STAGES,
        rope=MIXED,
        window_size=4,
        pretrain_window_size=4,
        out_indices=(1,),
    )
    kinds = ('config', 'linear', 'by_parts', 'none+log', 'none+yarn', 'by_parts+log')
    assert tried(swin, '128') == list(product(kinds, ('auto', '8x8')))
    nat = RoPENAT(
        STAGES,
        rope=AXIAL,
        kernel_size=3,
        pretrain_kernel_size=3,
        out_indices=(1,),
    )
    found = tried(nat, '128')  # a kernel is odd
    assert ('config', '7x7') in found
    assert ('ntk', '7x7') in found


def test_given_settings_are_not_left_out() -> None:
    assert tried(vit(), '96', scalings=['linear:3']) == [('linear:3', 'config')]
    found = tried(vit(), '96', (48, 48), scalings=['linear+log'])
    assert found == [('linear:2+log', 'config')]
    with pytest.raises(ValueError, match='ntk'):
        tried(vit(), '96', scalings=['ntk:2'])
    windowed = dict(window_size=2, window_block_indexes=(0,))
    found = tried(vit(**windowed), '96', windows=['3'])
    windows = [window for scaling, window in found if scaling == 'by_parts:1.5']
    assert windows == ['config', '3']
    with pytest.raises(ValueError, match='larger than the map'):
        tried(vit(**windowed), '96', windows=['9'])


@pytest.fixture(scope='module')
def weights(segmentor: str, folder: Path) -> str:
    path = folder / 'segmentor.pth'
    model = random_model(Config.fromfile(segmentor))
    torch.save(dict(state_dict=model.state_dict()), path)
    return str(path)


def test_the_config_of_a_size_gives_the_figures(
    segmentor: str,
    weights: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = f'--sizes 64 96 --draws 200 --work-dir {tmp_path}'
    assert main([segmentor, weights, *arguments.split()]) == 0
    content = read_json(tmp_path / 'scaling' / 'choice.json')
    assert (content['metric'], content['images']) == ('mIoU', 2)
    alone, larger = content['sizes']
    assert column(alone['rows'], 'scaling') == ['config']
    scalings = column(larger['rows'], 'scaling')
    assert scalings[:3] == ['config', 'linear:1.5', 'by_parts:1.5']
    assert scalings[3:] == ['none:1.5+log', 'none:1.5+yarn', 'by_parts:1.5+log']
    for row in larger['rows']:
        assert row['low'] <= row['value'] <= row['high']
        assert row['least'] is None  # which JSON has no infinity for
    said = capsys.readouterr().out
    assert larger['chosen'] == 0
    assert "fewer than 5 images: the config's own" in said
    source = FigureSource(**content['source'])
    assert (source.images, source.evaluator) == (2, 'IoUMetric')
    assert source.checkpoint == Path(weights).name and str(source) in said
    table = [line.split()[:2] for line in said.splitlines()]
    assert ['size', 'scaling'] in table
    assert ['96', 'by_parts:1.5'] in table
    assert cv2.imread(str(tmp_path / 'scaling' / 'choice.png')).std() > 0
    written = tmp_path / 'scaling' / '96.py'
    config = load_config(str(written), (), str(tmp_path / 'test'))
    assert configured_size(config) == (96, 144)
    assert config.model.test_cfg.crop_size == (96, 96)
    config.experiment_name = config.visualizer.name = 'choice_96'
    config.load_from = weights
    metrics = Runner.from_cfg(config).test()
    expected = larger['rows'][larger['chosen']]['metric']
    assert metrics['mIoU'] == pytest.approx(expected, abs=0.0051)


def test_the_chosen_settings_are_in_the_config(detector: str) -> None:
    config = Config.fromfile(detector)
    model = random_model(config)
    setting = Setting('96', 'linear:1.5', '3x4')
    written = config_of(config, setting, Evaluator(model, config))
    assert config.model.backbone.window_size == 2  # the user's stays as it is
    backbone = random_model(written).backbone
    assert backbone.window_size == (3, 4)
    assert backbone.blocks[1].attn.rope.scaling.factor == (1.5, 1.5)
    nat = dict(
        type='RoPENAT',
        arch=STAGES,
        rope=AXIAL,
        kernel_size=3,
        out_indices=[1],
    )
    config = Config(dict(config._cfg_dict, model=dict(backbone=nat)))
    model = nn.Module()
    model.backbone = MODELS.build(nat)
    written = config_of(config, Setting('96', window='5'), Evaluator(model, config))
    assert MODELS.build(written.model.backbone).window_size == (5, 5)


def test_a_choice_is_judged_on_other_images(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Scores are made up: linear helps the images that choose, not those that judge."""
    tested = []

    def score(_: object, setting: Setting, sample: Sample, title: str) -> ImageMeans:
        tested.append((setting.scaling, sample.skip, title.partition(',')[0]))
        values = torch.arange(float(sample.number)).numpy()
        gain = 1.0 if setting.scaling == 'linear' and not sample.skip else 0.0
        return ImageMeans('mIoU', sample.number, True, values + gain)

    monkeypatch.setattr(chooser, 'score_images', score)
    samples = Sample(20), Sample(10, skip=20)
    tests = SimpleNamespace(
        config={}, source=lambda config: FigureSource(30, 'streets')
    )
    choices = chooser.Chooser(tests, samples, draws=100, tests=4)
    settings = [Setting('96'), Setting('96', 'linear'), Setting('96', 'by_parts')]
    choice = choices.choose(settings)
    assert (choice.chosen, choice.metric) == (1, 'mIoU')
    assert tested[:3] == [
        ('config', 0, 'test 1 of 4'), ('linear', 0, 'test 2 of 4'), ('by_parts', 0, 'test 3 of 4')
    ]  # fmt: skip
    own, other = tested[3:]
    assert own[:2] == ('config', 20)
    assert other[:2] == ('linear', 20)
    own, other = choice.judged
    assert own.difference.value == other.difference.value == 0
    assert attributes(choice.tried, 'tied') == [False, True, False]
    printed = capsys.readouterr().out
    assert printed.startswith('20 images of streets\n') and 'not confirmed' in printed
    kept = choices.choose([settings[0], settings[2]])
    assert (kept.chosen, kept.judged) == (0, None)
    assert attributes(kept.tried, 'tied') == [True, True]
    assert 'within the spread of it: scaling by_parts' in capsys.readouterr().out


def test_what_cannot_be_chosen(segmentor: str, weights: str, fails: Fails) -> None:
    for options, message in (
        ('--sizes 8', 'leave no token'),
        ('--sizes 64', 'nothing to choose'),
        ('--scaling ntk:2', "'ntk' changes the theta"),
        (
            '--sizes 96 --draws 100 --scaling linear:2 linear:3 linear:4',
            '--draws 100: to compare 3 settings of a size with the config takes 120',
        ),
        ('--images 2 --judge 1', '--judge 1: of 2 images'),
        ('--cfg-options val_evaluator.type=CityscapesMetric', 'CityscapesMetric'),
    ):
        fails(main, segmentor, weights, *options.split(), says=[message])
