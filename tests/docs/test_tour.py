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
def test_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the last, the export, which takes a minute; tests/export has its like."""
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    cells = [
        c['source']
        for c in json.loads(TOUR.read_text())['cells']
        if c['cell_type'] == 'code'
    ]
    assert 'model.export' in ''.join(cells[-1])
    for number, source in enumerate(cells[:-1]):
        exec(compile(''.join(source), f'cell {number}', 'exec'), names)
    compile(''.join(cells[-1]), 'export', 'exec')
    for picture in (
        'browse/*.png',
        'predictions/pictures/*.jpg',
        'sizes/resolutions.png',
    ):
        for path in (tmp_path / 'tour').glob(picture):
            with Image.open(path) as image:
                image.verify()
    assert len(list((tmp_path / 'tour' / 'predictions' / 'labels').iterdir())) == 2
