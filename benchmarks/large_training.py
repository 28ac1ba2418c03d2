"""Training on tiles of large images: accuracy beside shrunk images, memory, and files opened.

    python benchmarks/large_training.py study --seeds 0 1 2     # scenes of 6,000 x 4,000
    python benchmarks/large_training.py labels --seeds 0 1 2    # the same with a segmentor
    python benchmarks/large_training.py dota --data FOLDER      # oriented boxes, DOTA's two scenes
    python benchmarks/large_training.py memory                  # 20,000 x 20,000 x 4 in 16 bits
    python benchmarks/large_training.py files                   # with and without the sampler
    python benchmarks/large_training.py loading                 # CPU time of a training image
    python benchmarks/large_training.py metres --seeds 0 1 2    # scenes of two ground distances

`study` trains a small detector (DEIM) for one pass over the tiles of 256 pixels, and for as many
iterations on the scenes shrunk to 256 pixels; it tests whole scenes, the first model also in tiles
of 512 and 1,024 pixels, with and without `rope_scaling`. `dota` trains for 60 passes on a
folder in DOTA's layout, whose `train` and `val` have the same two scenes. `metres` is of
docs/research/ground_distance. `peak_mb` is the memory
of a training and its two loading processes, shared pages counted once (PSS), without the cache of
the disk.
"""

import argparse
import csv
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from measure import environment, table, write_csv

RESULTS = Path(__file__).parent / 'results'
CLASSES, COLOURS = ('disc', 'square'), ((40, 200, 60), (220, 60, 40))
TILE, BATCH = 256, 4
IMAGES = 40  # of `loading`
TASKS = dict(study='realtime', labels='semantic', dota='oriented')
# Of `metres`: metres a pixel of the scenes and of resampled ones, and of the discs' diameters.
DISTANCES, MIDDLE, DIAMETERS = (0.5, 1.0), 0.7, (8.0, 16.0)
ARMS = ('pixels', 'metres', 'resampled')
CONFIG = """
task = {task!r}
own = dict(
    data_root={root!r}, backbone='tiny', weights=None, size={size}, batch_size=4, augment='light',
    lr=1e-3, val_epochs={epochs}, epochs={epochs}, report=False, {more}
)
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=96, depth=4, num_heads=2),
        out_indices={outputs},
        layer_scale_init_value=None,
        img_size=256,
    ),
    {heads}
)
train_dataloader = dict(num_workers=2, {sampler})
val_dataloader = dict(num_workers=1, batch_size=2)
test_dataloader = dict(num_workers=1, batch_size=2)
randomness = dict(seed={seed})
"""
DEIM = """neck=dict(in_channels=96, out_channels=64),
    encoder=dict(in_channels=(64, 64, 64), embed_dims=64, feedforward_channels=128),
    bbox_head=dict(
        embed_dims=64, decoder=dict(num_layers=3, feedforward_channels=128), {more}
    ),"""
SHORT = 'denoising=None, mal_gamma=0.5'  # as of configs/demo: a short training gains by both
HEADS = {  # of a task, with the outputs of the backbone
    'realtime': ((1, 2, 3), DEIM.format(more='')),
    'oriented': ((1, 2, 3), DEIM.format(more=SHORT)),
    'semantic': (
        (0, 1, 2, 3),
        """neck=dict(embed_dim=96),
    decode_head=dict(in_channels=[96] * 4, channels=64),
    auxiliary_head=dict(in_channels=96, channels=64),
    test_cfg=dict(_delete_=True, mode='whole'),""",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        'what',
        choices=['study', 'labels', 'dota', 'memory', 'files', 'loading', 'metres'],
    )
    parser.add_argument('--seeds', type=int, nargs='+', default=[0])
    parser.add_argument('--folder', type=Path, default=Path('work_dirs/large_training'))
    parser.add_argument(
        '--size', type=int, nargs=2, default=[4000, 6000], help='height, width'
    )
    parser.add_argument('--objects', type=int, default=2000)
    parser.add_argument(
        '--scenes', type=int, default=2, help='for training; one is for validation'
    )
    parser.add_argument('--data', type=Path, help="dota: folder in DOTA's layout")
    parser.add_argument('--trainings', nargs='+', default=['tiles', 'shrunk'])
    parser.add_argument('--scalings', nargs='+', default=['none', 'by_parts', 'linear'])
    args = parser.parse_args()
    if args.what == 'dota' and not args.data:
        parser.error("dota: --data FOLDER, a folder in DOTA's layout")
    args.folder.mkdir(parents=True, exist_ok=True)
    about, rows = environment(torch.device('cpu')), []
    others = dict(memory=memory, files=files, loading=loading, metres=metres)
    for row in others.get(args.what, study)(args):
        rows.append(dict(what=args.what) | row | about)
        keep(rows)
    print(table(rows, [*rows[0]][:10]))


def earlier_rows(what: str) -> list[dict]:
    """The rows of earlier runs, all values as text."""
    file = RESULTS / f'large_training_{what}.csv'
    return [*csv.DictReader(file.read_text().splitlines())] if file.exists() else []


def keep(rows: list[dict]) -> None:
    """Write rows beside those of earlier runs, in place of rows of the same measurement."""
    what, new = rows[0]['what'], {measurement(row) for row in rows}
    kept = [row for row in earlier_rows(what) if measurement(row) not in new]
    ordered = sorted(kept + rows, key=lambda row: int(row.get('seed', 0)))
    write_csv(RESULTS / f'large_training_{what}.csv', ordered)


def measurement(row: dict) -> tuple[str, ...]:
    """What a row measures."""
    return tuple(
        str(row.get(key)) for key in ('seed', 'training', 'tested_in', 'scaling')
    )


# ---------------------------------------------------------------- scenes


def draw(
    height: int, width: int, number: int, seed: int
) -> tuple[np.ndarray, list[list[int]]]:
    """A scene [height, width, 3] of discs and squares of 8 to 24 pixels: class, x, y, w, h."""
    random = np.random.default_rng(seed)
    image = random.integers(90, 150, (height, width, 3), dtype=np.uint8)
    rows, columns = np.mgrid[:24, :24]
    objects = []
    for _ in range(number):
        label, side = int(random.integers(2)), int(random.integers(8, 25))
        x, y = int(random.integers(width - side)), int(random.integers(height - side))
        centre = (side - 1) / 2
        inside = np.hypot(rows - centre, columns - centre)[:side, :side] <= side / 2
        inside |= bool(label)
        image[y : y + side, x : x + side][inside] = COLOURS[label]
        objects.append([label, x, y, side, side])
    return image, objects


def write_scenes(root: Path, args: argparse.Namespace) -> Path:
    """Scenes as COCO, BMP files: a training on shrunk scenes decodes all of a file each time."""
    height, width = args.size
    for split, count, start in (('train', args.scenes, 0), ('val', 1, 1000)):
        listing = root / 'annotations' / f'{split}.json'
        if listing.exists():
            continue
        (root / split).mkdir(parents=True, exist_ok=True)
        listing.parent.mkdir(exist_ok=True)
        images, annotations = [], []
        for index in range(1, count + 1):
            pixels, objects = draw(height, width, args.objects, start + index)
            Image.fromarray(pixels).save(root / split / f'{index}.bmp')
            about = dict(id=index, file_name=f'{index}.bmp', height=height, width=width)
            images.append(about)
            masks = root / 'masks' / split
            masks.mkdir(parents=True, exist_ok=True)
            colours = np.array(COLOURS)
            found = [(pixels == colour).all(-1) for colour in colours.astype(np.uint8)]
            Image.fromarray(np.uint8(found[0] + 2 * found[1])).save(
                masks / f'{index}.png'
            )
            for label, x, y, w, h in objects:
                item = dict(
                    id=len(annotations) + 1, image_id=index, category_id=label + 1
                )
                annotations.append(
                    item | dict(bbox=[x, y, w, h], area=w * h, iscrowd=0)
                )
        categories = [dict(id=i, name=name) for i, name in enumerate(CLASSES, 1)]
        content = dict(images=images, annotations=annotations, categories=categories)
        listing.write_text(json.dumps(content))
    return root


def draw_on_ground(
    height: int, width: int, distance: float, seed: int
) -> tuple[np.ndarray, list[list[int]]]:
    """A scene of discs of one colour, whose class is their size in metres; as ``draw``."""
    random = np.random.default_rng(seed)
    image = random.integers(90, 150, (height, width, 3), dtype=np.uint8)
    objects = []
    for _ in range(height * width // 10_000):
        label = int(random.integers(2))
        side = round(DIAMETERS[label] / distance)
        x, y = int(random.integers(width - side)), int(random.integers(height - side))
        axis = np.arange(side) - (side - 1) / 2
        inside = np.hypot(axis[:, None], axis) <= side / 2
        image[y : y + side, x : x + side][inside] = COLOURS[0]
        objects.append([label, x, y, side, side])
    return image, objects


def write_ground(root: Path, distances: tuple[float, ...], is_resampled: bool) -> Path:
    """Scenes of `metres` as GeoTIFF files and COCO, perhaps resampled to ``MIDDLE``."""
    import cv2
    import rasterio

    (root / 'annotations').mkdir(parents=True, exist_ok=True)
    for split, count, size in (('train', 2, (1500, 2000)), ('val', 1, (1000, 1500))):
        (root / split).mkdir(exist_ok=True)
        images, annotations = [], []
        for distance, number in itertools.product(distances, range(count)):
            seed = round(10 * distance) + 100 * number + 1000 * (split == 'val')
            pixels, objects = draw_on_ground(*size, distance, seed)
            growth = distance / MIDDLE if is_resampled else 1.0
            method = cv2.INTER_AREA if growth < 1 else cv2.INTER_LINEAR
            height, width = (round(side * growth) for side in size)
            pixels = cv2.resize(pixels, (width, height), interpolation=method)
            index, step = len(images) + 1, distance / growth
            about = dict(driver='GTiff', dtype='uint8', count=3, tiled=True)
            about |= dict(height=height, width=width, crs='EPSG:32632')
            place = rasterio.Affine(step, 0, 0, 0, -step, 0)
            with rasterio.open(
                root / split / f'{index}.tif', 'w', transform=place, **about
            ) as file:
                file.write(pixels.transpose(2, 0, 1))
            name = dict(file_name=f'{index}.tif', height=height, width=width)
            images.append(dict(id=index, **name))
            for label, *box in objects:
                x, y, w, h = (growth * value for value in box)
                item = dict(image_id=index, category_id=label + 1, iscrowd=0)
                item |= dict(id=len(annotations) + 1, bbox=[x, y, w, h], area=w * h)
                annotations.append(item)
        classes = [dict(id=1, name='small'), dict(id=2, name='large')]
        content = dict(images=images, annotations=annotations, categories=classes)
        listing = root / 'annotations' / f'{split}.json'
        listing.write_text(json.dumps(content))
    return root


# ---------------------------------------------------------------- processes


def run(folder: Path, *arguments: object) -> tuple[str, float, float]:
    """Output, seconds and peak memory (MB) of a command of rope-dense in a folder."""
    command = [sys.executable, '-m', 'rope_dense', *map(str, arguments)]
    path = f'{Path(__file__).resolve().parents[1]}:{os.environ.get("PYTHONPATH", "")}'
    settings = dict(os.environ, OMP_NUM_THREADS='1', PYTHONPATH=path)
    started, most = time.monotonic(), [0.0]
    pipe = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    process = subprocess.Popen(command, cwd=folder, env=settings, **pipe)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            most[0] = max(most[0], memory_of(process.pid))

    thread = threading.Thread(target=watch)
    thread.start()
    output = process.communicate()[0]
    done.set()
    thread.join()
    if process.returncode:
        raise SystemExit(f'{" ".join(command)}:\n{output[-3000:]}')
    (folder / 'log.txt').write_text(output)
    return output, time.monotonic() - started, most[0]


def memory_of(process: int) -> float:
    """PSS of a process and its children in MB."""
    total = 0.0
    try:
        tasks = Path(f'/proc/{process}/task')
        children = [
            int(x)
            for t in tasks.iterdir()
            for x in (t / 'children').read_text().split()
        ]
        text = Path(f'/proc/{process}/smaps_rollup').read_text()
        total = int(re.search(r'^Pss: +(\d+)', text, re.M)[1]) / 1024
    except (OSError, TypeError):  # it has just ended
        return 0.0
    return total + sum(map(memory_of, children))


def config_file(
    folder: Path,
    name: str,
    root: Path,
    seed: int,
    task: str = 'realtime',
    **settings: object,
) -> Path:
    """A config of a small model."""
    own = dict(size=TILE, epochs=1) | settings
    outputs, heads = HEADS[task]
    if task == 'semantic':
        own |= dict(classes=['ground', *CLASSES])
        own |= {split: [split, f'masks/{split}'] for split in ('train', 'val')}
    more = ', '.join(
        f'{key}={value!r}' for key, value in own.items() if key not in STANDARD
    )
    # Two scenes are fewer than a batch, which an epoch of mmdet's sampler would leave incomplete.
    sampler = (
        '' if 'tile' in own else 'sampler=dict(type="InfiniteSampler", shuffle=True)'
    )
    text = CONFIG.format(
        root=str(root),
        seed=seed,
        more=more,
        task=task,
        outputs=outputs,
        heads=heads,
        sampler=sampler,
        **{k: own[k] for k in STANDARD},
    )
    (folder / f'{name}.py').write_text(text)
    return folder / f'{name}.py'


STANDARD = ('size', 'epochs')


# ---------------------------------------------------------------- measurements


def study(args: argparse.Namespace) -> Iterator[dict]:
    """Train on tiles and on shrunk scenes; test whole scenes."""
    folder = args.folder.resolve()
    root = (
        args.data.resolve()
        if args.what == 'dota'
        else write_scenes(folder / 'scenes', args)
    )
    task = TASKS[args.what]
    for seed in args.seeds:
        if 'tiles' in args.trainings:
            tiles = dict(
                tile=TILE, overlap=TILE // 4, epochs=60 if args.what == 'dota' else 1
            )
            path = config_file(
                folder, f'{args.what}_tiles_{seed}', root, seed, task, **tiles
            )
            yield trained(folder, path, dict(seed=seed, training='tiles'))
            for tile in () if args.what == 'dota' else (2 * TILE, 4 * TILE):
                for scaling in args.scalings:
                    yield tested(folder, path, tile, scaling, seed, task)
        if 'shrunk' in args.trainings:
            epochs = epochs_of_shrunk(args, seed)
            name = f'{args.what}_shrunk_{seed}'
            path = config_file(folder, name, root, seed, task, epochs=epochs)
            yield trained(folder, path, dict(seed=seed, training='shrunk'))


def metres(args: argparse.Namespace) -> Iterator[dict]:
    """Train on tiles of scenes of two ground distances; test the scenes of each.

    A pass over the resampled scenes has more tiles, so they have fewer passes.
    """
    folder = args.folder.resolve()
    for arm in ARMS:
        is_resampled = arm == 'resampled'
        kind = 'resampled' if is_resampled else 'scenes'
        root = write_ground(folder / kind / 'both', DISTANCES, is_resampled)
        settings: dict[str, object] = dict(tile=TILE, overlap=TILE // 4, epochs=4)
        if is_resampled:
            settings['epochs'] = 3
        if arm == 'metres':
            settings['ground_distance'] = MIDDLE
        for seed in args.seeds:
            path = config_file(folder, f'metres_{arm}_{seed}', root, seed, **settings)
            about = dict(seed=seed, training=arm)
            yield trained(folder, path, about) | dict(tested_in='both')
            for distance in DISTANCES:
                one = write_ground(
                    folder / kind / f'{distance}', (distance,), is_resampled
                )
                data = ('--data', one, '--split', 'val')
                output, _, _ = run(folder, 'test', folder / path.stem, *data)
                row = about | dict(tested_in=f'{distance:g}', scaling='none')
                yield row | figures_of(output)


def epochs_of_shrunk(args: argparse.Namespace, seed: int) -> int:
    """Epochs of as many iterations as the training on tiles of the same seed had."""
    rows = [
        x
        for x in earlier_rows(args.what)
        if x['training'] == 'tiles' and x['iterations']
    ]
    found = [int(x['iterations']) for x in rows if int(x['seed']) == seed]
    if not found:
        raise SystemExit(
            f'seed {seed} has no training on tiles yet: --trainings tiles shrunk'
        )
    return found[0] * BATCH // args.scenes if args.scenes >= BATCH else found[0]


def trained(folder: Path, path: Path, about: dict) -> dict:
    """A training and the test after it."""
    options = ('--work-dir', folder / path.stem, '--overwrite')
    output, seconds, memory = run(folder, 'train', path, *options)
    iterations = int(re.search(r'schedule +(\d+) iterations', output)[1])
    times = [float(x) for x in re.findall(r' time: ([\d.]+)', output)]
    figures = dict(
        tested_in=TILE, scaling='none', **figures_of(output), peak_mb=round(memory)
    )
    figures |= dict(s_iteration=float(np.median(times)), iterations=iterations)
    print(about | figures, flush=True)
    return about | figures | dict(seconds=round(seconds))


def tested(
    folder: Path, path: Path, tile: int, scaling: str, seed: int, task: str
) -> dict:
    """A test of whole scenes in larger tiles, as large for the model."""
    options = [f'test_dataloader.dataset.tile={tile}']
    options += [f'test_dataloader.dataset.overlap={TILE // 4}']
    width = tile if task == 'realtime' else 4 * tile
    options += [f'test_dataloader.dataset.pipeline.1.scale=({width},{tile})']
    if scaling != 'none':
        options += [f'model.backbone.rope_scaling.type={scaling}']
    run_folder = folder / path.stem
    output, seconds, memory = run(folder, 'test', run_folder, '--cfg-options', *options)
    about = dict(seed=seed, training='tiles', tested_in=tile, scaling=scaling)
    row = (
        about | figures_of(output) | dict(peak_mb=round(memory), seconds=round(seconds))
    )
    print(row, flush=True)
    return row


def figures_of(output: str) -> dict[str, float]:
    """AP and AP50, or mIoU, of the last table or line of an output."""
    if found := re.findall(
        r'aAcc +mIoU +mAcc\n +[\d.]+ +([\d.]+)|mIoU +([\d.]+)', output
    ):
        return dict(mIoU=float(max(found[-1])))
    found = re.findall(r'(?:boxes +|: )mAP ([\d.]+) +AP50 ([\d.]+)', output)
    found = found or re.findall(r'^ +boxes +([\d.]+) +([\d.]+)', output, re.M)
    if not found and 'no figures' not in output:
        raise ValueError(f'no AP and no mIoU in this output:\n{output[-3000:]}')
    ap, ap50 = (
        found[-1] if found else (0, 0)
    )  # a model that finds nothing has no figures
    return dict(AP=float(ap), AP50=float(ap50))


def memory(args: argparse.Namespace) -> list[dict]:
    """Memory of a training on one image of 20,000 x 20,000 x 4 in 16 bits, with two workers."""
    import rasterio
    from rasterio.windows import Window

    folder, side = args.folder.resolve(), 20_000
    root = folder / 'deep'
    for split in ('train', 'val'):
        (root / split).mkdir(parents=True, exist_ok=True)
        path, size = root / split / 'a.tif', side if split == 'train' else 1024
        random = np.random.default_rng(0)
        profile = dict(driver='GTiff', height=size, width=size, count=4, dtype='uint16')
        profile |= dict(tiled=True, blockxsize=256, blockysize=256, bigtiff='yes')
        profile |= dict(photometric='minisblack')
        boxes = random.integers(0, size - 40, (2000 if split == 'train' else 20, 2))
        if not path.exists():
            with rasterio.open(path, 'w', **profile) as file:
                for top in range(0, size, 256):
                    rows = min(256, size - top)
                    pixels = random.integers(
                        400, 3000, (4, rows, size), dtype=np.uint16
                    )
                    file.write(pixels, window=Window(0, top, size, rows))
        images = [dict(id=1, file_name='a.tif', height=size, width=size)]
        items = [
            dict(
                id=i, image_id=1, category_id=1, iscrowd=0, bbox=[*xy, 24, 24], area=576
            )
            for i, xy in enumerate(boxes.tolist(), 1)
        ]
        (root / 'annotations').mkdir(exist_ok=True)
        content = dict(
            images=images, annotations=items, categories=[dict(id=1, name='disc')]
        )
        (root / 'annotations' / f'{split}.json').write_text(json.dumps(content))
    deep = dict(tile=1024, overlap=200, channels=4, empty_tiles=0.01)
    deep |= dict(mean=[1700.0] * 4, std=[750.0] * 4)
    path = config_file(folder, 'deep', root, 0, **deep)
    with path.open('a') as file:
        file.write('train_cfg = dict(max_iters=40, val_interval=40)\n')
        file.write('default_hooks = dict(logger=dict(interval=10))\n')
    options = ('--work-dir', folder / 'deep_run', '--overwrite')
    output, seconds, peak = run(folder, 'train', path, *options)
    times = [float(x) for x in re.findall(r' time: ([\d.]+)', output)]
    loads = [float(x) for x in re.findall(r'data_time: ([\d.]+)', output)]
    return [
        dict(peak_mb=round(peak), s_iteration=float(np.median(times)))
        | dict(s_data=float(np.median(loads)), seconds=round(seconds))
    ]


def files(args: argparse.Namespace) -> list[dict]:
    """Files that one loading process opens in an epoch, and its seconds, by the order of tiles."""
    from mmengine.dataset import InfiniteSampler
    from mmengine.registry import DATASETS, DefaultScope

    import rope_dense  # noqa: F401, registered
    from rope_dense.data.tiles import dataset as tiled

    args.size, args.objects, args.scenes = [1000, 1500], 100, 48
    root, rows = write_scenes((args.folder / 'many').resolve(), args), []
    given = dict(type='TiledDataset', kind='CocoDataset', tile=TILE, overlap=TILE // 4)
    given |= dict(
        copies=str(root / 'copies'),
        data_root=f'{root}/',
        data_prefix=dict(img='train/'),
    )
    given |= dict(ann_file='annotations/train.json', metainfo=dict(classes=CLASSES))
    given |= dict(pipeline=[dict(type='LoadImageFromFile')])
    with DefaultScope.overwrite_default_scope('mmdet'):
        dataset = DATASETS.build(given)
    for name in (
        'random order',
        'TileSampler',
    ) * 2:  # the disk's cache is warm in the second half
        kind = InfiniteSampler if name == 'random order' else tiled.TileSampler
        order = iter(kind(dataset, seed=0))
        tiled.open_cached.cache_clear()
        started = time.monotonic()
        for _ in range(len(dataset)):
            dataset[next(order)]
        seconds, opened = (
            time.monotonic() - started,
            tiled.open_cached.cache_info().misses,
        )
        row = dict(order=name, files=args.scenes, tiles=len(dataset), opened=opened)
        rows.append(row | dict(ms_tile=1000 * seconds / len(dataset)))
    return rows[2:]


def loading(args: argparse.Namespace) -> list[dict]:
    """CPU time in which a process makes an image of 256 pixels for a training of `study`."""
    from mmengine.config import Config
    from mmengine.registry import DATASETS, DefaultScope

    rows = []
    for training in ('tiles', 'shrunk'):
        path = args.folder / f'study_{training}_{args.seeds[0]}'
        cfg = Config.fromfile(path / f'{path.name}.py')
        with DefaultScope.overwrite_default_scope('mmdet'):
            dataset = DATASETS.build(cfg.train_dataloader.dataset)
        dataset[0]  # files are opened, and in the cache of the disk
        started = time.process_time()
        for index in range(IMAGES):
            dataset[index % len(dataset)]
        cpu = 1000 * (time.process_time() - started) / IMAGES
        rows.append(dict(training=training, images=IMAGES, cpu_ms_image=cpu))
    return rows


if __name__ == '__main__':
    main()
