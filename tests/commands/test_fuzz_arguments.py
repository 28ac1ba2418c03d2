"""Random mistakes in command lines and --cfg-options: exit code 2 and a few lines, no traceback.

A few of a fixed seed always; with the slow tests more, of a seed that changes every week, or that
the environment variable ROPE_DENSE_FUZZ_SEED gives. A failure names the command.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from mmengine.config import Config
from PIL import Image

from helpers.seeds import seed_of_the_week
from helpers.tool_names import Main
from rope_dense.utils.config_parts import nodes
from rope_dense.utils.errors import UsageError
from rope_dense_command import command

VALUES = [
    '',
    '-1',
    '0',
    '1',
    '3.5',
    'nan',
    '1e999',
    'None',
    'True',
    'x',
    'x' * 300,
    '{}',
    'a=b',
]
VALUES += [
    '[]',
    '[1,2]',
    '(1,)',
    "['x']",
    '/',
    '..',
    '--',
    '-',
    'é',
    'RoPEViT',
    'all',
    'dict(a=1)',
]
OPTIONS = [
    '--resume',
    '--load-from',
    '--amp',
    '--ema',
    '--with-cp',
    '--fsdp',
    '--auto-scale-lr',
]
OPTIONS += [
    '--work-dir',
    '--data-root',
    '--launcher',
    '--flops',
    '--size',
    '--compile',
    '--help',
]
USES = [
    '--out',
    '--batch',
    '--score',
    '--device',
    '--size',
    '--tile',
    '--overlap',
    '--format',
]
USES += [
    '--cfg-options',
    '--classes',
    '--picture',
    '--compare',
    '--work-dir',
    '--data-root',
    '--x',
]
LINES = 25  # of a message; those of argparse begin with the usage


@pytest.fixture(scope='module')
def mains() -> Iterator[dict[str, Main]]:
    """Tools that stop before they write and train."""

    def reached(*arguments: object) -> None:
        raise UsageError('nothing is wrong')

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('rope_dense.training.Run.written', reached)
        yield {name: command(name) for name in ('train', 'print_recipe')}


def keys(config: str) -> list[str]:
    """The settings of a config, with dots."""
    cfg = Config.fromfile(config)
    found = [
        f'{name}.{key}' if name else key
        for name, node in nodes(cfg._cfg_dict)
        for key in node
    ]
    return sorted({*cfg.keys(), *found})


def mistake(random: Random, config: str, settings: list[str]) -> list[str]:
    """Arguments with one to three changes."""
    arguments = [config]
    for _ in range(random.randint(1, 3)):
        kind = random.randrange(5)
        value = random.choice(VALUES)
        if kind < 3:
            key = random.choice(settings)
            key += random.choice(['', '', '', '.x', '.0', '.99', '.', 'x'])
            arguments += ['--cfg-options', f'{key}={value}']
        elif kind == 3:
            arguments += [random.choice(OPTIONS), *random.choice([[], [value]])]
        else:
            place = random.randrange(len(arguments))
            arguments[place : place + random.randint(0, 1)] = [value]
    return arguments


def mistake_of_use(random: Random, arguments: list[str]) -> list[str]:
    """Arguments of a command for a trained model, with one to three changes."""
    arguments = [*arguments]
    for _ in range(random.randint(1, 3)):
        if random.randrange(3):
            arguments += [
                random.choice(USES),
                *random.choice([[], [random.choice(VALUES)]]),
            ]
        else:
            place = random.randrange(len(arguments))
            arguments[place : place + random.randint(0, 1)] = [random.choice(VALUES)]
    return arguments


def check(
    tool: str, main: Main, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The tool stops with a message, or does what it is told."""
    try:
        code = main(arguments)
    except SystemExit as error:  # of argparse
        code = error.code
    except BaseException as error:
        raise AssertionError(
            f'{tool} {arguments}: {type(error).__name__}: {error}'
        ) from error
    message = capsys.readouterr().err
    assert code in (0, 1, 2), f'{tool} {arguments}: {code}'
    assert 'Traceback' not in message and message.count('\n') <= LINES, (
        f'{tool} {arguments}'
    )


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.iterdir())  # nothing is written


@pytest.mark.usefixtures('inside')
@pytest.mark.parametrize('number', range(4))
def test_a_few_mistakes(
    number: int,
    mains: dict[str, Main],
    segmentor: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for tool, main in mains.items():
        check(tool, main, mistake(Random(number), segmentor, keys(segmentor)), capsys)


@pytest.mark.slow
@pytest.mark.usefixtures('inside')
def test_many_mistakes(
    mains: dict[str, Main],
    segmentor: str,
    detector: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    random = Random(seed_of_the_week())
    for config in (segmentor, detector):
        settings = keys(config)
        for _ in range(100):
            arguments = mistake(random, config, settings)
            for tool, main in mains.items():
                check(tool, main, arguments, capsys)


@pytest.mark.slow
@pytest.mark.parametrize('tool', ['predict', 'predict_large', 'export', 'report'])
def test_many_mistakes_with_a_trained_model(
    tool: str,
    detector: str,
    weights: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The commands run where nothing is wrong; a picture of one colour keeps that short."""
    monkeypatch.chdir(tmp_path)
    Image.new('RGB', (64, 64)).save('in.png')
    random, main = Random(seed_of_the_week()), command(tool)
    last = {'export': ['out.onnx'], 'report': ['--out', 'report']}.get(tool, ['in.png'])
    for _ in range(100):
        check(tool, main, mistake_of_use(random, [detector, weights, *last]), capsys)
