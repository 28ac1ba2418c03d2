"""Sets that label three classes each, trained together: three ways, on photographs of cards.

    python docs/research/partial_labels/run.py --data DATA/cards --out work_dirs/partial_labels

Each second training image keeps the labels of the first three classes, the others those of the
last three. Validation images keep all. ``whole`` trains with all labels, ``background`` with what
is left, ``labelled`` with what is left and ``own.labelled``. README.md has predictions and results.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rope_dense.project.load import load_config

HALVES = ('first', 'second')
ARMS = ('whole', 'background', 'labelled')
RESULTS = Path(__file__).with_name('results.csv')


def write_arm(source: Path, out: Path, arm: str) -> list[str]:
    """Write the data set of an arm below ``out``; returns what ``--labelled`` gets."""
    cfg = load_config('realtime', own=dict(data_root=source, weights=None))
    classes = [*cfg.train_dataloader.dataset.metainfo.classes]
    known = dict(zip(HALVES, (classes[:3], classes[3:]), strict=True))
    (out / 'annotations').mkdir(parents=True, exist_ok=True)
    for split in ('train', 'val'):
        files = cfg.own_files[split]
        images = Path(files['data_root'], files['data_prefix']['img'])
        content = json.loads(Path(files['ann_file']).read_text())
        names = {item['id']: item['name'] for item in content['categories']}
        part_of = {}
        for index, image in enumerate(content['images']):
            part = HALVES[index % 2] if split == 'train' else 'all'
            part_of[image['id']] = part
            target = out / 'images' / split / part / Path(image['file_name']).name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                target.symlink_to(images / image['file_name'])
            image['file_name'] = target.relative_to(out / 'images' / split).as_posix()
        if arm != 'whole' and split == 'train':
            kept = []
            for item in content['annotations']:
                if names[item['category_id']] in known[part_of[item['image_id']]]:
                    kept.append(item)
            content['annotations'] = kept
        (out / 'annotations' / f'{split}.json').write_text(json.dumps(content))
    if arm != 'labelled':
        return []
    return [f'{part}={",".join(names)}' for part, names in known.items()]


def run_arm(source: Path, out: Path, arm: str, seed: int) -> dict[str, object]:
    """Train an arm by the documented command, and test it; a row of the results."""
    labelled = write_arm(source, out / arm, arm)
    work = out / f'{arm}_{seed}'
    program = [sys.executable, '-m', 'rope_dense_command']
    command = [*program, 'train', 'realtime', '--data', str(out / arm)]
    command += ['--backbone', 'tiny', '--weights', 'None', '--size', '192']
    command += ['--epochs', '7', '--report', 'False', '--work-dir', str(work)]
    command += ['--labelled', *labelled] if labelled else []
    command += ['--cfg-options', f'randomness.seed={seed}']
    environment = dict(os.environ, OMP_NUM_THREADS='1')
    subprocess.run(command, check=True, env=environment)
    best = json.loads((work / 'best_checkpoint.json').read_text())
    return dict(arm=arm, seed=seed, ap=best['value'], epoch=best['epoch'])


def main(argv: Sequence[str] | None = None) -> None:
    """Run what has no row yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--data', type=Path, required=True)
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2])
    parser.add_argument('--arms', nargs='+', choices=ARMS, default=ARMS)
    args = parser.parse_args(argv)
    rows = []
    if RESULTS.exists():
        with RESULTS.open() as file:
            rows = [*csv.DictReader(file)]
    done = {(row['arm'], int(row['seed'])) for row in rows}
    for seed in args.seeds:
        for arm in args.arms:
            if (arm, seed) in done:
                continue
            rows.append(run_arm(args.data.resolve(), args.out.resolve(), arm, seed))
            with RESULTS.open('w', newline='') as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)


if __name__ == '__main__':
    main()
