"""Default recipes on real images beside other tools: one set, one budget, one evaluator.

    python benchmarks/real_sets.py cards realtime --data DATA --epochs 3
    python benchmarks/real_sets.py cards realtime --data DATA --epochs 24 \\
        --tool yolo11n --python ENVIRONMENT/bin/python
    python benchmarks/real_sets.py --page      # the tables of docs/real_sets.md, from the csv

A row: a model is trained from random weights on one thread by the documented command of its tool,
with the tool's defaults but for the image size and the number of epochs, which is chosen so that
tools take about the same CPU seconds. Its predictions of the validation images are evaluated here,
by the same code for all tools. DATA has a folder for each set. Other tools are run in environments
of their own (``--python``), which need faster-coco-eval, too.

CPU seconds are those of user and system of the training, with all its processes, evaluations and
reports. `peak_mb` is of the largest process. `predicted_per_s`: images that are read, predicted one
by one and returned with their masks in a CPU second, after a warm-up.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from measure import Row, environment, write_csv
from real_sets_configs import CONFIGS

RESULTS = Path(__file__).parent / 'results' / 'real_sets.csv'
PAGE = Path(__file__).parents[1] / 'docs' / 'real_sets.md'
WORKER = Path(__file__).with_name('real_sets_predict.py')
CAMVID = (
    'Sky Building Pole Road Pavement Tree SignSymbol Fence Car Pedestrian Bicyclist'
)
SETS: dict[str, dict] = {  # settings of ``own`` for each
    'cards': {},
    'nuclei': {},
    'coco_mini': {},
    'camvid_mini': dict(classes=CAMVID.split()),
}
MASKS = (
    'instance',
    'realtime_masks',
    'oriented',
)  # rotated boxes are evaluated as their masks
TASKS = ('detection', 'realtime', *MASKS, 'semantic')
# Documented commands of other tools, run in the folder of the run.
ULTRALYTICS = 'yolo train model={tool}.yaml data=data/data.yaml epochs={epochs}'
ULTRALYTICS += ' imgsz={size} seed={seed} device=cpu'
LIBREYOLO = (
    'libreyolo train --model {tool} --no-pretrained --data data/data.yaml --project .'
)
LIBREYOLO += ' --name run --epochs {epochs} --imgsz {size} --seed {seed} --device cpu'
OPENMMLAB = 'rope-dense train config.py --work-dir run'
LIGHTLY = 'python train.py {epochs} {size} {seed}'
OWN = (
    'rope-dense train {task} --data {root} --backbone tiny --weights None --size {size}'
)
OWN += ' --epochs {epochs} --work-dir run --cfg-options randomness.seed={seed}'
TOOLS = {  # commands, and what they leave: a folder, or a file somewhere in the folder of the run
    'rope_dense': (OWN, 'run'),
    'upernet-swin': (OPENMMLAB, 'run'),
    'rtmdet-tiny': (OPENMMLAB, 'run'),
    'yolo11n': (ULTRALYTICS, '**/best.pt'),
    'yolo11n-seg': (ULTRALYTICS, '**/best.pt'),
    'yolo11n-obb': (ULTRALYTICS, '**/best.pt'),
    'yolo9-t': (LIBREYOLO, '**/best.pt'),
    'ltdetr-vitt': (LIGHTLY, '**/exported_best.pt'),
}
# lightly-train's detector on DINOv3's ViT-T without its weights; it trains from Python alone.
TRAIN_LTDETR = """import json, pathlib, sys, lightly_train
epochs, size, seed = map(int, sys.argv[1:])
text = pathlib.Path('data/data.yaml').read_text().split('names: ')[1]
names = dict(enumerate(json.loads(text)))
data = dict(path='data', train='images/train', val='images/val', names=names)
images = len(list(pathlib.Path('data/images/train').iterdir()))
lightly_train.train_object_detection(
    out='run', model='dinov3/vitt16-notpretrained-ltdetr', data=data, seed=seed,
    steps=epochs * images // 32, transform_args=dict(image_size=(size, size)), accelerator='cpu')
"""
HEADERS = dict(
    tool='tool', options='options', size='size', epochs='epochs', seed='seeds'
)
HEADERS |= dict(  # figures of each seed
    value='figure', at_50='at 0.5', cpu_s='CPU s', trained_per_s='trained images/CPU s'
)
HEADERS |= dict(predicted_per_s='predicted images/CPU s')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('set', nargs='?', choices=SETS)
    parser.add_argument('task', nargs='?', choices=TASKS)
    parser.add_argument('--data', type=Path, help='folder of the sets')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/real_sets'))
    parser.add_argument('--tool', default='rope_dense', choices=TOOLS)
    parser.add_argument(
        '--python', default=sys.executable, help='of the environment of the tool'
    )
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--size', type=int, default=320)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument(
        '--options', default='', help='more of the command, in quotes after a ='
    )
    parser.add_argument(
        '--page', action='store_true', help='only write the tables of the page'
    )
    args = parser.parse_args()
    if not args.page:
        if None in (args.set, args.task, args.data):
            parser.error('give a set, a task and --data DATA, or --page')
        row = measured(args)
        print(json.dumps(row, indent=1))
        write_csv(RESULTS, [*read_rows(), row])
    write_page(PAGE, read_rows())


def measured(args: argparse.Namespace) -> Row:
    """Train, predict and evaluate; the row."""
    from rope_dense.project.load import load_config

    root = (args.data / args.set).absolute()
    name = [
        args.set,
        args.task,
        args.tool,
        args.size,
        args.epochs,
        args.seed,
        args.options,
    ]
    out = args.out.absolute() / '_'.join(
        str(part).replace('/', '') for part in name if part != ''
    )
    out.mkdir(parents=True)
    settings = dict(data_root=str(root), weights=None, backbone='tiny', size=args.size)
    cfg = load_config(args.task, own=SETS[args.set] | settings)
    training, validation = Split(cfg, 'train'), Split(cfg, 'val')
    if args.tool in CONFIGS:
        (out / 'config.py').write_text(CONFIGS[args.tool](args, training, validation))
    elif args.tool != 'rope_dense':
        write_yolo(out / 'data', training, validation)
        (out / 'train.py').write_text(TRAIN_LTDETR)
    command, left = TOOLS[args.tool]
    command = command.format(**vars(args), root=root).split() + shlex.split(
        args.options
    )
    if args.tool == 'rope_dense' and 'classes' in SETS[args.set]:
        command += ['--classes', *SETS[args.set]['classes']]
    program = Path(args.python).parent / command[0]
    cpu, peak = spent([program, *command[1:]], out)
    (out / 'images.json').write_text(
        json.dumps([str(path) for path in validation.images])
    )
    [checkpoint] = out.glob(left)
    spent([args.python, WORKER, args.tool, checkpoint, args.size, out], out)
    answers = json.loads((out / 'predictions.json').read_text())
    figures = (
        validation.mean_iou(out)
        if args.task == 'semantic'
        else validation.precision(
            answers['images'], 'segm' if args.task in MASKS else 'bbox'
        )
    )
    return dict(
        {key: getattr(args, key) for key in ('set', 'task', 'tool', 'options')},
        **{key: getattr(args, key) for key in ('size', 'epochs', 'seed')},
        **figures,
        cpu_s=round(cpu),
        trained_per_s=args.epochs * len(training.images) / cpu,
        predicted_per_s=len(validation.images) / answers['cpu_s'],
        peak_mb=round(peak),
        command=shlex.join(command).replace(str(root.parent), 'DATA'),
        **environment(torch.device('cpu')) | dict(threads=1),
    )


class Split:
    """Images and labels of a data set as the recipe of a task reads them.

    Attributes:
        images: their paths.
        content: of the COCO file; of masks the pairs of paths.
        classes: names.
    """

    def __init__(self, cfg: Mapping, name: str) -> None:
        dataset = cfg[f'{name}_dataloader']['dataset']
        self.file, self.root = Path(dataset['ann_file']), Path(dataset['data_root'])
        self.content = json.loads(self.file.read_text())
        self.classes = list(dataset['metainfo']['classes'])
        if 'pairs' in self.content:
            self.images = [self.root / image for image, _ in self.content['pairs']]
        else:
            folder = Path(dataset['data_prefix']['img'])
            self.images = [
                folder / image['file_name'] for image in self.content['images']
            ]

    def mean_iou(self, maps: Path) -> Row:
        """mIoU in percent of the class numbers in MAPS/N.png; pixels of no class do not count."""
        count = len(self.classes)
        confusion = np.zeros((count, count), np.int64)
        for index, (_, mask) in enumerate(self.content['pairs']):
            truth = np.asarray(Image.open(self.root / mask)).astype(np.int64)
            found = np.asarray(Image.open(maps / f'{index}.png'))
            pairs = (truth * count + found)[truth < count]
            confusion += np.bincount(pairs, minlength=count**2).reshape(count, count)
        hits = np.diag(confusion)
        union = confusion.sum(0) + confusion.sum(1) - hits
        return dict(
            value=float(100 * (hits[union > 0] / union[union > 0]).mean()), at_50=''
        )

    def precision(self, answers: Sequence[Mapping], kind: str) -> Row:
        """AP in percent over IoU thresholds of 0.5 to 0.95, and at 0.5, of 300 objects an image.

        Args:
            answers: of each image boxes, scores, labels and run lengths of masks.
            kind: 'bbox' or 'segm'.
        """
        from faster_coco_eval import COCO, COCOeval_faster

        numbers = [category['id'] for category in self.content['categories']]
        found = []
        for image, answer in zip(self.content['images'], answers, strict=True):
            for index, (left, top, right, bottom) in enumerate(answer['boxes']):
                item = dict(image_id=image['id'], score=answer['scores'][index])
                item['category_id'] = numbers[answer['labels'][index]]
                item['bbox'] = [left, top, right - left, bottom - top]
                if kind == 'segm':
                    item['segmentation'] = answer['masks'][index]
                found.append(item)
        if not found:
            return dict(value=0.0, at_50=0.0)
        truth = COCO(str(self.file))
        evaluation = COCOeval_faster(truth, truth.loadRes(found), kind)
        evaluation.params.maxDets = [1, 100, 300]
        evaluation.evaluate()
        evaluation.accumulate()
        values = evaluation.eval['precision'][
            :, :, :, 0, -1
        ]  # thresholds, recalls, classes
        value, at_50 = (100 * part[part > -1].mean() for part in (values, values[0]))
        return dict(value=float(value), at_50=float(at_50))


def spent(command: Sequence[object], folder: Path) -> tuple[float, float]:
    """Run a command on one thread in a folder; CPU seconds and peak in MB of all its processes."""
    words = [str(word) for word in command]
    with (folder / f'{Path(words[0]).name}.log').open('w') as log:
        environ = os.environ | dict(OMP_NUM_THREADS='1', YOLO_CONFIG_DIR=str(folder))
        process = subprocess.Popen(
            words, stdout=log, stderr=log, cwd=folder, env=environ
        )
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f'{shlex.join(words)} failed: see {log.name}')
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def write_yolo(folder: Path, training: Split, validation: Split) -> None:
    """The two splits in YOLO's layout: links to images, and outlines where the labels have them."""
    for name, split in (('train', training), ('val', validation)):
        images, labels = (folder / kind / name for kind in ('images', 'labels'))
        images.mkdir(parents=True)
        labels.mkdir(parents=True)
        lines: dict[int, list[str]] = {
            image['id']: [] for image in split.content['images']
        }
        numbers = {
            item['id']: index for index, item in enumerate(split.content['categories'])
        }
        sizes = {
            item['id']: (item['width'], item['height'])
            for item in split.content['images']
        }
        for item in split.content['annotations']:
            size, box = np.array(sizes[item['image_id']]), np.array(item['bbox'])
            shape = np.concatenate([(box[:2] + box[2:] / 2) / size, box[2:] / size])
            if polygons := item.get('segmentation'):
                shape = (np.reshape(max(polygons, key=len), (-1, 2)) / size).ravel()
            text = ' '.join(f'{value:.6f}' for value in shape.clip(0, 1))
            lines[item['image_id']].append(f'{numbers[item["category_id"]]} {text}\n')
        for path, (image, objects) in zip(split.images, lines.items(), strict=True):
            (images / f'{image:06}{path.suffix}').symlink_to(path)
            (labels / f'{image:06}.txt').write_text(''.join(objects))
    names = json.dumps(training.classes)
    text = f'path: {folder}\ntrain: images/train\nval: images/val\nnames: {names}\n'
    (folder / 'data.yaml').write_text(text)


def read_rows() -> list[Row]:
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline='') as stream:
        return list(csv.DictReader(stream))


def write_page(page: Path, rows: Sequence[Row]) -> None:
    """Write a table for each set and task between the two marks of the page; others stay."""
    tables = []
    for place in dict.fromkeys((row['set'], row['task']) for row in rows):
        kind = dict.fromkeys(MASKS, 'mask AP').get(place[1], 'box AP')
        kind = 'mIoU' if place[1] == 'semantic' else kind
        lines = [
            list((HEADERS | dict(value=kind)).values()),
            ['---'] * 2 + ['---:'] * (len(HEADERS) - 2),
        ]
        chosen = [row for row in rows if (row['set'], row['task']) == place]
        lines += [cells(runs) for runs in by_command(chosen)]
        text = '\n'.join(f'| {" | ".join(line)} |' for line in lines)
        tables.append(f'### {place[0]}, {place[1]}\n\n{text}\n')
    start, end = '<!-- tables -->', '<!-- end of tables -->'
    before, rest = page.read_text().split(start)
    page.write_text(
        f'{before}{start}\n\n' + '\n'.join(tables) + f'\n{end}{rest.split(end)[1]}'
    )


def by_command(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of one command that differ in the seed, by seed; the newest of each."""
    commands: dict[tuple, dict[str, Row]] = {}
    for row in rows:
        command = tuple(row[name] for name in ('tool', 'options', 'size', 'epochs'))
        commands.setdefault(command, {})[str(row['seed'])] = row
    return [[runs[seed] for seed in sorted(runs)] for runs in commands.values()]


def cells(runs: Sequence[Row]) -> list[str]:
    """A line of the page: figures of each seed, in tenths, and the mean of what was spent."""
    line = []
    for name in HEADERS:
        values = [str(row[name]) for row in runs]
        if name == 'seed':
            line.append(', '.join(values))
        elif name in ('value', 'at_50'):
            line.append(', '.join(f'{float(value):.1f}' for value in values if value))
        elif name == 'cpu_s' or name.endswith('per_s'):
            mean = sum(map(float, values)) / len(values)
            line.append(f'{mean:.3g}')
        else:
            line.append(values[0])
    return line


if __name__ == '__main__':
    main()
