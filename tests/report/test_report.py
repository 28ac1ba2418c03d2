"""`rope-dense report` on shrunk models: the page, its files, two runs side by side, bad input."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config

from helpers.rows import (
    add_masks,
    annotations,
    attributes,
    column,
    file_names,
    read_json,
)
from helpers.small_configs import make_data, small_config
from rope_dense.data.generated import METAINFO
from rope_dense.engine.figure_source import FigureSource
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model
from rope_dense.project.run import Run
from rope_dense.report.curves import advice_text, read_logs
from rope_dense.report.detection import (
    CHECKS,
    NUMBER,
    add_matches,
    ground_truth,
    rank_images,
    score_ranges,
)
from rope_dense.report.objects import ERRORS, Outcomes, match_truth, objects_of
from rope_dense.report.page import Page
from rope_dense.report.painter import Picture
from rope_dense.report.predictions import BEST, WORST, Part, Ranked
from rope_dense.report.record import ReportRecord
from rope_dense.report.segmentation import boundary, count_pixels, ious
from rope_dense.report.settings import differing_settings, used_settings
from rope_dense.report.write import report_files, report_training
from rope_dense.training import result_text
from rope_dense.utils.results import Results
from rope_dense_command import command

VOID = {'meta', 'img', 'br', 'link'}  # elements without an end tag
OBJECT = [10, 10, 20, 20]


class Checked(HTMLParser):
    """Collects tags and addresses; fails where an end tag does not close the last open one."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.seen.append(tag)
        self.open += [] if tag in VOID else [tag]
        given = dict(attrs)
        for name in given.keys() & {'src', 'href'}:
            self.addresses.append(given[name])
        assert tag != 'img' or given['alt']

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_page(folder: Path) -> Checked:
    text = (folder / 'index.html').read_text()
    page = Checked(text)
    assert text.startswith('<!DOCTYPE html>')
    assert 'width=device-width' in text
    assert {'html', 'title', 'h1', 'table', 'figure'} <= set(page.seen)
    assert all(address.startswith('data:image/') for address in page.addresses)
    written = re.sub(r'data:image/[^"]+', '', text)
    assert 'http' not in written
    assert 'url(' not in written
    return page


def run(*argv: object) -> int:
    return command('report')([*map(str, argv)])


def make_run(name: str, data: Path, folder: Path) -> Path:
    """A run as training leaves it: config, checkpoint and log; the weights are random."""
    folder.mkdir()
    config = small_config(name, data, folder)
    cfg = load_config(str(config))
    checkpoint = dict(state_dict=random_model(cfg).state_dict())
    torch.save(checkpoint, folder / 'best_mAP_iter_2.pth')
    record = dict(
        file='best_mAP_iter_2.pth',
        metric='mAP',
        value=0.25,
        iteration=2,
        epoch=1,
    )
    (folder / 'best_checkpoint.json').write_text(json.dumps(record))
    log = folder / '20260101' / 'vis_data' / 'scalars.json'
    log.parent.mkdir(parents=True)
    log.write_text(
        '{"loss": 2.0, "loss_cls": 1.0, "step": 1}\n'
        '{"coco/bbox_mAP": 0.5, "time": 1.0, "step": 1}\n'
    )
    write_log(folder / '20260101', '2026/01/01 23:59:50', '2026/01/02 01:00:00')
    return folder


def write_log(folder: Path, first: str, last: str) -> None:
    lines = [
        f'{first} - mmengine - INFO - begins',
        'seed: 0',
        f'{last} - mmengine - INFO - ends',
    ]
    (folder / f'{folder.name}.log').write_text('\n'.join(lines))


@pytest.mark.parametrize('name', ['dino_vitdet_rope_mixed', 'upernet_vit_rope_mixed'])
def test_report_of_a_run_and_two_side_by_side(
    name: str,
    data: Path,
    tmp_path: Path,
) -> None:
    folder = make_run(name, data, tmp_path / 'run')
    assert run(folder, '--device', 'cpu') == 0
    report = read_json(folder / 'report' / 'report.json')
    assert report['about']['images'] == 2
    assert 'not_drawn' not in report
    source = FigureSource(**report['source'])
    assert (source.images, source.checkpoint) == (2, 'best_mAP_iter_2.pth')
    assert source.limit == (1000 if 'dino' in name else None)
    assert report['about']['figures'] == str(source)
    head = dict(
        best='mAP 0.250, epoch 1, iteration 2',
        checkpoint=str(folder / 'best_mAP_iter_2.pth'),
        trained='2026-01-01, 1:00:10 h',
    )
    assert [*report['about'].items()][:3] == [*head.items()]
    page = (folder / 'report' / 'index.html').read_text()
    best = page.index(f'<dd>{head["best"]}</dd>')
    assert best < page.index(head['trained']) < page.index('<h2>')
    assert report['losses'] == dict(loss=[[1], [2.0]], loss_cls=[[1], [1.0]])
    check_page(folder / 'report')
    task = 'semantic' if 'upernet' in name else 'boxes'
    known = attributes(report_files(folder / 'report', task), 'name')
    assert file_names(folder / 'report') <= {*known}
    for figure in ('confusion', 'losses', 'metrics', 'worst_1'):
        assert cv2.imread(str(folder / 'report' / f'{figure}.png')) is not None
    other = shutil.copytree(folder / 'report', tmp_path / 'other')
    report['settings']['randomness.seed'] = 7
    (other / 'report.json').write_text(json.dumps(report))
    given = ('--compare', folder, other, '--out', tmp_path / 'both')
    with Results(tmp_path / 'both', 'report'):
        assert run(*given) == 2
    assert run(*given) == 0
    check_page(tmp_path / 'both')
    both = read_json(tmp_path / 'both' / 'report.json')
    for row in both['classes']:
        for name, value in row.items():
            assert value in (0, None) or not name.endswith(', change')
    assert len(both['classes'][0]) <= 10
    assert both['settings'] == [
        dict(
            setting='randomness.seed',
            run='0',
            other='7',
        )
    ]


def as_pngs(data: Path, bits: int) -> Path:
    """The same data with PNG images that use 8 or 12 bits."""
    for file in data.rglob('*.jpg'):
        pixels = cv2.imread(str(file)) * ((2.0**bits - 1) / 255)
        dtype = np.uint8 if bits == 8 else np.uint16
        cv2.imwrite(str(file.with_suffix('.png')), np.rint(pixels).astype(dtype))
        file.unlink()
    for file in data.glob('coco/annotations/*.json'):
        file.write_text(file.read_text().replace('.jpg', '.png'))
    return data


@pytest.mark.parametrize('name', ['dino_vitdet_rope_mixed', 'upernet_vit_rope_mixed'])
def test_images_of_12_bits_look_like_those_of_8(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Plots take most of the time.
    monkeypatch.setattr(Page, 'add_figure', lambda *args: None)
    folder = make_run(name, as_pngs(make_data(tmp_path / 'data8'), 8), tmp_path / 'run')
    cfg = Config.fromfile(folder / f'{name}.py')
    if cfg.default_scope == 'mmseg':
        cfg.test_dataloader.dataset.img_suffix = '.png'
    shown = []
    for bits in (8, 12):
        if bits == 12:
            data = as_pngs(make_data(tmp_path / 'data12'), 12)
            layout = Path(cfg.test_dataloader.dataset.data_root).name
            cfg.test_dataloader.dataset.data_root = str(data / layout)
            deep = dict(type='LoadDeepImage', max_value=4095)
            cfg.test_dataloader.dataset.pipeline.insert(1, deep)
            cfg.custom_imports.imports.append('rope_dense.data.images.bands')
        cfg.dump(folder / f'{name}.py')
        out = tmp_path / f'report{bits}'
        assert run(folder, '--device', 'cpu', '--out', out) == 0
        shown.append(cv2.imread(str(out / 'worst_1.png')))
    np.testing.assert_array_equal(*shown)


def read_picture(path: str, part: Part | None) -> np.ndarray:
    left, top, right, bottom = part or (0, 0, None, None)
    return cv2.imread(path)[top:bottom, left:right]


@pytest.mark.parametrize('masks', [False, True])
def test_sections_of_made_predictions(masks: bool, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / 'a.png'), np.full((64, 80, 3), 90, np.uint8))
    pictures = [Picture(str(tmp_path / 'a.png'), height=64, width=80)]

    truth = annotations([(OBJECT, 1), ([50, 40, 20, 20], 2)])
    found = annotations([(OBJECT, 1, 0.9), ([50, 2, 10, 10], 1, 0.9)])
    if masks:
        add_masks([*truth, *found])
    matches = match_truth(objects_of(truth), objects_of(found), masks)
    colours = [(255, 0, 0), (0, 0, 255)]
    with Results(tmp_path / 'out', 'report') as results:
        record = ReportRecord(about=dict(config='a & b'), names=[], settings={})
        page = Page(results, 'made <title>', record)
        add_matches(
            page,
            pictures,
            matches,
            ['cat', 'dog'],
            colours,
            masks,
            read_picture,
        )
        page.write()
    check_page(tmp_path / 'out')
    report = read_json(tmp_path / 'out' / 'report.json')
    numbers = {row['error']: row[NUMBER] for row in report['errors']}
    assert numbers == dict.fromkeys(numbers, 0) | dict(background=1, missed=1)
    assert report['confusion'] == [[1, 0, 0], [0, 0, 1], [1, 0, 0]]
    assert (tmp_path / 'out' / 'missed_objects.png').is_file()
    assert (tmp_path / 'out' / 'false_positives.png').is_file()
    assert report['worst'][0]['f1'] == 0.5
    # Enlarged, and a gap between.
    picture = cv2.imread(str(tmp_path / 'out' / 'worst_1.png'))
    assert picture.shape == (480, 2 * 600 + 15, 3)
    assert (picture[:, 600:615] == 255).all()
    inside = 150 + np.arange(-9, 9)  # of the object
    assert (picture[np.ix_(inside, inside)] == 90).all() != masks
    assert report['advice'] == [
        "The largest kind of error is 'missed', 0.500 of AP50. Check: small objects: image size; "
        'rare classes: more data.'
    ]


def test_masks_of_a_data_set_have_the_areas_of_its_file(data: Path) -> None:
    from mmdet.datasets import CocoDataset

    annotations = data / 'coco' / 'annotations' / 'instances_val2017.json'
    content = json.loads(annotations.read_text())
    dataset = CocoDataset(
        ann_file=str(annotations),
        metainfo=dict(METAINFO),
        data_prefix=dict(img=''),
        test_mode=True,
    )
    objects = ground_truth(dataset, masks=True)
    assert len(objects) == len(content['annotations'])
    expected = sorted(column(content['annotations'], 'area'))
    np.testing.assert_allclose(sorted(objects['area']), expected, rtol=0.2)
    boxes = ground_truth(dataset, masks=False)
    _, _, widths, heights = objects['box'].T
    np.testing.assert_array_equal(boxes['area'], widths * heights)


def test_images_are_ranked_by_f1_then_errors() -> None:
    truth = annotations([(OBJECT, 1), (OBJECT, 1)], image=0)
    truth += annotations([(OBJECT, 1)], image=1, start=2)
    truth += annotations([(OBJECT, 1)], image=2, start=3)
    right = annotations([(OBJECT, 1, 0.5)], image=2)
    matches = match_truth(objects_of(truth), objects_of(right))
    ranked = rank_images(matches, ['a', 'b', 'c'])
    assert column(attributes(ranked.images, 'row'), 'path') == ['a', 'b', 'c']


def test_only_the_pictures_that_are_drawn_are_kept() -> None:
    scores = np.random.default_rng(0).integers(20, size=100).tolist()  # with equal ones
    ranked = Ranked()
    for index, score in enumerate(scores):
        ranked.add(score, dict(index=index))
        assert len(ranked.images) <= WORST + BEST
    order = sorted(range(100), key=scores.__getitem__)
    shown = column(attributes(ranked.images, 'row'), 'index')
    assert shown == order[:WORST] + order[-BEST:]


def test_calibration_of_known_scores() -> None:
    scores = np.array([0.95, 0.95, 0.15])
    right = np.array([True, False, False])
    low, high = score_ranges(Outcomes(np.ones(3, int), scores, right))
    assert low == pytest.approx(
        dict(
            number=1,
            score=0.15,
            right=0,
        )
    )
    assert high == pytest.approx(
        dict(
            number=2,
            score=0.95,
            right=0.5,
        )
    )


def test_iou_on_boundaries_and_inside() -> None:
    truth = np.zeros((40, 40), np.uint8)
    truth[:, 20:] = 1
    truth[0, 0] = 255
    predicted = np.zeros((40, 40), np.uint8)
    predicted[:, 21:] = 1  # one column is wrong
    near = boundary(truth)
    assert near[:, 19:21].all()
    assert not near[5:, :19].any()
    assert not near[:, 21:].any()
    table = count_pixels(truth, predicted, 2)
    np.testing.assert_array_equal(table, [[799, 0], [40, 760]])
    np.testing.assert_allclose(ious(table), [799 / 839, 760 / 800])
    inside = count_pixels(truth[~near], predicted[~near], 3)
    np.testing.assert_allclose(ious(inside), [1, 1, np.nan])


def test_logs_of_a_resumed_run_follow_each_other(tmp_path: Path) -> None:
    """The first ends with half a line, as a killed process leaves it."""
    files = [tmp_path / 'a.json', tmp_path / 'b.json']
    files[0].write_text('{"loss": 1.5, "lr": 0.1, "step": 0}\n{"loss": 1.')
    files[1].write_text('{"loss": 1.5, "lr": 0.1, "step": 1}\n')
    assert read_logs(files) == ({'loss': ([0, 1], [1.5, 1.5])}, {})


@pytest.mark.parametrize(
    'name, values, says',
    [
        ('coco/bbox_mAP', [0.1, 0.2, 0.3, 0.4], 'coco/bbox_mAP still rises'),
        ('coco/bbox_mAP', [0.1, 0.2, 0.4, 0.41], ''),
        ('coco/bbox_mAP', [0.1, 0.2, 0.5, 0.4], ''),
        ('coco/bbox_mAP', [0.1], ''),
        ('rmse', [4, 3, 2, 1], 'rmse still falls at the end, from 2.000 to 1.000'),
        ('rmse', [1, 2, 3, 4], ''),
    ],
)
def test_advice_by_the_curve(name: str, values: list, says: str) -> None:
    steps = list(range(1, len(values) + 1))
    advice = advice_text({'lr': ([1], [1]), name: (steps, values)})
    assert says in advice if says else advice is None


def test_differences_of_settings_are_those_of_own_data_first() -> None:
    dataset = dict(ann_file='a.json', pipeline=[dict(type='Load')])
    cfg = dict(
        work_dir='a',
        model=dict(depth=3, kinds=('x', 'y')),
        own=dict(data_root='d'),
        train_dataloader=dict(dataset=dataset),
    )
    first = used_settings(Config(cfg))
    assert first.keys() == {
        'model.depth',
        'model.kinds',
        'own.data_root',
        'train_dataloader.dataset.pipeline.0.type',
    }
    second = first | {'model.depth': 4, 'own.data_root': 'e'}
    del second['model.kinds']
    assert differing_settings(first, second) == [
        ('own.data_root', 'd', 'e'),
        ('model.depth', 3, 4),
        ('model.kinds', ('x', 'y'), '-'),
    ]


def test_the_guide_has_the_remedies_of_the_page() -> None:
    text = (Path(__file__).parents[2] / 'docs' / 'report.md').read_text()
    rows = re.findall(r'^\| (\w+) \| [^|]+ \| ([^|]+) \|$', text, re.MULTILINE)
    assert dict(rows).items() >= CHECKS.items()
    assert [*CHECKS] == [*ERRORS]


def test_a_run_has_its_best_checkpoint(tmp_path: Path) -> None:
    for name in ('a.py', 'a_test.py', 'iter_2.pth', 'best_mAP_iter_1.pth'):
        (tmp_path / name).touch()
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'iter_2.pth'))
    assert Path(Run(tmp_path).best).name == 'best_mAP_iter_1.pth'
    (tmp_path / 'best_mAP_iter_1.pth').unlink()
    assert Path(Run(tmp_path).best).name == 'iter_2.pth'


def test_a_training_ends_with_its_figures_and_the_next_commands(tmp_path: Path) -> None:
    folder = tmp_path / 'a run'
    for name, day in (('20260101_080000', 1), ('20260105_080000', 5)):  # resumed
        (folder / name / 'vis_data').mkdir(parents=True)
        (folder / name / 'vis_data' / 'scalars.json').write_text(
            f'{{"mIoU": 30.5, "step": {day}}}'
        )
        write_log(folder / name, f'2026/01/0{day} 08:00:00', f'2026/01/0{day} 20:00:30')
    test = folder / '20260109'
    test.mkdir()
    write_log(test, '2026/01/09 08:00:00', '2026/01/09 20:00:00')
    (folder / 'iter_8.pth').touch()
    (folder / 'last_checkpoint').write_text('iter_8.pth')
    cfg = dict(
        work_dir=str(folder),
        model=dict(type='DEIM'),
        default_scope='mmdet',
    )
    cfg = Config(cfg)
    assert result_text(cfg).splitlines() == [
        'last       mIoU 30.500, iteration 5',
        f'checkpoint {folder}/iter_8.pth',
        'trained    2026-01-01, 1 day, 0:01:00 h',
        f"next       rope-dense predict '{folder}' PICTURES",
        f"           rope-dense report '{folder}'",
    ]
    record = dict(
        file='best_mIoU_iter_4.pth',
        metric='mIoU',
        value=41.2,
        iteration=4,
        epoch=2,
    )
    (folder / 'best_checkpoint.json').write_text(json.dumps(record))
    assert result_text(cfg).splitlines()[:2] == [
        'best       mIoU 41.200, epoch 2, iteration 4',
        f'checkpoint {folder}/best_mIoU_iter_4.pth',
    ]


def test_training_is_reported_unless_switched_off(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cfg = Config(dict(work_dir=str(tmp_path)))
    report_training(cfg)  # not of configs/own
    cfg.own = dict(
        task='detection',
        data_root='data',
        report=False,
    )
    report_training(cfg)
    assert not capsys.readouterr().out
    cfg.own.report = True
    report_training(cfg)
    assert 'no report' in capsys.readouterr().out


@pytest.mark.parametrize(
    'argv, message',
    [
        (['missing.py'], 'no such file'),
        (['missing.py', 'a.pth'], 'no such file'),
        (['.'], 'one config'),
        (['--compare', 'a', 'b'], 'no report'),
    ],
)
def test_bad_input_is_one_line(
    argv: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*argv) == 2
    text = capsys.readouterr().err
    assert message in text
    assert text.startswith('error: ')
    assert text.count('\n') == 1
