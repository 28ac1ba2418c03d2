"""From scratch to boxes: does pre-training through timm's interface help a small detector?

    python docs/research/pretraining/run.py

pre-trains the backbone of the demo's detector on crops of generated shapes, with timm's model,
optimiser, schedule, mixup, loss and checkpoint, and then trains the demo's detector twice for as
many iterations: with this backbone, and with a random one. Everything goes to the work folder:

    crops.pt                       pictures and classes
    timm/last.pth.tar              the classifier, as timm's script writes it
    scratch/, pretrained/          logs and checkpoints of the detectors
    results.json, results.png      accuracy by epoch, AP by iteration

Pictures have 0.6 times the side of the demo's, so that all of it takes a quarter of an hour on one
idle core. Needs timm, with its torchvision.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from matplotlib.figure import Figure
from mmengine.config import Config
from mmengine.runner import Runner
from torch import Tensor

from rope_dense.commands.arguments import at_least
from rope_dense.commands.run import run
from rope_dense.data.generated import (
    METAINFO,
    ShapesSettings,
    make_scene,
    render,
    write_shapes,
)
from rope_dense.project.load import with_data_root
from rope_dense.report.curves import read_logs
from rope_dense.utils.disk import atomic_write, atomic_write_text
from rope_dense.utils.errors import UsageError

HERE = Path(__file__).parent
DETECTOR = HERE.parents[2] / 'configs' / 'demo' / 'dino_vitdet_rope_mixed_shapes.py'
CLASSIFIER = HERE / 'classifier.py'
SCENE_SIZE, CROP_SIZE = (
    96,
    48,
)  # pixels of a side: the detector's images, and half of it
WINDOW = 3  # patches of a side: a window of the detector is as large as a crop
CROP_SEED = 1  # other scenes than those of the detector, whose seed is 0
MARGINS = (1.1, 1.8)  # half the side of a crop over the radius of its shape
METRICS = {'AP': 'coco/bbox_mAP', 'AP50': 'coco/bbox_mAP_50'}
ARMS = {'scratch': 'random backbone', 'pretrained': 'pre-trained backbone'}
COLOURS = {'scratch': '#777777', 'pretrained': '#e76f51'}
NUMBERS = ('crops', 'epochs', 'iterations', 'val_interval', 'images', 'seed')
Split = tuple[
    Tensor, Tensor
]  # pictures [N, 3, CROP_SIZE, CROP_SIZE] of uint8, classes [N]


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        '--debug', action='store_true', help='print the traceback of an error'
    )
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/pretraining'))
    positive = at_least(1)
    parser.add_argument(
        '--crops', type=positive, default=6000, help='to learn from (%(default)s)'
    )
    parser.add_argument(
        '--epochs', type=positive, default=10, help='of pre-training (%(default)s)'
    )
    parser.add_argument(
        '--iterations', type=positive, default=300, help='of detectors (%(default)s)'
    )
    parser.add_argument(
        '--val-interval', type=positive, default=60, help='in these (%(default)s)'
    )
    parser.add_argument(
        '--images', type=positive, default=2000, help='for detectors (%(default)s)'
    )
    parser.add_argument(
        '--seed', type=int, default=0, help='of weights and order (%(default)s)'
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    return run(compare, parse_args(argv))


def compare(args: argparse.Namespace) -> None:
    settings = {name: getattr(args, name) for name in NUMBERS}
    args.work_dir.mkdir(parents=True, exist_ok=True)
    train, val = crops(args)
    started = time.monotonic()
    accuracies = pretrain(args, train, val)
    results = dict(settings=settings, accuracies=accuracies, detection={})
    results['seconds'] = dict(pretraining=seconds_since(started))
    shapes = ShapesSettings(
        train=args.images, val=100, size=(SCENE_SIZE, SCENE_SIZE), layouts=('coco',)
    )
    try:
        write_shapes(args.work_dir / 'data', shapes)
    except FileExistsError as error:
        raise UsageError(str(error)) from error
    for arm in ARMS:
        started = time.monotonic()
        results['detection'][arm] = detect(args, arm)
        results['seconds'][arm] = seconds_since(started)
    atomic_write_text(
        args.work_dir / 'results.json', json.dumps(results, indent=2) + '\n'
    )
    draw(results, args.work_dir / 'results.png')


def seconds_since(started: float) -> int:
    return round(time.monotonic() - started)


def crops(args: argparse.Namespace) -> tuple[Split, Split]:
    """Crops to learn from, and a tenth as many to test; drawn once."""
    path = args.work_dir / 'crops.pt'
    numbers = dict(train=args.crops, val=max(args.crops // 10, 1))
    if path.exists():
        splits = torch.load(path, weights_only=True)
        found = {split: len(labels) for split, (_, labels) in splits.items()}
        if found != numbers:
            raise UsageError(f'{path}: has {found} crops, not {numbers}; remove it')
    else:
        splits = {split: draw_crops(split, number) for split, number in numbers.items()}
        with atomic_write(path) as partial:
            torch.save(splits, partial)
    return splits['train'], splits['val']


def draw_crops(split: str, number: int) -> Split:
    """Squares around shapes of scenes, each shape somewhere in its square."""
    rng = np.random.default_rng([CROP_SEED, split == 'val'])
    pictures, labels, index = [], [], 0
    while len(labels) < number:
        scene = make_scene(CROP_SEED, split, index)
        image, _ = render(scene, SCENE_SIZE, SCENE_SIZE)
        for shape in scene.shapes:
            half = shape.radius * SCENE_SIZE * rng.uniform(*MARGINS)
            slack = half - shape.radius * SCENE_SIZE
            x, y = SCENE_SIZE * np.array([shape.x, shape.y]) + rng.uniform(
                -slack, slack, 2
            )
            scale = CROP_SIZE / (2 * half)
            into = np.array([[scale, 0, CROP_SIZE / 2 - scale * x]])
            into = np.concatenate([into, [[0, scale, CROP_SIZE / 2 - scale * y]]])
            crop = cv2.warpAffine(
                image, into, (CROP_SIZE, CROP_SIZE), borderMode=cv2.BORDER_REFLECT_101
            )
            pictures.append(torch.from_numpy(crop).permute(2, 0, 1))
            labels.append(shape.label)
        index += 1
    return torch.stack(pictures[:number]), torch.tensor(labels[:number])


def pretrain(args: argparse.Namespace, train: Split, val: Split) -> list[float]:
    """Train the classifier as timm's script does, and write its checkpoint; the accuracy on
    ``val`` after each epoch."""
    import timm
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.scheduler import create_scheduler_v2
    from timm.utils import CheckpointSaver

    import research.timm_models  # noqa: F401  (registers the model)

    torch.manual_seed(args.seed)
    np.random.seed(args.seed)  # of mixup
    classes = len(METAINFO['classes'])
    options = argparse.Namespace(model='rope_classifier', batch_size=64)
    model = timm.create_model(options.model, config=str(CLASSIFIER))
    optimizer = create_optimizer_v2(model, opt='adamw', lr=1e-3, weight_decay=0.05)
    updates = -(-args.crops // options.batch_size)
    scheduler, _ = create_scheduler_v2(
        optimizer,
        num_epochs=args.epochs,
        warmup_epochs=min(1, args.epochs - 1),
        warmup_lr=1e-6,
        min_lr=1e-5,
        step_on_epochs=False,
        updates_per_epoch=updates,
    )
    mixup = Mixup(mixup_alpha=0.2, label_smoothing=0.1, num_classes=classes)
    criterion = SoftTargetCrossEntropy()
    folder = args.work_dir / 'timm'
    folder.mkdir(exist_ok=True)
    saver = CheckpointSaver(
        model, optimizer, options, checkpoint_dir=str(folder), recovery_dir=str(folder)
    )
    accuracies, update = [], 0
    for epoch in range(args.epochs):
        model.train()
        for pictures, labels in batches(train, options.batch_size):
            scheduler.step_update(update)
            images, targets = mixup(*even(normalised(augmented(pictures)), labels))
            optimizer.zero_grad()
            criterion(model(images), targets).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            update += 1
        accuracies.append(accuracy(model, val))
        saver.save_checkpoint(epoch, metric=accuracies[-1])
        print(f'epoch {epoch + 1} of {args.epochs}: {accuracies[-1]:.1f} %', flush=True)
    return accuracies


def batches(split: Split, size: int) -> Iterator[Split]:
    """In a new order."""
    for chosen in torch.randperm(len(split[1])).split(size):
        yield split[0][chosen], split[1][chosen]


def augmented(pictures: Tensor) -> Tensor:
    """Each batch rotated by a multiple of 90 degrees and perhaps mirrored."""
    pictures = pictures.rot90(int(torch.randint(4, ())), (2, 3))
    return pictures.flip(3) if torch.rand(()) < 0.5 else pictures


def even(images: Tensor, labels: Tensor) -> Split:
    """Without the last of an odd number, as mixup needs it."""
    return images[: len(labels) // 2 * 2], labels[: len(labels) // 2 * 2]


def normalised(pictures: Tensor) -> Tensor:
    """As timm's loader and the detector's preprocessor normalise."""
    mean, std = (
        torch.tensor(values).view(3, 1, 1)
        for values in ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
    )
    return (pictures.float() - mean) / std


@torch.no_grad()
def accuracy(model: torch.nn.Module, split: Split) -> float:
    """In per cent."""
    model.eval()
    right = sum(
        int((model(normalised(pictures)).argmax(1) == labels).sum())
        for pictures, labels in batches(split, 100)
    )
    return 100 * right / len(split[1])


def detect(args: argparse.Namespace, arm: str) -> list[dict[str, float]]:
    """Train a detector; its iterations and their AP."""
    config = with_data_root(Config.fromfile(DETECTOR), args.work_dir / 'data' / 'coco')
    config.work_dir = str(args.work_dir / arm)
    config.experiment_name = config.visualizer.name = arm  # mmengine keeps both by name
    config.randomness = dict(seed=args.seed)
    config.train_cfg.update(max_iters=args.iterations, val_interval=args.val_interval)
    config.param_scheduler[1].T_max = args.iterations
    config.model.backbone.window_size = WINDOW
    config.val_dataloader.dataset.pipeline[1].scale = (SCENE_SIZE, SCENE_SIZE)
    if arm == 'pretrained':
        checkpoint = str(args.work_dir / 'timm' / 'last.pth.tar')
        config.model.backbone.init_cfg = dict(type='Pretrained', checkpoint=checkpoint)
    Runner.from_cfg(config).train()
    _, metrics = read_logs([max(Path(config.work_dir).glob('*/vis_data/scalars.json'))])
    curves = {name: metrics[key] for name, key in METRICS.items()}
    steps = curves['AP'][0]
    return [
        dict(iteration=step, **{name: curves[name][1][number] for name in METRICS})
        for number, step in enumerate(steps)
    ]


def draw(results: dict, path: Path) -> None:
    """Accuracy of the classifier by epoch, AP of the detectors by iteration."""
    figure = Figure(figsize=(10, 3.5), layout='constrained')
    left, *others = figure.subplots(1, 3)
    epochs = range(1, len(results['accuracies']) + 1)
    left.plot(
        epochs,
        results['accuracies'],
        color=COLOURS['pretrained'],
        marker='o',
        markersize=3,
    )
    left.set(
        xlabel='epoch',
        ylabel='accuracy (%)',
        title='classifier of crops',
        ylim=(0, 100),
    )
    for axes, name in zip(others, METRICS, strict=True):
        for arm, label in ARMS.items():
            rows = results['detection'][arm]
            x, y = ([row[key] for row in rows] for key in ('iteration', name))
            axes.plot(x, y, color=COLOURS[arm], marker='o', markersize=3, label=label)
        axes.set(
            xlabel='iteration', ylabel=f'box {name} (0 to 1)', title='detector', ylim=0
        )
    others[0].legend(frameon=False)
    for axes in (left, *others):
        axes.spines[['top', 'right']].set_visible(False)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=130)


if __name__ == '__main__':
    sys.exit(main())
