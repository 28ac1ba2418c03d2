"""Does a student of its own sliding windows help at larger sizes? Street scenes, small models.

    OMP_NUM_THREADS=1 python docs/research/sliding_study/run.py --data-root DIR --out DIR

Several such processes can share the work by --ways and --positions.
The models are those of ../scaling_study, trained at 160 x 120; missing ones are trained. A row of
results.csv is added as soon as it is known, and not measured again.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from mmseg.models import EncoderDecoder
from torch import Tensor

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / 'scaling_study'))

import plan  # noqa: E402

import run as scaling_study  # noqa: E402
from rope_dense.models.unlabelled import SlidingDistiller, unexplained  # noqa: E402
from rope_dense.training import train  # noqa: E402

SEEDS = 0, 1, 2
ARMS = ('finer', 'axial'), ('finer', 'mixed'), ('extent', 'mixed')
FACTORS = 1.0, 1.5, 2.0, 3.0
SCENES = slice(None, None, 2)  # of the scaling study's 51
BATCH, EPOCHS, EVERY = 4, 1, 40  # 92 iterations
COLUMNS = ('way', 'position', 'arm', 'seed', 'factor', 'mIoU', 'distance', 'seconds')
Features = Callable[[Tensor], Tensor]  # of images


def study_args(root: Path, out: Path) -> argparse.Namespace:
    return argparse.Namespace(data_root=root.resolve(), out=out, iterations=None)


def trained(way: str, position: str, args: argparse.Namespace) -> Path:
    """The weights of a model of the scaling study, which is trained if it is missing."""
    model = plan.Run(0, way, 'vit', position)
    file = scaling_study.weights_path(args.out, model)
    if not file.exists():
        scaling_study.train(model, args)
    return file


def settings_of(way: str, position: str, args: argparse.Namespace) -> dict:
    """The config of a model of the scaling study."""
    model = plan.Run(0, way, 'vit', position)
    return scaling_study.config_of(model, args.data_root).model.to_dict()


def build(way: str, position: str, args: argparse.Namespace) -> EncoderDecoder:
    with MODELS.switch_scope_and_registry('mmseg') as models:
        built = models.build(settings_of(way, position, args))
    built.load_state_dict(torch.load(trained(way, position, args)))
    return built.eval()


def adapt(way: str, position: str, seed: int, args: argparse.Namespace) -> Path:
    """The backbone after an adaptation to its sliding windows, by the public command's function."""
    weights = trained(way, position, args)
    out = args.out / f'adapted-{way}-{position}-{seed}'
    backbone = settings_of(way, position, args)['backbone']
    backbone |= dict(
        _delete_=True,
        lora=dict(rank=8),
        init_cfg=dict(type='Pretrained', checkpoint=str(weights)),
    )
    own = dict(
        data_root=str(args.data_root),
        train='images/training',
        teacher='sliding',
        weights=str(weights),
        backbone='small',
        size=plan.SIZE[0],
        batch_size=BATCH,
        epochs=EPOCHS,
        report=False,
    )
    options: dict[str, object] = {
        'model.backbone': backbone,
        'model.window': list(plan.SIZE),
        'val_dataloader.dataset.every': EVERY,
        'randomness.seed': seed,
    }
    if not (out / 'backbone.safetensors').is_file():
        train('adapt', own=own, cfg_options=options, work_dir=str(out), overwrite=True)
    return out / 'backbone.safetensors'


@torch.no_grad()
def teach(model: EncoderDecoder, teacher: Features, factor: float) -> list[Tensor]:
    """The teacher's maps of all scenes."""
    maps = []
    for image, _ in SCENE_LIST:
        pixels = scaling_study.resized(image, factor).permute(2, 0, 1)
        data = model.data_preprocessor(dict(inputs=[pixels]), training=False)
        maps.append(teacher(data['inputs']))
    return maps


def load_adapted(model: EncoderDecoder, file: Path) -> None:
    from safetensors.torch import load_file

    model.backbone.load_state_dict(load_file(file))


@torch.no_grad()
def measure(
    model: EncoderDecoder, features: Features, targets: list[Tensor], factor: float
) -> tuple[float, float, float]:
    """mIoU, the distance of the features from the teacher's, and seconds an image."""
    matrix = torch.zeros(scaling_study.NUM_CLASSES, scaling_study.NUM_CLASSES)
    matrix = matrix.long()
    distances = []
    seconds = 0.0
    for (image, label), target in zip(SCENE_LIST, targets, strict=True):
        pixels = scaling_study.resized(image, factor).permute(2, 0, 1)
        data = model.data_preprocessor(dict(inputs=[pixels]), training=False)
        start = time.process_time()
        found = features(data['inputs'])
        seconds += time.process_time() - start
        distances.append(unexplained(found, target).item())
        scores = model.decode_head.forward([found])
        scores = F.interpolate(scores, label.shape, mode='bilinear')
        predicted = scores[0].argmax(0)
        valid = label != scaling_study.IGNORED
        index = label[valid].long() * scaling_study.NUM_CLASSES + predicted[valid]
        counts = index.bincount(minlength=scaling_study.NUM_CLASSES**2)
        matrix += counts.view_as(matrix)
    number = len(SCENE_LIST)
    return (
        scaling_study.mean_iou(matrix),
        sum(distances) / number,
        seconds / number,
    )


def sliding(model: EncoderDecoder, backbone: dict) -> SlidingDistiller:
    """The teacher of the adaptation: its windows are those of the training."""
    distiller = MODELS.build(
        dict(
            type='SlidingDistiller',
            backbone=backbone,
            window=list(plan.SIZE),
            smallest=plan.SIZE[0],
            data_preprocessor=dict(type='BaseDataPreprocessor'),
        )
    )
    distiller.teacher.load_state_dict(model.backbone.state_dict())
    return distiller.eval()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--data-root', type=Path, required=True)
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--seeds', type=int, nargs='+', default=SEEDS)
    parser.add_argument('--ways', nargs='+', default=('finer', 'extent'))
    parser.add_argument('--positions', nargs='+', default=('axial', 'mixed'))
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    args = study_args(given.data_root, given.out.resolve())
    SCENE_LIST.extend(scaling_study.load_scenes(args.data_root)[SCENES])
    results = HERE / 'results.csv'
    known = set[tuple[str, ...]]()
    if results.is_file():
        with results.open() as stream:
            known = {tuple(row)[:5] for row in csv.reader(stream)}

    def row(
        key: Sequence[object],
        model: EncoderDecoder,
        features: Features,
        teacher: Features,
        targets: dict[float, list[Tensor]],
    ) -> None:
        for factor in FACTORS:
            names = tuple(map(str, [*key, factor]))
            if names in known:
                continue
            if factor not in targets:
                targets[factor] = teach(model, teacher, factor)
            values = measure(model, features, targets[factor], factor)
            is_new = not results.is_file()
            with results.open('a', newline='') as stream:
                rounded = [f'{value:.4f}' for value in values]
                csv.writer(stream).writerows([COLUMNS] * is_new + [(*names, *rounded)])

    for way, position in ARMS:
        if way not in given.ways or position not in given.positions:
            continue
        model = build(way, position, args)
        backbone = settings_of(way, position, args)['backbone']
        distiller = sliding(model, backbone)
        targets = dict[float, list[Tensor]]()

        def teacher(images: Tensor, by: SlidingDistiller = distiller) -> Tensor:
            return by.stitched(images)[0]

        def single(images: Tensor, by: EncoderDecoder = model) -> Tensor:
            return by.backbone(images)[0]

        row((way, position, 'sliding', 0), model, teacher, teacher, targets)
        for name in ('none', 'linear', 'none+log'):
            model.backbone.set_rope_scaling(plan.SCALINGS[name])
            row((way, position, name, 0), model, single, teacher, targets)
        model.backbone.set_rope_scaling(None)
        for seed in given.seeds:
            load_adapted(model, adapt(way, position, seed, args))
            row((way, position, 'adapted', seed), model, single, teacher, targets)


SCENE_LIST: list[scaling_study.Scene] = []

if __name__ == '__main__':
    main()
