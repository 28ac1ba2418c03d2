"""The study of training on tiles: what it reads of an output, and which earlier rows it keeps."""

import csv
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / 'benchmarks'))

import large_training
from rope_dense.engine.progress_hook import figures_line_text, figures_table_text


@pytest.mark.parametrize(
    'write', [lambda x: figures_line_text('epoch 1', x, True), figures_table_text]
)
def test_figures_of_boxes_are_read_of_lines_and_tables(write):
    metrics = {
        'coco/bbox_mAP': 0.607,
        'coco/bbox_mAP_50': 0.941,
        'coco/bbox_mAP_75': 0.7,
    }
    assert large_training.figures_of(write(metrics)) == dict(AP=0.607, AP50=0.941)


def test_figures_of_rotated_boxes_and_labels_are_read():
    line = figures_line_text(
        'epoch 60', {'dota/mAP': 0.129, 'dota/AP50': 0.397, 'dota/AP55': 0.3}, True
    )
    assert large_training.figures_of(line) == dict(AP=0.129, AP50=0.397)
    table = figures_table_text(dict(aAcc=98.1, mIoU=59.16, mAcc=70.2))
    assert large_training.figures_of(table) == dict(mIoU=59.16)


def test_an_output_without_figures_is_zero_only_if_it_says_so():
    assert large_training.figures_of(figures_line_text('epoch 1', {}, False)) == dict(
        AP=0, AP50=0
    )
    with pytest.raises(ValueError, match='no AP'):
        large_training.figures_of('trained')


def test_rows_of_other_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(large_training, 'RESULTS', tmp_path)

    def keep(*rows: tuple[int, str, float]) -> list[tuple[str, ...]]:
        names = ('seed', 'training', 'AP')
        about = dict(what='study', tested_in=256, scaling='none')
        large_training.keep(
            [about | dict(zip(names, row, strict=True)) for row in rows]
        )
        with (tmp_path / 'large_training_study.csv').open() as stream:
            return [tuple(row[x] for x in names) for row in csv.DictReader(stream)]

    keep((1, 'tiles', 0.5), (1, 'shrunk', 0.1))
    expected = [('0', 'tiles', '0.6'), ('1', 'shrunk', '0.1'), ('1', 'tiles', '0.7')]
    assert keep((0, 'tiles', 0.6), (1, 'tiles', 0.7)) == expected


def test_discs_have_their_metres_at_each_distance():
    sides = {}
    for distance in large_training.DISTANCES:
        size = dict(height=300, width=400, distance=distance)
        image, objects = large_training.draw_on_ground(**size, seed=1)
        green = (image == large_training.COLOURS[0]).all(-1)
        for label, x, y, side, _ in objects:
            assert side * distance == large_training.DIAMETERS[label]
            assert green[y + side // 2, x + side // 2]
            sides.setdefault(side, set()).add(label)
    assert sides == {8: {0}, 16: {0, 1}, 32: {1}}  # no side tells the class alone


def test_resampled_scenes_have_one_size_of_each_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rasterio = pytest.importorskip('rasterio', reason='no rasterio')
    whole = large_training.draw_on_ground
    monkeypatch.setattr(
        large_training,
        'draw_on_ground',
        lambda height, width, *rest: whole(height // 10, width // 10, *rest),
    )
    for is_resampled in (False, True):
        root = tmp_path / str(is_resampled)
        large_training.write_ground(root, large_training.DISTANCES, is_resampled)
        listed = json.loads((root / 'annotations/train.json').read_text())
        sides = {round(x['bbox'][2], 1) for x in listed['annotations']}
        steps = set()
        for image in listed['images']:
            with rasterio.open(root / 'train' / image['file_name']) as file:
                assert file.shape == (image['height'], image['width'])
                steps.add(round(file.transform.a, 6))
        assert sides == ({11.4, 22.9} if is_resampled else {8, 16, 32})
        assert steps == ({0.7} if is_resampled else {0.5, 1.0})
