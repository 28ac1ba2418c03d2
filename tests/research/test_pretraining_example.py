"""docs/research/pretraining/run.py from end to end at a toy size, and its crops."""

import json
import runpy
from pathlib import Path
from types import ModuleType

import pytest
import torch

from rope_dense.data.generated import make_scene

RUN = Path(__file__).parents[2] / 'docs' / 'research' / 'pretraining' / 'run.py'
TOY = ['--crops', '40', '--epochs', '2', '--iterations', '4', '--val-interval', '2']


def test_crops_show_their_shapes() -> None:
    """In the order of the scenes, each with its colour in the middle or, of a ring, around it."""
    run = runpy.run_path(str(RUN))
    pictures, labels = run['draw_crops']('val', 30)
    side = run['CROP_SIZE']
    assert pictures.shape == (30, 3, side, side) and pictures.dtype == torch.uint8
    shapes = [
        shape
        for index in range(30)
        for shape in make_scene(run['CROP_SEED'], 'val', index).shapes
    ][:30]
    assert labels.tolist() == [shape.label for shape in shapes]
    for picture, shape in zip(pictures, shapes, strict=True):
        colour = 255 * torch.tensor(shape.color)[:, None, None]
        near = (picture - colour).abs().amax(
            0
        ) < 30  # of its own light, and what is on top of it
        assert 0.05 < near.float().mean() < 0.75


@pytest.mark.slow
def test_from_scratch_to_boxes(timm: ModuleType, tmp_path: Path) -> None:
    main = runpy.run_path(str(RUN))['main']
    work_dir = tmp_path / 'work'
    assert main(['--work-dir', str(work_dir), '--images', '16', *TOY]) == 0
    results = json.loads((work_dir / 'results.json').read_text())
    assert len(results['accuracies']) == 2
    for rows in results['detection'].values():
        assert [row['iteration'] for row in rows] == [2, 4]
        assert all(0 <= row[name] <= 1 for row in rows for name in ('AP', 'AP50'))
    assert (work_dir / 'results.png').stat().st_size > 1000
    log = next((work_dir / 'pretrained').glob('*/*.log')).read_text()
    assert 'timm/last.pth.tar (ours)' in log  # the backbone was loaded
    assert main(['--work-dir', str(work_dir), '--images', '16', '--crops', '50']) == 2


@pytest.mark.parametrize(
    'option', ['--crops', '--epochs', '--iterations', '--val-interval']
)
def test_numbers_that_are_not_allowed(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(RUN))['main']
    with pytest.raises(SystemExit):
        main(['--work-dir', str(tmp_path / 'work'), option, '0'])
    assert f'{option}: must be 1 or more' in capsys.readouterr().err
    assert not (tmp_path / 'work').exists()
