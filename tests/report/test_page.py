"""Files of a report: whole, over nothing of the user's, with names as they are; parts of scenes."""

import errno
import json
import os
import re
import tracemalloc
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.structures import InstanceData

from helpers.rows import column, file_names, read_json
from helpers.small_configs import make_data, small_config
from rope_dense.data.tiles.image_file import LargeImage
from rope_dense.report import detection, figures, write
from rope_dense.report.compare import compare_runs
from rope_dense.report.curves import PICTURES as CURVES
from rope_dense.report.objects import match_truth, objects_of
from rope_dense.report.page import Page
from rope_dense.report.predictions import BEST, PICTURES, WORST, Ranked, picture_reader
from rope_dense.report.record import Record, ReportRecord
from rope_dense.utils.results import ForeignFileError, Results
from rope_dense_command import command

NAMES = [
    '$x^$',
    'US$1-US$5',
    'two\nlines\tand a tab',
    'long ' * 100,
    '<script>alert(1)</script>',
    '\udcff',
]


def written(folder: Path, *names: str, **about: object) -> Path:
    """A report with a picture for each name."""
    with Results(folder, 'report') as results:
        page = Page(results, 'made', Record(about=about))
        page.section('Pictures')
        for name in names:
            page.add_picture(name, np.full((8, 8, 3), len(names), np.uint8), name)
        return page.write()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_an_earlier_report_is_replaced_and_no_file_of_the_user_s(
    tmp_path: Path,
) -> None:
    assert written(tmp_path, 'worst_1', 'worst_2', 'worst_3') == tmp_path / 'index.html'
    (tmp_path / 'mine.png').write_bytes(b'mine')
    (tmp_path / 'worst_3.png').write_bytes(b'edited')
    before = contents(tmp_path)
    with pytest.raises(ForeignFileError, match=r'worst_3.png was changed'):
        written(tmp_path, 'worst_1', 'worst_3')
    assert contents(tmp_path) == before
    written(tmp_path, 'worst_1')
    after = contents(tmp_path)
    assert after.keys() == before.keys() - {'worst_2.png'}
    assert after['worst_1.png'] != before['worst_1.png']
    assert after['worst_3.png'] == b'edited'
    with pytest.raises(ForeignFileError, match=r'mine.png was not written by'):
        written(tmp_path, 'mine')


def test_on_a_full_disk_the_earlier_report_stays(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written(tmp_path, 'worst_1', 'worst_2')
    before = contents(tmp_path)
    write_bytes = Path.write_bytes

    def fail(path: Path, data: bytes) -> int:
        if data.startswith(b'<!DOCTYPE'):  # the last one
            raise OSError(errno.ENOSPC, 'No space left on device')
        return write_bytes(path, data)

    monkeypatch.setattr(Path, 'write_bytes', fail)
    with pytest.raises(OSError, match=r'No space left.*GB left.*index.html'):
        written(tmp_path, 'worst_1')
    assert contents(tmp_path) == before
    assert file_names(tmp_path / '.rope_dense' / 'report') == {'record.jsonl'}


def test_a_foreign_page_is_refused_before_the_model_is_built(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = make_data(tmp_path / 'data')
    config = small_config('upernet_vit_rope_mixed', data, tmp_path)
    torch.save({}, tmp_path / 'a.pth')
    monkeypatch.setattr(write, 'ready', None)
    for name in ('index.html', 'worst_6.png', 'losses.png'):
        out = tmp_path / f'out of {name}'
        out.mkdir()
        (out / name).write_text('mine')
        argv = [config, tmp_path / 'a.pth', '--out', out, '--device', 'cpu']
        assert command('report')([*map(str, argv)]) == 2
        assert f'{out / name} was not written by rope-dense' in capsys.readouterr().err
        assert contents(out) == {name: b'mine'}
        assert len([*out.iterdir()]) == 1


def test_the_names_of_all_pictures_are_known() -> None:
    """But for compare.py's, which are looked at when they are written: there is no model."""
    known = {*CURVES, *' '.join(write.TASK_FILES.values()).split()}
    called = set()
    for path in Path(write.__file__).parent.glob('*.py'):
        if path.stem != 'compare':
            text = path.read_text(encoding='utf-8')
            calls = r"add_(?:figure|picture|crops)\((?:page, )?'(\w+)'"
            called.update(re.findall(calls, text))
    assert called
    assert {f'{name}.png' for name in called} <= known
    assert PICTURES[:WORST][-1] == f'worst_{WORST}.png'
    assert PICTURES[WORST:] == [f'best_{n}.png' for n in range(1, BEST + 1)]


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    with Results(tmp_path, 'report') as results:
        rows = [{'class': name} for name in NAMES]
        about = dict(path=os.fsdecode(b'\xff\xfebad.png'))
        page = Page(results, NAMES[4], Record(about=about, classes=rows))
        page.section(NAMES[4], NAMES[4])
        bars = figures.draw_bars({name: {name: 1} for name in NAMES}, 'x')
        page.add_figure('bars', bars, 'a')
        lines = dict.fromkeys(NAMES, dict.fromkeys(NAMES, ([0, 1], [1, 1])))
        page.add_figure('lines', figures.draw_lines(lines, 'x', 'y'), 'a')
        matrix = figures.draw_matrix({NAMES[0]: np.eye(6)}, NAMES)
        page.add_figure('matrix', matrix, 'a')
        figure = figures.draw_calibration(
            {
                NAMES[0]: [
                    dict(
                        score=0.5,
                        right=0.5,
                        number=3,
                    )
                ]
            }
        )
        page.add_figure('curve', figure, NAMES[4])
        grid = [(np.zeros((4, 4, 3), np.uint8), f'1. class\n{name}') for name in NAMES]
        page.add_figure('grid', figures.draw_grid(grid), 'a')
        page.add_table(rows)
        page.write()
    text = (tmp_path / 'index.html').read_text(encoding='utf-8')
    assert '<script' not in text
    assert '&lt;script&gt;' in text
    assert '\\udcff\\udcfebad.png' in text
    report = read_json(tmp_path / 'report.json')
    assert column(report['classes'], 'class') == NAMES
    axes = figures.draw_bars({'': {'US$1-US$5': 1}}, '$').axes[0]
    (label,) = axes.get_yticklabels()
    assert label.get_text() == r'US\$1-US\$5'


def test_a_picture_that_cannot_be_drawn_is_named(tmp_path: Path) -> None:
    ranked = Ranked()
    for number in range(4):
        ranked.add(number, dict(path=f'/images/{number}.png', number=number))

    def draw(image: object) -> np.ndarray:
        if image.row['number'] == 1:
            raise ValueError('two\nlines')
        return np.zeros((8, 8, 3), np.uint8)

    with Results(tmp_path, 'report') as results:
        page = Page(results, 'made', ReportRecord(about={}, names=[], settings={}))
        ranked.add_to(page, 'text', draw, str)
        page.write()
    assert {'worst_1.png', 'worst_3.png', 'worst_4.png'} <= contents(tmp_path).keys()
    assert not (tmp_path / 'worst_2.png').exists()
    report = read_json(tmp_path / 'report.json')
    assert report['not_drawn'] == ['/images/1.png: two lines']
    assert len(report['worst']) == 4
    assert '<dt>not drawn</dt><dd>/images/1.png: two lines</dd>' in (
        (tmp_path / 'index.html').read_text()
    )


def test_what_only_one_of_two_runs_has_is_said(tmp_path: Path) -> None:
    figure = dict(AP=0.5, f1=0.5)
    for run, names in (('a', ['mean', 'cat']), ('b', ['mean', 'cat', 'dog'])):
        about = dict(
            about=dict(checkpoint=f'{run}.pth'),
            names=names[1:],
            settings={},
        )
        rows = [{'class': name, **figure} for name in names]
        (tmp_path / run).mkdir()
        (tmp_path / run / 'report.json').write_text(
            json.dumps(about | dict(classes=rows))
        )
    compare_runs(tmp_path / 'a', tmp_path / 'b', tmp_path / 'both')
    rows = read_json(tmp_path / 'both' / 'report.json')['classes']
    assert column(rows, 'class') == ['mean', 'cat', 'dog']
    assert rows[2]['AP, b'] == 0.5
    assert rows[2]['AP, a'] is rows[2]['AP, change'] is None
    assert 'Only one of them has dog' in (tmp_path / 'both' / 'index.html').read_text()
    compare_runs(tmp_path / 'b', tmp_path / 'a', tmp_path / 'turned')
    turned = read_json(tmp_path / 'turned' / 'report.json')['classes']
    assert column(turned, 'class') == ['mean', 'cat', 'dog']
    assert 'has dog' in (tmp_path / 'turned' / 'index.html').read_text()
    before = contents(tmp_path / 'a')
    with pytest.raises(ForeignFileError, match='is read by this command'):
        compare_runs(tmp_path / 'a', tmp_path / 'b', tmp_path / 'a')
    assert contents(tmp_path / 'a') == before


def test_a_part_of_a_scene_is_read_as_its_tiles_are(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a file that only GDAL reads: no more than the part."""
    rasterio = pytest.importorskip('rasterio')
    pixels = np.random.default_rng(0).integers(256, size=(3, 96, 128), dtype=np.uint8)
    path = tmp_path / 'a.tif'
    settings = dict(
        width=128,
        height=96,
        count=3,
        dtype='uint8',
    )
    settings |= dict(compress='zstd', photometric='RGB')
    with rasterio.open(path, 'w', **settings) as file:
        file.write(pixels)
    dataset = dict(
        type='TiledDataset',
        tile=64,
        copies=str(tmp_path / 'copies'),
    )
    dataset['pipeline'] = [dict(type='LoadImageFromFile')]
    read = picture_reader(Config(dict(test_dataloader=dict(dataset=dataset))))
    sizes = []
    decode = LargeImage.decode_chunk

    def noted(image: LargeImage, *window: int) -> np.ndarray:
        sizes.append((window[2] - window[0], window[3] - window[1]))
        return decode(image, *window)

    monkeypatch.setattr(LargeImage, 'decode_chunk', noted)
    expected = np.moveaxis(pixels, 0, 2)
    part = read(str(path), (10, 20, 50, 90))
    np.testing.assert_array_equal(part, expected[20:90, 10:50])
    np.testing.assert_array_equal(read(str(path), None), expected)
    assert sizes == [(40, 70), (128, 96)]
    del dataset['tile'], dataset['copies']  # as a whole
    cv2.imwrite(str(tmp_path / 'a.png'), expected[..., ::-1])
    dataset['type'] = 'a'
    read = picture_reader(Config(dict(test_dataloader=dict(dataset=dataset))))
    part = read(str(tmp_path / 'a.png'), (10, 20, 50, 90))
    np.testing.assert_array_equal(part, expected[20:90, 10:50])


def test_little_is_kept_of_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 300 boxes: as dicts they take 200 kB."""
    images, boxes = 100, 300
    random = np.random.default_rng(0)

    def samples(*args: object) -> object:
        for _ in range(images):
            corners = np.sort(random.random((boxes, 2, 2)) * 640, 1).reshape(-1, 4)
            about = dict(ori_shape=(640, 640), img_path='a.png')
            sample = DetDataSample(metainfo=about)
            sample.pred_instances = InstanceData(
                bboxes=torch.tensor(corners, dtype=torch.float32),
                scores=torch.tensor(random.random(boxes)),
                labels=torch.tensor(random.integers(0, 80, boxes)),
            )
            yield sample

    monkeypatch.setattr(detection, 'predict_samples', samples)
    tracemalloc.start()
    matches = match_truth(objects_of([]), detection.predict_objects(None, None)[1])
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(matches.predictions) == images * boxes
    assert kept < images * 60_000
