"""Does training without labels help with few labels? Street scenes (CamVid), small models.

    python docs/research/unlabelled_study/run.py --camvid DIR --cards DIR --out work_dirs/few

Arms, each with 10 % and 100 % of the labels and seeds 0 to 2, equal budgets of the last training:

    random     the tiny backbone from random values
    base       from a segmentor of other pictures: playing cards, boxes as masks
    adapted    base, continued by `adapt` on all frames of CamVid without their labels
    distilled  random, taught by `own.teacher` on these frames: the backbone of a segmentor with
               four times as many weights, trained three times as long with all labels
    teacher    that segmentor, for comparison (seed 0, all labels)

A row of results.csv is added as soon as its run ends; a run that has its row is not repeated. Two
processes can share the arms by --arms.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import cv2
import numpy as np

HERE = Path(__file__).parent
CLASSES = (
    *(
        'Sky',
        'Building',
        'Pole',
        'Road',
        'Pavement',
        'Tree',
        'SignSymbol',
        'Fence',
        'Car',
    ),
    *('Pedestrian', 'Bicyclist'),
)
SEEDS = 0, 1, 2
CARDS = ('nine', 'ten', 'jack', 'queen', 'king', 'ace')
SIZE, BATCH = 128, 4
EPOCHS = {10: 30, 100: 3}  # by the percentage of labels: 300 and 276 iterations
BASE_EPOCHS, TEACHER_EPOCHS, ADAPT_EPOCHS, DISTIL_EPOCHS = 8, 10, 100, 50
# The recipe's learning rates are of backbones that saw millions of images: one for all arms.
EQUAL = ('--lr', '0.0005', '--size', str(SIZE), '--report', 'False')
POSITIONS = f'model.backbone.img_size={SIZE}'
ARMS = ('random', 'base', 'adapted', 'distilled')
COLUMNS = ('arm', 'labels', 'seed', 'mIoU', 'seconds')


def train(task: str, out: Path, data: Path, *options: str) -> float:
    """Train by the public command; returns its seconds."""
    start = time.monotonic()
    command = [
        sys.executable,
        '-m',
        'rope_dense_command',
        'train',
        task,
        '--data',
        str(data),
    ]
    if not (out / 'last_checkpoint').is_file():
        subprocess.run([*command, '--work-dir', str(out), *options], check=True)
    return time.monotonic() - start


def subset(camvid: Path, out: Path, percent: int) -> Path:
    """CamVid with a share of its training labels, evenly chosen, and all for validation."""
    target = out / f'camvid-{percent}'
    names = sorted(path.stem for path in (camvid / 'images/training').glob('*'))
    chosen = {*names[:: 100 // percent]}
    for kind in ('images', 'annotations'):
        for split in ('training', 'validation'):
            folder = target / kind / split
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted((camvid / kind / split).glob('*')):
                if split == 'validation' or path.stem in chosen:
                    shutil.copy(path, folder)
    (target / 'classes.txt').write_text('\n'.join(CLASSES))
    return target


def painted(cards: Path, out: Path) -> Path:
    """The cards with their boxes as masks: 0 is none, and a number from 1 a kind of card."""
    target = out / 'cards'
    for split, name in (('train', 'training'), ('test', 'validation')):
        for kind in ('images', 'annotations'):
            (target / kind / name).mkdir(parents=True, exist_ok=True)
        for file in sorted((cards / split).glob('*.xml')):
            image = next(file.parent.glob(f'{file.stem}.[jJ]*'))
            mask = np.zeros(cv2.imread(str(image)).shape[:2], np.uint8)
            for shape in ElementTree.parse(file).iter('object'):
                left, top, right, bottom = (
                    int(shape.findtext(f'bndbox/{x}', ''))
                    for x in ('xmin', 'ymin', 'xmax', 'ymax')
                )
                mask[top:bottom, left:right] = (
                    CARDS.index(shape.findtext('name', '')) + 1
                )
            shutil.copy(image, target / 'images' / name)
            cv2.imwrite(str(target / 'annotations' / name / f'{image.stem}.png'), mask)
    (target / 'classes.txt').write_text('\n'.join(('none', *CARDS)))
    return target


def segment(
    out: Path, data: Path, epochs: int, backbone: str, weights: str, seed: int
) -> tuple[float, float]:
    """mIoU of validation after a training with labels, and its seconds."""
    options = ['--weights', weights, *EQUAL]
    options += [
        '--backbone',
        backbone,
        '--batch-size',
        str(BATCH),
        '--epochs',
        str(epochs),
    ]
    options += [
        '--val-epochs',
        str(epochs),
        '--cfg-options',
        f'randomness.seed={seed}',
        POSITIONS,
    ]
    options += [
        'model.backbone.drop_path_rate=0.0',
        'optim_wrapper.paramwise_cfg.layer_decay=1.0',
    ]
    options.append(
        'model.decode_head.channels=64'
    )  # a third of the recipe's, for speed
    seconds = train('semantic', out, data, *options)
    return json.loads((out / 'best_checkpoint.json').read_text())['value'], seconds


def last(out: Path) -> str:
    """The last checkpoint of a training."""
    return str(out / Path((out / 'last_checkpoint').read_text()).name)


def add_row(file: Path, *values: object) -> None:
    """Add a row to a csv file."""
    is_new = not file.is_file()
    with file.open('a', newline='') as stream:
        writer = csv.writer(stream)
        writer.writerows([COLUMNS] * is_new + [values])


def table(results: Path) -> str:
    """The mean and range of mIoU over the seeds, as a table in Markdown."""
    with results.open() as stream:
        rows = [*csv.DictReader(stream)]
    lines = ['| arm | 10 % of the labels | all labels |', '|---|---:|---:|']
    for arm in (*ARMS, 'teacher'):
        cells = []
        for percent in ('10', '100'):
            found = [
                float(x['mIoU'])
                for x in rows
                if (x['arm'], x['labels']) == (arm, percent)
            ]
            text = f'{sum(found) / len(found):.2f}' if found else ''
            span = f' ({min(found):.2f} to {max(found):.2f})' if len(found) > 1 else ''
            cells.append(text + span)
        lines.append(f'| {arm} | {cells[0]} | {cells[1]} |')
    return '\n'.join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        '--camvid', type=Path, required=True, help='images/ and annotations/'
    )
    parser.add_argument(
        '--cards', type=Path, required=True, help='train/ and test/ with boxes'
    )
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--arms', nargs='+', choices=ARMS, default=ARMS)
    args = parser.parse_args(argv)
    out, results = args.out, HERE / 'results.csv'
    data = {percent: subset(args.camvid, out, percent) for percent in EPOCHS}
    frames = data[100]
    known = set[tuple[str, ...]]()
    if results.is_file():
        with results.open() as stream:
            known = {
                (row['arm'], row['labels'], row['seed'])
                for row in csv.DictReader(stream)
            }
    segment(out / 'base', painted(args.cards, out), BASE_EPOCHS, 'tiny', 'None', 0)
    pretrained = last(out / 'base')
    alone = ['--backbone', 'tiny', '--size', str(SIZE), '--train', 'images']
    alone += ['--val-epochs', '25', '--cfg-options', 'randomness.seed=0', POSITIONS]
    adapt = ['--weights', pretrained, '--epochs', str(ADAPT_EPOCHS)]
    train('adapt', out / 'adapted', frames, *adapt, *alone)
    if 'distilled' in args.arms:
        score, seconds = segment(
            out / 'teacher', frames, TEACHER_EPOCHS, 'small', 'None', 0
        )
        if ('teacher', '100', '0') not in known:
            add_row(results, 'teacher', 100, 0, f'{score:.2f}', f'{seconds:.0f}')
        teach = ['--teacher', 'small', '--teacher-weights', last(out / 'teacher')]
        teach += ['--weights', 'None', '--epochs', str(DISTIL_EPOCHS)]
        train('adapt', out / 'distilled', frames, *teach, *alone)
    weights = dict(random='None', base=pretrained)
    weights |= {name: str(out / name) for name in ('adapted', 'distilled')}
    for seed in SEEDS:
        for percent in EPOCHS:
            for arm in args.arms:
                if (arm, str(percent), str(seed)) in known:
                    continue
                target = out / f'{arm}-{percent}-{seed}'
                score, seconds = segment(
                    target, data[percent], EPOCHS[percent], 'tiny', weights[arm], seed
                )
                add_row(results, arm, percent, seed, f'{score:.2f}', f'{seconds:.0f}')
    print(table(results))


if __name__ == '__main__':
    main()
