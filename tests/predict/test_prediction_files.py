"""Files of predictions: formats, least scores, the message without a box, images that are done."""

import contextlib
import io
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import cv2
import mmengine
import numpy as np
import pytest
import torch
from mmdet.evaluation import CocoMetric
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.structures import InstanceData
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from scipy import ndimage

from helpers.tool_names import Fails
from rope_dense.data.images.sources import Source
from rope_dense.predict import files as prediction_files
from rope_dense.predict.files import DetectionFiles
from rope_dense.predict.formats import FORMATS, check_wanted, mask_outline
from rope_dense.predict.place import Output, Wanted
from rope_dense.predict.thresholds import Scores, least_scores
from rope_dense.project.identity import hash_of
from rope_dense.project.run import Run
from rope_dense.utils.errors import UsageError
from rope_dense.utils.results import Results
from rope_dense_command import command

IMAGE = np.zeros((8, 8, 3), np.uint8)


def output_of(
    folder: Path, least: dict[str, float], *formats: str, **more: Any
) -> Output:
    """Where predictions go, by default as predictions.json."""
    read = more.pop('read', lambda name: IMAGE)
    wanted = Wanted(formats or ('coco',), **more)
    return Output(Results(folder, 'predict/0'), folder, wanted, {}, least, read)


def source(file_name: str) -> Source:
    picture = Path(file_name).with_suffix('.jpg').as_posix()
    return Source(Path('/in', file_name), file_name, picture)


def sample(*objects: tuple[float, int]) -> DetDataSample:
    """Boxes with these scores and labels."""
    scores, labels = zip(*objects, strict=True)
    boxes = torch.tensor([[0.0, 0, 4, 4], [1, 1, 2, 2]])[: len(objects)]
    found = InstanceData(
        bboxes=boxes, scores=torch.tensor(scores), labels=torch.tensor(labels)
    )
    return DetDataSample(pred_instances=found)


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction_files, 'draw', lambda *_, **__: IMAGE)


@pytest.mark.usefixtures('no_pictures')
def test_no_box_is_above_the_least_score(tmp_path: Path) -> None:
    given, meta = sample((0.125, 0), (0.0625, 0)), dict(classes=('cat',))
    files = DetectionFiles(None, output_of(tmp_path, {'cat': 0.3}), meta)
    files.add(source('a.png'), IMAGE, given.clone())
    first, second = files.finish().splitlines()
    assert first.startswith('0 objects in 1 images: ')
    assert second == 'the highest score is 0.12, below --score 0.3'
    files = DetectionFiles(None, output_of(tmp_path, {'cat': 0.1}), meta)
    files.add(source('b.png'), IMAGE, given)
    assert (said := files.finish()).startswith(
        '1 objects in 1 images: '
    ) and '\n' not in said


@pytest.mark.usefixtures('no_pictures')
def test_another_format_continues_an_interrupted_run(tmp_path: Path) -> None:
    """With a least score for each class; what others put beside the labels stays."""
    least, meta = {'cat': 0.3, 'dog': 0.6}, dict(classes=('cat', 'dog'))
    first = DetectionFiles(None, output_of(tmp_path, least, 'coco'), meta)
    first.add(source('s/a.png'), IMAGE, sample((0.5, 0), (0.5, 1)))
    first.journal.steps.note()  # as every two seconds
    for path in ('yolo/images/b.png', 'yolo/labels/of_another_run.txt'):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    files = DetectionFiles(None, output_of(tmp_path, least, 'yolo', scores=True), meta)
    files.output.gather({'s/a.png': None})
    assert files.done() == {'s/a.png'}
    files.add(source('b.png'), IMAGE, sample((0.2, 0), (0.75, 1)))
    assert files.finish() == f'2 objects in 2 images: {tmp_path / "yolo"}'
    out = tmp_path / 'yolo'
    written = {path.relative_to(out).as_posix() for path in out.rglob('*.*')}
    labels = {'labels/s/a.txt', 'labels/b.txt', 'labels/of_another_run.txt'}
    assert written == {*labels, 'classes.txt', 'images/b.png'}
    text = '0 0.250000 0.250000 0.500000 0.500000 0.5000\n'
    assert (tmp_path / 'yolo/labels/s/a.txt').read_text() == text
    assert (tmp_path / 'yolo/classes.txt').read_text() == 'cat\ndog\n'


def test_an_image_is_done_when_all_tasks_are(tmp_path: Path) -> None:
    """A kill may come between two tasks."""
    output = output_of(tmp_path, {})
    writers = {
        name: prediction_files.FeatureFiles(None, output.within(name), {})
        for name in 'ab'
    }
    files = prediction_files.TaskFiles(tmp_path, writers)
    for name, image in (('a', 'x.png'), ('a', 'y.png'), ('b', 'x.png')):
        writers[name].journal.add(dict(file_name=image))
    assert files.done() == {'x.png'}


def entry(
    file_name: str, objects: list[dict], height: int = 100, width: int = 120
) -> dict:
    picture = f'pictures/{Path(file_name).with_suffix(".jpg").as_posix()}'
    size = dict(height=height, width=width)
    about = dict(
        source=f'/in/{file_name}', picture=picture, objects=objects, highest=0.5
    )
    return dict(size, file_name=file_name, **about)


def files_of(
    output: Output, classes: tuple[str, ...], entries: list[dict]
) -> DetectionFiles:
    files = DetectionFiles(None, output, dict(classes=classes))
    for item in entries:
        files.journal.add(item)
    return files


def thing(label: int, *box: float, score: float = 0.5) -> dict:
    return dict(
        category_id=label, bbox=[*box], score=score, area=box[2] * box[3], iscrowd=0
    )


def test_results_give_the_ap_of_the_test(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Noisy true boxes; ids of the file are others, its folders too, and one name is not in it."""
    random = np.random.default_rng(0)
    names, classes = [f'{number:02d}.png' for number in range(12)], ('cat', 'dog')
    images = [
        dict(id=700 - 3 * number, file_name=f'val2017/{name}', height=100, width=120)
        for number, name in enumerate(names)
    ]
    categories = [
        dict(id=3, name='cat'),
        dict(id=17, name='bird'),
        dict(id=90, name='dog'),
    ]
    annotations, entries = [], []
    for image, name in zip(images, names, strict=True):
        objects = []
        for _ in range(4):
            label, box = random.integers(2), random.uniform(10, 50, 4)
            about = dict(id=len(annotations) + 1, image_id=image['id'], iscrowd=0)
            about |= dict(category_id=(3, 90)[label], bbox=[*box], area=box[2] * box[3])
            annotations.append(about)
            noisy = box + random.normal(0, 3, 4)
            objects.append(
                thing(int(label) + 1, *noisy, score=float(random.uniform(0.1, 1)))
            )
        entries.append(entry(f'pictures/{name}', objects))
    truth = tmp_path / 'instances.json'
    content = dict(categories=categories, images=images, annotations=annotations)
    truth.write_text(json.dumps(content))
    output = output_of(tmp_path, {}, 'results', ids=truth)
    entries.append(entry('pictures/other.png', [thing(1, 1, 1, 9, 9)]))
    output.wanted.say_lacking(classes, [image['file_name'] for image in entries])
    said = capsys.readouterr().out
    assert said == f'{truth} lacks 1 images, such as pictures/other.png: left out\n'
    file = FORMATS['results'].write(files_of(output, classes, entries).detections())
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(truth))
        evaluation = COCOeval(coco, coco.loadRes(str(file)), 'bbox')
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
        metric = CocoMetric(str(truth))
        metric.dataset_meta = dict(classes=classes)
        for image, found in zip(images, entries, strict=False):
            boxes = np.array([x['bbox'] for x in found['objects']])
            boxes[:, 2:] += boxes[:, :2]
            given = dict(
                bboxes=boxes, labels=[x['category_id'] - 1 for x in found['objects']]
            )
            given |= dict(scores=[x['score'] for x in found['objects']])
            given = {key: torch.tensor(np.array(value)) for key, value in given.items()}
            about = dict(pred_instances=given, img_id=image['id'], ori_shape=(100, 120))
            metric.process({}, [about])
        expected = metric.evaluate(len(images))
    assert 0.2 < evaluation.stats[0] < 0.9
    assert expected['coco/bbox_mAP'] == pytest.approx(evaluation.stats[0], abs=5e-4)
    assert expected['coco/bbox_mAP_50'] == pytest.approx(evaluation.stats[1], abs=5e-4)


@pytest.mark.parametrize('seed', range(3))
def test_a_polygon_is_within_a_pixel_of_its_mask(seed: int) -> None:
    """Of the border of the squares of its pixels, in both directions."""
    shapely = pytest.importorskip('shapely')
    rng = np.random.default_rng(seed)
    blob = cv2.GaussianBlur(rng.random((60, 80)), (0, 0), 5) > 0.52
    count, parts = cv2.connectedComponents(blob.astype(np.uint8), connectivity=4)
    largest = max(range(1, count), key=lambda part: (parts == part).sum())
    mask = ndimage.binary_fill_holes(parts == largest)
    assert 100 < mask.sum() < 4000
    run_lengths = coco_mask.encode(np.asfortranarray(mask, np.uint8))
    polygon = shapely.Polygon(mask_outline(run_lengths))
    squares = [shapely.box(x, y, x + 1, y + 1) for y, x in np.argwhere(mask)]
    border = shapely.unary_union(squares).exterior
    assert polygon.exterior.hausdorff_distance(border) < 0.9


def test_crops_are_the_pixels_of_the_boxes(tmp_path: Path) -> None:
    """Names of classes cannot leave the folder; boxes outside of the image are left out."""
    pixels = np.zeros((100, 120, 3), np.uint8)
    pixels[20:52, 40:88] = 40, 120, 200
    objects = [
        *(
            thing(1, 40, 20, 48, 32),
            thing(2, 40.2, 20.7, 47.6, 30.9),
            thing(3, 100, 90, 50, 50),
        ),
        *(thing(4, 130, 20, 9, 9), thing(4, -5, -9, 5, 9), thing(4, -20, -20, 60, 60)),
    ]
    output = output_of(
        tmp_path, {}, read=lambda name: dict([('s/a b.tif', pixels)])[name]
    )
    entries = [entry('s/a b.tif', objects), entry('nothing.png', [])]
    found = files_of(output, ('..', 'a/b', 'A_B', 'star'), entries).detections()
    out = FORMATS['crops'].write(found)
    crops = {
        path.relative_to(out).as_posix(): cv2.imread(str(path))
        for path in out.rglob('*.jpg')
    }
    names = ('_.', 'a_b', 'A_B_3', 'star')
    shapes = ((1, (32, 48)), (2, (32, 48)), (3, (10, 20)), (6, (40, 40)))
    expected = {
        f'{name}/s/a b_{number}.jpg': shape
        for name, (number, shape) in zip(names, shapes, strict=True)
    }
    assert {name: crop.shape[:2] for name, crop in crops.items()} == expected
    for name in ('_./s/a b_1.jpg', 'a_b/s/a b_2.jpg'):
        assert np.abs(crops[name].astype(int) - (40, 120, 200)).max() <= 3


def test_least_scores_of_classes(tmp_path: Path) -> None:
    classes, checkpoint = ('cat', 'dog', 'traffic=light'), tmp_path / 'best.pth'
    checkpoint.write_bytes(b'weights')

    def least(given: Scores) -> dict[str, float]:
        return least_scores(given, tmp_path, classes, str(checkpoint))

    assert least(0.5) == least('0.5') == dict.fromkeys(classes, 0.5)
    assert least(['dog=0.25', 'traffic=light=1', 0.4]) == {
        'cat': 0.4,
        'dog': 0.25,
        'traffic=light': 1,
    }
    rows = [{'class': 'mean', 'threshold': 0.1, 'f1': 1.0}]
    rows += [
        {'class': 'cat', 'threshold': 0.7, 'f1': 0.5},
        {'class': 'dog', 'threshold': 1, 'f1': 0},
    ]
    with pytest.raises(ValueError, match='write it by rope-dense report'):
        least('report')
    report = tmp_path / 'report' / 'report.json'
    report.parent.mkdir()
    digest = hash_of(str(checkpoint))
    of_another = dict(
        about=dict(checkpoint='runs/other.pth', kind='boxes')
    )  # by its name, without a digest
    by_name = dict(about=dict(checkpoint='moved/best.pth', kind='boxes'))
    for about in (by_name, of_another | dict(checkpoint_sha256=digest)):
        report.write_text(json.dumps(about | dict(classes=rows)))
        expected = {'cat': 0.7, 'dog': 0.3, 'traffic=light': 0.9}
        assert least(['report', 'traffic=light=0.9']) == expected
    no_name = dict(about=dict(kind='boxes'))
    for about in (of_another, by_name | dict(checkpoint_sha256='0'), no_name):
        report.write_text(json.dumps(about | dict(classes=rows)))
        anew = f'not of {checkpoint}; write it anew by rope-dense report {tmp_path} {checkpoint}'
        with pytest.raises(ValueError, match=re.escape(anew)):
            least('report')
    for wrong in (30, -0.1, 'nan', 'dog=', 'dog', 'dog=1.1', '=x'):
        with pytest.raises(
            ValueError, match='give a score from 0 to 1, CLASS=SCORE, or report'
        ):
            least(wrong)
    with pytest.raises(SystemExit):
        command('predict')(['a.py', 'b.pth', 'c', '--score', '30'])
    with pytest.raises(ValueError, match='no class dgo; did you mean dog'):
        least('dgo=0.5')


@pytest.mark.parametrize(
    'options, says',
    [
        (['--score', 'cirle=0.4'], 'no class cirle; did you mean circle?'),
        (['--write', 'yolov8'], 'the formats are coco, results, yolo, voc, crops'),
        (['--ids', 'WEIGHTS'], 'only --write results has ids'),
        (['--write', 'results', '--ids', 'nothing.json'], 'nothing.json: No such file'),
        (
            ['--write', 'results', '--ids', 'OTHERS'],
            'images (x/1.jpg ...) have no 00000000.jpg, or any other',
        ),
    ],
)
def test_wrong_options(
    options: list[str],
    says: str,
    fails: Fails,
    detector: str,
    weights: str,
    data: Path,
    tmp_path: Path,
) -> None:
    others = tmp_path / 'others.json'
    images, categories = [dict(id=1, file_name='x/1.jpg')], [dict(id=1, name='circle')]
    others.write_text(
        json.dumps(dict(images=images, annotations=[], categories=categories))
    )
    given = [
        dict(WEIGHTS=weights, OTHERS=str(others)).get(word, word) for word in options
    ]
    pictures = str(data / 'coco' / 'val2017')
    fails(command('predict'), detector, weights, pictures, *given, says=[says])


def test_what_a_task_cannot_write() -> None:
    cases = {
        'for detectors, and the task of this model is depth': (
            ['depth'],
            ['a.png'],
            'yolo',
        ),
        'voc: it has no rotated boxes': (['oriented'], ['a.png'], 'coco', 'voc'),
        'crops: not of videos': (['boxes'], [], 'crops'),
    }
    for says, (tasks, names, *formats) in cases.items():
        with pytest.raises(UsageError, match=says):
            check_wanted(Wanted(formats), tasks, bool(names))
    check_wanted(Wanted(), ['depth'], has_names=False)
    check_wanted(Wanted(['yolo']), ['depth', 'boxes'], has_names=False)


def test_all_formats_of_small_and_tiled_images(
    detector: str, weights: str, data: Path, tmp_path: Path
) -> None:
    """With a least score of each class, which tiles keep, too."""
    pytest.importorskip('rasterio')
    pictures = data / 'coco' / 'val2017'
    folder, out = tmp_path / 'pictures', tmp_path / 'out'
    folder.mkdir()
    small = cv2.imread(str(pictures / '00000000.jpg'))
    cv2.imwrite(str(folder / '00000000.jpg'), small)
    cv2.imwrite(str(folder / 'large.png'), cv2.resize(small, (140, 100)))
    truth = data / 'coco' / 'annotations' / 'instances_val2017.json'
    options = [
        '--out',
        str(out),
        '--tile-above',
        '0.0065',
        '--write',
        *FORMATS,
        '--ids',
        str(truth),
    ]
    options += ['--score', '0', 'circle=1']
    assert command('predict')([detector, weights, str(folder), *options]) == 0
    content = mmengine.load(out / 'predictions.json')
    labels = {(x['image_id'], x['category_id']) for x in content['annotations']}
    assert {image for image, _ in labels} == {1, 2} and 1 not in {
        label for _, label in labels
    }
    names = {image['id']: Path(image['file_name']).stem for image in content['images']}
    numbers = Counter(names[item['image_id']] for item in content['annotations'])
    known = mmengine.load(truth)['images'][0]
    results = mmengine.load(out / 'results.json')
    assert {x['image_id'] for x in results} == {known['id']} and len(
        results
    ) == numbers['00000000']
    for name, number in numbers.items():
        lines = (out / 'yolo' / 'labels' / f'{name}.txt').read_text().splitlines()
        objects = (
            (out / 'voc' / 'Annotations' / f'{name}.xml').read_text().count('<object>')
        )
        assert (
            len(lines)
            == objects
            == len([*(out / 'crops').rglob(f'{name}_*.jpg')])
            == number
        )


@pytest.mark.slow
def test_corrected_predictions_are_trained(
    detector: str,
    weights: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/pre_labelling.md, with a box deleted, and another of another class."""
    monkeypatch.chdir(tmp_path)
    pictures = data / 'coco' / 'train2017'
    options = ['--out', 'pre', '--score', '0', '--write', 'yolo', '--scores']
    assert command('predict')([detector, weights, str(pictures), *options]) == 0
    shutil.copytree(pictures, 'pre/yolo/images')
    first, *others = sorted(Path('pre/yolo/labels').iterdir())
    lines = [path.read_text().splitlines()[:4] for path in (first, *others)]
    lines[0] = [f'0 {lines[0][0].partition(" ")[2]}', *lines[0][2:]]
    for path, text in zip((first, *others), lines, strict=True):
        path.write_text(''.join(f'{line}\n' for line in text))
    own = ['own.data_root=pre/yolo', 'own.epochs=1', 'own.weights=None', 'own.size=96']
    own += [
        'own.report=False',
        'train_dataloader.num_workers=0',
        'val_dataloader.num_workers=0',
    ]
    assert (
        command('train')(['realtime', '--work-dir', 'again', '--cfg-options', *own])
        == 0
    )
    cfg = Config.fromfile(Run(Path('again')).config_file)
    datasets = [cfg[f'{split}_dataloader'].dataset for split in ('train', 'val')]
    classes = Path('pre/yolo/classes.txt').read_text().split()
    assert [*datasets[0].metainfo.classes] == classes and Run(
        Path('again')
    ).checkpoints()
    content = [mmengine.load(Path(part.data_root, part.ann_file)) for part in datasets]
    assert sum(len(part['annotations']) for part in content) == sum(map(len, lines))
