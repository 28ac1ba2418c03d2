"""Configs and --cfg-options that cannot be used: one message, before anything begins."""

import sys
from pathlib import Path

import pytest

from helpers.small_configs import CONFIGS
from helpers.tool_names import TRAIN_DATA, Fails, Main
from rope_dense import models
from rope_dense.project.load import load_config
from rope_dense.utils.errors import UsageError


def test_missing_config(train: Main, test: Main, fails: Fails) -> None:
    for main, more in ((train, []), (test, ['x.pth'])):
        fails(
            main,
            'configs/dino.py',
            *more,
            says=["config 'configs/dino.py': no such file"],
        )


@pytest.mark.parametrize(
    'text, says',
    [
        ('model = dict(', 'SyntaxError'),
        ("_base_ = './no_such_base.py'", 'no_such_base.py'),
        ('model = nothing', "name 'nothing' is not defined"),
        ("custom_imports = dict(imports=['no_such_module'])", 'no_such_module'),
        ('model = dict()', "default_scope=None; set it to 'mmdet' or 'mmseg'"),
    ],
)
def test_config_that_cannot_be_used(
    train: Main, fails: Fails, tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / 'broken.py').write_text(text)
    fails(train, str(tmp_path / 'broken.py'), says=[says])


def test_config_of_another_type(train: Main, fails: Fails, tmp_path: Path) -> None:
    (tmp_path / 'config.txt').write_text('')
    fails(train, str(tmp_path / 'config.txt'), says=['(.py, .yml, .yaml, .json)'])


@pytest.mark.parametrize(
    'option, says',
    [
        ('optim_wrapper=None', ['no optim_wrapper']),
        ('val_cfg=None', ['no val_cfg']),
    ],
)
def test_missing_section(
    train: Main, detector: str, fails: Fails, option: str, says: str
) -> None:
    fails(train, detector, '--cfg-options', option, says=says)


def test_missing_task_package(
    train: Main, detector: str, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, 'mmdet.models', None)
    fails(train, detector, says=['needs mmdetection', 'mmdet.models'])


@pytest.mark.parametrize(
    'name',
    [
        'oriented/rotated-retinanet_swin-t_rope-mixed_1xb2-12e_dota',  # _base_ = 'mmrotate::...'
        'own/oriented',  # imports it for own data
        'demo/oriented_deim_vit_rope_mixed_shapes',  # custom_imports
        'demo/oriented_rcnn_vit_rope_mixed_shapes',  # get_config, which would run pip
    ],
)
def test_missing_mmrotate(
    train: Main, fails: Fails, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, 'mmrotate', None)
    monkeypatch.delitem(sys.modules, 'rope_dense.models.mmrotate', raising=False)
    monkeypatch.delattr(models, 'mmrotate', raising=False)
    monkeypatch.setattr(
        'mmengine.hub.hub.install_package', lambda package: pytest.fail(package)
    )
    says = [
        'oriented boxes need onedl-mmrotate',
        'pip install --no-deps onedl-mmrotate',
    ]
    classes = (
        ['--classes', 'ship'] if name == 'own/oriented' else []
    )  # so no data are needed
    fails(train, str(CONFIGS / f'{name}.py'), *classes, says=says)


@pytest.mark.parametrize('pair', ['a.b', '=3', 'a=[1,'])
def test_options_that_cannot_be_read(
    train: Main, detector: str, fails: Fails, pair: str
) -> None:
    fails(train, detector, '--cfg-options', pair, says=[f'--cfg-options {pair}: '])


def test_options_accumulate_and_merge(train: Main, detector: str, fails: Fails) -> None:
    options = ['--cfg-options', 'a_key.b=1', '--cfg-options', 'model.num_queries=7']
    fails(train, detector, *options, says=["a_key.b=1: the config has no 'a_key'"])


@pytest.mark.parametrize(
    'option, says',
    [
        ('trian_cfg.max_iters=3', "the config has no 'trian_cfg'"),
        (f'{TRAIN_DATA}.pipeline.99.type=Resize', 'Index 99 exceeds the length'),
        ('model.num_queries.few=3', 'num_queries'),
        ('tta_pipeline.0=3', 'AttributeError'),
    ],
)
def test_options_that_do_not_fit(
    train: Main, detector: str, fails: Fails, option: str, says: str
) -> None:
    fails(train, detector, '--cfg-options', option, says=[says, option.split('=')[0]])


@pytest.mark.parametrize(
    'option, says',
    [
        ('optim_wrapper.optimizer.lr=-1', ['optim_wrapper', 'Invalid learning rate']),
        ('optim_wrapper.constructor=Foo', ['optim_wrapper', 'Foo is not in']),
        ('model=3', ["'int'"]),
        (f'{TRAIN_DATA}.pipeline=3', ["'int'"]),
    ],
)
def test_any_other_error_is_one_line(
    train: Main, detector: str, fails: Fails, option: str, says: list[str]
) -> None:
    message = fails(train, detector, '--cfg-options', option, says=says)
    assert message.count('\n') == 1 and '(--debug shows where)' in message


def test_a_dict_as_an_option(train: Main, detector: str, fails: Fails) -> None:
    option = 'model.backbone.arch=dict(embed_dims=16,depth=4)'
    fails(
        train,
        detector,
        '--cfg-options',
        option,
        says=['--cfg-options', 'RecursionError'],
    )


def test_delete_where_there_is_nothing_to_delete(detector: str, tmp_path: Path) -> None:
    path = tmp_path / 'child.py'
    path.write_text(
        f'_base_ = {detector!r}\n'
        'optim_wrapper = dict(paramwise_cfg=dict(new=dict(_delete_=True, x=1)))'
    )
    assert load_config(str(path)).optim_wrapper.paramwise_cfg.new == dict(x=1)


def test_an_architecture_as_a_dict_over_a_name(tmp_path: Path) -> None:
    """mmengine merges files before anything else sees them: the message says how to replace."""
    path = tmp_path / 'child.py'
    base = CONFIGS / 'dino_vitdet_rope_mixed.py'
    text = "_base_ = '{}'\nmodel = dict(backbone=dict(arch=dict({}embed_dims=64, depth=12)))"
    path.write_text(text.format(base, ''))
    with pytest.raises(UsageError, match=r'arch=.*You may set `_delete_=True`'):
        load_config(str(path))
    path.write_text(text.format(base, '_delete_=True, '))
    assert load_config(str(path)).model.backbone.arch == dict(embed_dims=64, depth=12)


@pytest.mark.parametrize(
    'options, says',
    [
        (['default_hooks.timer.interal=3'], "'interal'"),
        (['optim_wrapper.paramwise_cfg.layer_decay=3'], 'error: optim_wrapper: '),
        (['test_cfg=None'], 'error: Runner'),
    ],
)
def test_parts_that_the_runner_cannot_build(
    train: Main,
    detector: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    says: str,
) -> None:
    names = [f'experiment_name={tmp_path.name}', f'visualizer.name={tmp_path.name}']
    argv = [detector, '--work-dir', str(tmp_path), '--cfg-options', *options, *names]
    assert train(argv) == 2
    message = capsys.readouterr().err
    assert says in message and 'Traceback' not in message
    assert train([*argv[:3], '--debug', *argv[3:]]) == 2
    message = capsys.readouterr().err
    assert says in message and 'Traceback' in message


@pytest.mark.parametrize(
    'option, says',
    [
        ('test_evaluator.metric=mask', 'test_evaluator: KeyError'),
        ('test_cfg.type=Loop', 'Loop is not in the mmdet::loop'),
    ],
)
def test_parts_of_a_test_that_cannot_be_built(
    test: Main,
    detector: str,
    weights: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    option: str,
    says: str,
) -> None:
    assert (
        test([detector, weights, '--work-dir', str(tmp_path), '--cfg-options', option])
        == 2
    )
    message = capsys.readouterr().err
    assert says in message and 'Traceback' not in message


def test_a_work_dir_that_is_a_file(
    train: Main, detector: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / 'file').touch()
    assert train([detector, '--work-dir', str(tmp_path / 'file')]) == 2
    message = capsys.readouterr().err
    assert str(tmp_path / 'file') in message and 'Traceback' not in message
