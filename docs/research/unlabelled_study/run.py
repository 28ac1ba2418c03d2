"""Does training without labels help with few labels? Street scenes (CamVid), small models.

    python docs/research/unlabelled_study/run.py --camvid DIR --boxes DIR --out work_dirs/few

Arms, each with 10 % and 100 % of the labels and seeds 0 to 2, equal budgets of the last training:

    random     the tiny backbone from random values
    base       from a detector of other pictures, trained on the boxes of the second folder
    adapted    base, continued by `adapt` on all frames of CamVid without their labels
    distilled  random, taught by `own.teacher` on these frames: the backbone of a segmentor with
               four times as many weights, trained with all labels
    teacher    that segmentor, for comparison (seed 0, all labels)

A row of results.csv is added as soon as its run ends; a run that has its row is not repeated.
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

HERE = Path(__file__).parent
CLASSES = (
    *('Sky', 'Building', 'Pole', 'Road', 'Pavement', 'Tree', 'SignSymbol', 'Fence', 'Car'),
    *('Pedestrian', 'Bicyclist'),
)
SHARES, SEEDS = (10, 100), (0, 1, 2)
SIZE, BATCH, ITERATIONS = 128, 4, 300  # of each training with labels
ARMS = ('random', 'base', 'adapted', 'distilled')
COLUMNS = ('arm', 'labels', 'seed', 'mIoU', 'seconds')


def train(task: str, out: Path, data: Path, *options: str) -> float:
    """Train by the public command; returns its seconds."""
    start = time.monotonic()
    command = [sys.executable, '-m', 'rope_dense_command', 'train', task, '--data', str(data)]
    if not (out / 'last_checkpoint').is_file():
        command += ['--work-dir', str(out), '--report', 'False', *options]
        subprocess.run(command, check=True)
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
    return target


def segment(out: Path, data: Path, backbone: str, weights: str, seed: int) -> tuple[float, float]:
    """mIoU of validation after a training with labels, and its seconds."""
    images = len([*(data / 'images/training').glob('*')])
    epochs = -(-ITERATIONS // -(-images // BATCH))
    options = ['--classes', f'[{", ".join(CLASSES)}]', '--size', str(SIZE), '--weights', weights]
    options += ['--backbone', backbone, '--batch-size', str(BATCH), '--epochs', str(epochs)]
    options += ['--val-epochs', str(epochs), '--cfg-options', f'randomness.seed={seed}']
    seconds = train('semantic', out, data, *options)
    return json.loads((out / 'best_checkpoint.json').read_text())['value'], seconds


def add_row(file: Path, *values: object) -> None:
    """Add a row to a csv file."""
    is_new = not file.is_file()
    with file.open('a', newline='') as stream:
        writer = csv.writer(stream)
        writer.writerows([COLUMNS] * is_new + [values])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--camvid', type=Path, required=True, help='images/ and annotations/')
    parser.add_argument('--boxes', type=Path, required=True, help='pictures with boxes')
    parser.add_argument('--out', type=Path, required=True)
    args = parser.parse_args(argv)
    out, results = args.out, HERE / 'results.csv'
    data = {percent: subset(args.camvid, out, percent) for percent in SHARES}
    frames, small = data[100], ['--size', '128', '--backbone', 'tiny']
    known = set[tuple[str, ...]]()
    if results.is_file():
        with results.open() as stream:
            known = {(row['arm'], row['labels'], row['seed']) for row in csv.DictReader(stream)}
    base = [*small, '--batch-size', '8', '--epochs', '12', '--val-epochs', '12']
    train('realtime', out / 'base', args.boxes, *base, '--weights', 'None')
    pretrained = str(out / 'base' / (out / 'base/last_checkpoint').read_text().rpartition('/')[2])
    alone = ['--train', 'images', '--epochs', '20']
    train('adapt', out / 'adapted', frames, *small, *alone, '--weights', pretrained)
    score, seconds = segment(out / 'teacher', frames, 'small', 'None', 0)
    if ('teacher', '100', '0') not in known:
        add_row(results, 'teacher', 100, 0, f'{score:.2f}', f'{seconds:.0f}')
    taught = str(out / 'teacher' / (out / 'teacher/last_checkpoint').read_text().rpartition('/')[2])
    teach = ['--teacher', 'small', '--teacher-weights', taught, '--weights', 'None']
    train('adapt', out / 'distilled', frames, *small, *alone, *teach)
    weights = dict(random='None', base=pretrained)
    weights |= {name: str(out / name) for name in ('adapted', 'distilled')}
    for seed in SEEDS:
        for percent in SHARES:
            for arm in ARMS:
                if (arm, str(percent), str(seed)) in known:
                    continue
                target = out / f'{arm}-{percent}-{seed}'
                score, seconds = segment(target, data[percent], 'tiny', weights[arm], seed)
                add_row(results, arm, percent, seed, f'{score:.2f}', f'{seconds:.0f}')


if __name__ == '__main__':
    main()
