"""CPU seconds of the start of a command on own data: the first reading, and unchanged after it.

    python benchmarks/start_up.py --images 24000 118000 --formats yolo coco

Images have 32 x 24 pixels and objects with outlines, as many an image as in COCO (8.5). Labels are
read by one process; then another process, in which all modules are imported, runs `load_config` and
`check_data`. `peak_mb` is the peak memory of the first.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from measure import environment, table, write_csv

RESULTS = Path(__file__).parent / 'results' / 'start_up.csv'
OBJECTS, CLASSES, VAL_PART = (
    8.5,
    80,
    24,
)  # objects an image, classes, one image of so many for val
COLUMNS = (
    'format',
    'images',
    'objects',
    'first_s',
    'load_config_s',
    'check_data_s',
    'peak_mb',
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--images', type=int, nargs='+', default=[24_000])
    parser.add_argument(
        '--formats', nargs='+', default=['yolo', 'coco'], choices=WRITERS
    )
    parser.add_argument(
        '--start', help=argparse.SUPPRESS
    )  # what another process measures
    args = parser.parse_args()
    if args.start:
        print(json.dumps(start(args.start)))
        return
    rows = []
    for name in args.formats:
        for count in args.images:
            with tempfile.TemporaryDirectory() as folder:
                objects = write(name, Path(folder, 'data'), count)
                first, again = (measured(folder) for _ in range(2))
            rows.append(
                dict(
                    format=name,
                    images=count,
                    objects=objects,
                    first_s=first['load_config_s'],
                )
                | dict(
                    load_config_s=again['load_config_s'],
                    check_data_s=again['check_data_s'],
                )
                | dict(peak_mb=first['peak_mb'])
                | environment(torch.device('cpu'))
            )
            print(table(rows[-1:], COLUMNS), flush=True)
    write_csv(RESULTS, rows)


def measured(folder: str) -> dict:
    """``start`` in a process of its own."""
    command = [sys.executable, __file__, '--start', 'data']
    return json.loads(
        subprocess.check_output(command, cwd=folder, text=True).splitlines()[-1]
    )


def start(root: str) -> dict:
    """CPU seconds of the start of a training, without imports, and the peak of memory in MB."""
    from rope_dense.project.checks.data import check_data
    from rope_dense.project.load import load_config

    load_config('realtime', own=dict(data_root='none', classes=['a']))
    times = [time.process_time()]
    cfg = load_config('realtime', own=dict(data_root=root))
    times.append(time.process_time())
    check_data(cfg, ('train_dataloader', 'val_dataloader'))
    times.append(time.process_time())
    load, check = np.diff(times).round(2).tolist()
    # Of this program alone: `getrusage` also counts the process that started it.
    [peak] = re.findall(r'VmHWM:\s+(\d+) kB', Path('/proc/self/status').read_text())
    return dict(load_config_s=load, check_data_s=check, peak_mb=int(peak) // 1024)


def write(name: str, root: Path, count: int) -> int:
    """Write a data set of a number of images; returns the number of its objects."""
    rng = np.random.default_rng(0)
    parts = {
        'train': range(count - count // VAL_PART),
        'val': range(count - count // VAL_PART, count),
    }
    sample = Path(f'{root}.jpg')
    Image.fromarray(rng.integers(0, 255, (24, 32, 3), np.uint8)).save(sample)
    total = 0
    for split, numbers in parts.items():
        folder = root / 'images' / split
        folder.mkdir(parents=True)
        content = sample.read_bytes()
        for number in numbers:
            (folder / f'{number:012}.jpg').write_bytes(content)
        counts = rng.poisson(OBJECTS, len(numbers))
        total += int(counts.sum())
        WRITERS[name](root, split, numbers, counts, rng)
    return total


def outlines(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Classes [N] and outlines [N, 10, 2] as shares of an image."""
    angles = np.linspace(0, 2 * np.pi, 10, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], -1) * rng.uniform(
        0.05, 0.2, (count, 1, 1)
    )
    places = rng.uniform(0.25, 0.75, (count, 1, 2))
    return rng.integers(0, CLASSES, count), (places + circle).round(4)


def yolo(
    root: Path, split: str, numbers: range, counts: np.ndarray, rng: np.random.Generator
) -> None:
    folder = root / 'labels' / split
    folder.mkdir(parents=True)
    for number, count in zip(numbers, counts, strict=True):
        pairs = zip(*(x.tolist() for x in outlines(rng, count)), strict=True)
        lines = (
            f'{label} {" ".join(f"{x} {y}" for x, y in points)}\n'
            for label, points in pairs
        )
        (folder / f'{number:012}.txt').write_text(''.join(lines))
    names = ', '.join(f'class_{n}' for n in range(CLASSES))
    (root / 'data.yaml').write_text(
        f'train: images/train\nval: images/val\nnames: [{names}]\n'
    )


def coco(
    root: Path, split: str, numbers: range, counts: np.ndarray, rng: np.random.Generator
) -> None:
    images, annotations = [], []
    for number, count in zip(numbers, counts, strict=True):
        images.append(
            dict(id=number, file_name=f'{number:012}.jpg', height=24, width=32)
        )
        for label, points in zip(*outlines(rng, count), strict=True):
            points = points * (32, 24)
            low, high = points.min(0), points.max(0)
            box = [*low.tolist(), *(high - low).tolist()]
            item = dict(
                id=len(annotations) + 1, image_id=number, category_id=int(label) + 1
            )
            outline = [points.reshape(-1).round(2).tolist()]
            annotations.append(
                item | dict(bbox=box, area=1.0, iscrowd=0, segmentation=outline)
            )
    categories = [dict(id=n + 1, name=f'class_{n}') for n in range(CLASSES)]
    content = dict(images=images, annotations=annotations, categories=categories)
    folder = root / 'annotations'
    folder.mkdir(exist_ok=True)
    (folder / f'instances_{split}.json').write_text(json.dumps(content))


WRITERS = dict(yolo=yolo, coco=coco)

if __name__ == '__main__':
    main()
