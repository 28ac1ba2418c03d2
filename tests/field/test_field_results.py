"""Results of commands below a data set are no data; labels without an image choose no split."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from helpers.field import reading
from rope_dense.utils.results import Results


def yolo(root: Path, images: int, labels: int) -> None:
    (root / 'images').mkdir(parents=True)
    (root / 'labels').mkdir()
    random = np.random.default_rng(0)
    for number in range(images):
        picture = random.integers(0, 255, (40, 60, 3), np.uint8)
        cv2.imwrite(str(root / 'images' / f'{number}.png'), picture)
    for number in range(labels):
        (root / 'labels' / f'{number}.txt').write_text('0 0.5 0.5 0.25 0.25\n')
    (root / 'classes.txt').write_text('a\n')


@pytest.mark.parametrize('place', ['images/results', 'pre'])
def test_results_of_commands_are_left_out_and_counted(
    tmp_path: Path, place: str
) -> None:
    yolo(tmp_path / 'data', 4, 4)
    out = tmp_path / 'data' / place
    with Results(out, 'predict/0') as results:
        results.write_bytes(
            out / 'pictures/0.png', (tmp_path / 'data/images/1.png').read_bytes()
        )
        results.write_text(
            out / 'predictions.json', '{"images": [], "annotations": []}'
        )
        results.write_text(out / 'yolo/labels/0.txt', '0 0.5 0.5 0.5 0.5\n')
    cv2.imwrite(str(out / 'mine.png'), np.zeros((9, 9, 3), np.uint8))
    found = reading(tmp_path / 'data')
    names = [
        image['file_name']
        for part in found.content.values()
        for image in part['images']
    ]
    assert len(names) == (5 if place.startswith('images') else 4)
    assert '3 x result of rope-dense (left out)' in found.text


def test_labels_without_an_image_leave_both_splits(tmp_path: Path) -> None:
    yolo(tmp_path / 'data', 4, 8)
    found = reading(tmp_path / 'data')
    assert {len(part['images']) for part in found.content.values()} == {1, 3}
