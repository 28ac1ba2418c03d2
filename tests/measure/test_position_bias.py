"""`rope-dense position-bias`: spreads against a formula of their own, forms, files, mistakes."""

import csv
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from torch import Tensor, nn

from helpers.rows import column
from helpers.tool_names import Main
from rope_dense.backbones import RoPEViT
from rope_dense.project.model import build_model
from rope_dense_command import command

pytestmark = pytest.mark.usefixtures('surroundings')


@pytest.fixture(scope='module')
def run() -> Main:
    return command('position_bias')


def randomize(model: nn.Module) -> nn.Module:
    """Weights so large that blocks, and so positions, matter."""
    torch.manual_seed(0)
    for name, weights in model.named_parameters():
        if weights.ndim > 1 and 'freqs' not in name:
            nn.init.normal_(weights, std=0.08)
        if 'gamma' in name:
            nn.init.ones_(weights)
    return model


def rows_of(folder: Path) -> list[dict[str, str]]:
    assert (folder / 'position_bias' / 'position_bias.png').stat().st_size > 5000
    with open(folder / 'position_bias' / 'position_bias.csv', newline='') as file:
        return list(csv.DictReader(file))


def deviation(x: Tensor) -> float:
    """Of the tokens [n, C] of a map, summed token by token."""
    tokens = x[0].flatten(1).T.double()
    squares = [(token - tokens.mean(0)).square().mean() for token in tokens]
    return torch.stack(squares).mean().sqrt().item()


def test_an_architecture_with_its_weights(run: Main, tmp_path: Path) -> None:
    model = randomize(RoPEViT('tiny')).eval()
    torch.save(model.state_dict(), tmp_path / 'tiny.pth')
    argv = ['tiny', str(tmp_path / 'tiny.pth'), '--work-dir', str(tmp_path)]
    assert run([*argv, '--sizes', '64', '96x128']) == 0
    rows = rows_of(tmp_path)
    assert column(rows, 'height') == ['64', '96'] * 2
    assert column(rows, 'width') == ['64', '128'] * 2
    assert column(rows, 'scaling') == ['config', 'config', 'linear', 'linear']
    assert column(rows, 'prefix') == ['-'] * 4
    with torch.no_grad():
        constant = deviation(model(torch.zeros(1, 3, 96, 128))[0])
        generator = torch.Generator().manual_seed(0)
        noise = deviation(model(torch.randn(1, 3, 96, 128, generator=generator))[0])
    assert float(rows[1]['constant']) == pytest.approx(constant, rel=1e-3)
    assert float(rows[1]['noise']) == pytest.approx(noise, rel=1e-3)
    assert float(rows[1]['bias']) == pytest.approx(constant / noise, rel=2e-3)
    assert float(rows[1]['bias']) > 1e-3
    assert rows[1]['bias'] == rows[3]['bias']  # linear scales nothing below 224 pixels


@pytest.mark.parametrize('has_token', [True, False])
def test_windows_of_a_detector(
    run: Main,
    tmp_path: Path,
    detector: str,
    has_token: bool,
) -> None:
    """Both forms of prefix tokens in windows; without prefix tokens and padding no bias at all."""
    option = f'model.backbone.with_cls_token={has_token}'
    cfg = Config.fromfile(detector)
    cfg.merge_from_dict({'model.backbone.with_cls_token': has_token})
    weights = randomize(build_model(cfg)).state_dict()
    torch.save(dict(state_dict=weights), tmp_path / 'weights.pth')
    window = cfg.model.backbone.window_size
    size = str(2 * 16 * window)
    argv = [detector, str(tmp_path / 'weights.pth'), '--work-dir', str(tmp_path)]
    argv += ['--sizes', size, '--scaling', 'none', 'linear:2', '--cfg-options', option]
    assert run(argv) == 0
    rows = rows_of(tmp_path)
    biases = {}
    for row in rows:
        biases[row['prefix'], row['scaling']] = float(row['bias'])
    if has_token:
        assert len(set(biases.values())) == 4 == len(rows)
        assert min(biases.values()) > 1e-4
        assert {*column(rows, 'prefix')} == {'copy', 'global'}
    else:
        assert {*biases} == {('-', 'none'), ('-', 'linear:2')}
        assert max(biases.values()) < 1e-5


MISTAKES = {
    'no weights': (['tiny'], 'give its weights, too'),
    'no such file': (['tiny', 'lost.pth'], "checkpoint 'lost.pth': no such file"),
    'no such model': (['cats'], "config 'cats': no such file"),
    'no such scaling': (['tiny', '@', '--scaling', 'twice'], 'rope_scaling: type'),
}


@pytest.mark.parametrize('argv, message', MISTAKES.values(), ids=MISTAKES)
def test_mistakes_end_in_one_line_and_write_nothing(
    run: Main,
    tmp_path: Path,
    argv: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(RoPEViT('tiny').state_dict(), tmp_path / 'tiny.pth')
    assert run(['tiny.pth' if word == '@' else word for word in argv]) == 2
    errors = capfd.readouterr().err.strip().splitlines()
    assert len(errors) == 1 and message in errors[0], errors
    assert [*tmp_path.iterdir()] == [tmp_path / 'tiny.pth']
