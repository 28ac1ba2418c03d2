"""The notebook docs/tour.ipynb: its code runs from top to bottom, without Jupyter."""

import json
from pathlib import Path

import pytest
from PIL import Image

TOUR = Path(__file__).resolve().parents[2] / 'docs' / 'tour.ipynb'


def test_it_is_stored_without_outputs() -> None:
    cells = json.loads(TOUR.read_text())['cells']
    assert not any(cell.get('outputs') or cell.get('execution_count') for cell in cells)


@pytest.mark.slow
@pytest.mark.usefixtures('surroundings')
def test_every_cell_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for number, cell in enumerate(json.loads(TOUR.read_text())['cells']):
        if cell['cell_type'] == 'code':
            exec(compile(''.join(cell['source']), f'cell {number}', 'exec'), names)
    assert names['outputs']['labels'].shape == (1, 64, 96)
    assert len(names['about']['classes']) == 7
    for picture in ('browse/*.png', 'predictions/pictures/*.jpg', 'sizes/resolutions.png'):
        for path in (tmp_path / 'tour').glob(picture):
            with Image.open(path) as image:
                image.verify()
    assert len(list((tmp_path / 'tour' / 'predictions' / 'labels').iterdir())) == 2
