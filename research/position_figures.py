"""The figures of the command analyze-positions."""

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import mmcv
import torch
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from torch import Tensor

from rope_dense.backbones.base import Backbone
from rope_dense.checkpoints import load_pretrained
from rope_dense.data.images.sources import find_sources
from rope_dense.measure.results import csv_text
from rope_dense.project.building import checked_device
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model
from rope_dense.utils.disk import atomic_write, atomic_write_text
from rope_dense.utils.errors import UsageError
from rope_dense.utils.validation import checked_integer

from . import attention_statistics, patch_frequencies, plots, tables
from .classifier import classifier_config
from .image_folder import ResizeCentreCrop

OF_FREQUENCIES = {
    'fourier': (tables.fourier_rows, plots.draw_fourier),
    'decay': (tables.decay_rows, plots.draw_decay),
    'angles': (tables.angle_rows, plots.draw_angles),
}
OF_ATTENTION = {
    'distance': plots.DISTANCE,
    'entropy': plots.ENTROPY,
}  # columns and their labels
COMMON = ('label', 'images', 'size', 'block', 'stride')  # columns of both
INITIAL = 'initial'
Figures = dict[
    str, tuple[tables.Rows, Callable[[Path], None]]
]  # the rows, and what draws them


@dataclass(frozen=True)
class Choice:
    """The part of a model that is drawn.

    Attributes:
        label: name of the model in the figures.
        sizes: sides of the images; frequencies are those for the first.
        block, head: of the frequencies.
    """

    label: str
    sizes: tuple[int, ...]
    block: int
    head: int


def draw_positions(
    checkpoint: str,
    *,
    config: str | None = None,
    model: str | None = None,
    rope: str | None = None,
    figures: Sequence[str] = (),
    images: Path | None = None,
    max_images: int | None = None,
    sizes: Sequence[int] = (224,),
    crop_ratio: float = 1.0,
    block: int = 0,
    head: int = 0,
    label: str | None = None,
    overlay: Sequence[Path] = (),
    device: str | None = 'cpu',
    cfg_options: Iterable[str] | Mapping[str, object] = (),
    work_dir: str | None = None,
) -> list[str]:
    """Draw the frequencies of a model's position embedding, and distance and entropy of attention.

    Args:
        checkpoint, rope, model: see ``classifier_config``; with a config the weights of its model
            or backbone, or 'initial' for random ones.
        config, cfg_options: of another model than a published classifier, see ``load_config``.
        figures: of ``OF_FREQUENCIES`` and ``OF_ATTENTION``; all that are possible without any.
        images, max_images: a folder, and the number of the first of its images.
        sizes, block, head, label: see ``Choice``.
        crop_ratio: see ``ResizeCentreCrop``.
        overlay: folders with figures of other models.
        device: None for a GPU if there is one.
        work_dir: the figures are in its folder positions/.

    Returns:
        The names of the figures.

    Raises:
        UsageError, CheckpointError, ValueError: the model, its weights or images cannot be used.
    """
    if {*figures} & {*OF_ATTENTION} and images is None:
        raise UsageError('--distance and --entropy need --images FOLDER')
    sources = [] if images is None else find_sources(images)[:max_images]
    sides = [checked_integer('--sizes', side, 1) for side in sizes]
    resize = [ResizeCentreCrop((side, side), crop_ratio) for side in sides]
    place = checked_device(device)
    name = Path(config).stem if config else re.split('[/:]', checkpoint)[-1]
    if config is None:
        loaded, folder = (
            published_classifier(checkpoint, model, rope, cfg_options),
            f'work_dirs/{name}',
        )
    else:
        loaded, folder = configured_model(config, cfg_options, work_dir)
    if checkpoint != INITIAL:
        load_pretrained(loaded.backbone, checkpoint)
    loaded.to(place).eval()
    choice = Choice(label or name, (*sides,), block, head)
    chosen = choose_figures(figures, choice, loaded.backbone, with_images=bool(sources))
    others = read_overlays(
        overlay, choice.label, [x for x in chosen if x in OF_ATTENTION]
    )
    least = min(sides)  # refused here if it is less than a patch
    loaded.backbone.patch_embed(torch.zeros(1, 3, least, least, device=place))
    finished: Figures = {}
    if {*chosen} & {*OF_FREQUENCIES}:
        finished |= analyze_frequencies(choice, loaded.backbone, chosen)
    if others:
        paths = [source.path for source in sources]
        finished |= analyze_attention(choice, loaded, paths, resize, others)
    out = Path(work_dir or folder) / 'positions'
    for figure, (rows, draw) in finished.items():
        write_figure(out / figure, rows, draw)
    print(
        f'Written to {out}: {", ".join(f"{figure}.png, .csv" for figure in finished)}'
    )
    return [*finished]


def published_classifier(
    checkpoint: str,
    name: str | None,
    rope: str | None,
    cfg_options: Iterable[str] | Mapping,
) -> BaseModel:
    """The classifier of a checkpoint, without weights; an error if it is none or needs a config."""
    if cfg_options:
        raise UsageError('--cfg-options need the --config that they change')
    if checkpoint == INITIAL:
        raise UsageError('initial weights need the --config of the model')
    config = classifier_config(checkpoint, rope, name)['model']
    if config['backbone']['type'] == 'RoPESwin':
        config['backbone']['window_size'] = 'auto'  # as eval-classification
    return MODELS.build(config)


def configured_model(
    config: str, cfg_options: Iterable[str] | Mapping[str, object], work_dir: str | None
) -> tuple[BaseModel, str]:
    """The model of a config with random weights, and its work folder; or UsageError."""
    cfg = load_config(config, cfg_options, work_dir)
    torch.manual_seed(0)
    model = random_model(cfg)
    if not isinstance(model.backbone, Backbone):
        raise UsageError(
            f'{config}: the backbone is a {type(model.backbone).__name__}, of another package'
        )
    return model, cfg.work_dir


def choose_figures(
    figures: Sequence[str], choice: Choice, backbone: Backbone, *, with_images: bool
) -> list[str]:
    """The figures to make: those that are given, else all that are possible.

    Raises:
        UsageError, ValueError: there is no such block or head, or it has no rotary embedding.
    """
    number = len(backbone.ordered_blocks)
    attn = backbone.ordered_blocks[
        checked_integer('--block', choice.block, 0, number - 1)
    ].attn
    checked_integer('--head', choice.head, 0, attn.num_heads - 1)
    of_frequencies = [name for name in figures if name in OF_FREQUENCIES]
    if attn.rope is None and of_frequencies:
        raise UsageError(
            f'--{of_frequencies[0]}: block {choice.block} has no rotary embedding'
        )
    if figures:
        return [name for name in (*OF_FREQUENCIES, *OF_ATTENTION) if name in figures]
    names = [] if attn.rope is None else [*OF_FREQUENCIES]
    names += [*OF_ATTENTION] if with_images else []
    if not names:
        raise UsageError('the model has no rotary embedding: give --images FOLDER')
    return names


def analyze_frequencies(
    choice: Choice, backbone: Backbone, chosen: Sequence[str]
) -> Figures:
    """The rows and the drawing of each figure that is made of frequencies."""
    freqs = patch_frequencies(
        backbone, choice.block, (choice.sizes[0],) * 2
    )  # [2, h or 1, P]
    name = f'{choice.label}, block {choice.block}'
    head = (
        f'{name}, head {choice.head}',
        freqs[:, choice.head if freqs.shape[1] > 1 else 0],
    )
    finished: Figures = {}
    for figure, (make, draw) in OF_FREQUENCIES.items():
        if figure in chosen:
            rows = make(*(head if figure != 'angles' else (name, freqs)))
            finished[figure] = rows, partial(draw, rows)
    return finished


def analyze_attention(
    choice: Choice,
    model: BaseModel,
    paths: Sequence[Path],
    resize: Sequence[ResizeCentreCrop],
    others: dict[str, tables.Rows],
) -> Figures:
    """Measure attention, print it, and return the rows and the drawing of each of its figures.

    Args:
        model: with a ``data_preprocessor``.
        paths: of the images.
        resize: what makes an image of each size.
        others: rows of other models for each figure.
    """
    rows: tables.Rows = []
    for side, crop in zip(choice.sizes, resize, strict=True):
        images = (load_image(path, crop, model) for path in paths)
        statistics = attention_statistics(model.backbone, images)
        rows += tables.attention_rows(choice.label, len(paths), side, statistics)
        print(
            f'{side} x {side} pixels',
            *map(statistics_text, rows[-len(statistics) :]),
            sep='\n',
            flush=True,
        )
    finished: Figures = {}
    for name, of_others in others.items():
        columns = OF_ATTENTION[name]
        measured = [{key: row[key] for key in (*COMMON, *columns)} for row in rows]
        finished[name] = (
            measured,
            partial(plots.draw_attention, measured + of_others, columns),
        )
    return finished


def load_image(path: Path, resize: ResizeCentreCrop, model: BaseModel) -> Tensor:
    """[1, 3, side, side] as the model takes it, read as for eval-classification."""
    image = mmcv.imread(str(path), 'color_ignore_orientation', backend='pillow')
    image = torch.from_numpy(resize(dict(img=image))['img'].copy()).permute(2, 0, 1)
    return model.data_preprocessor(dict(inputs=[image]), False)['inputs']


def read_overlays(
    folders: Sequence[Path], label: str, names: Sequence[str]
) -> dict[str, tables.Rows]:
    """The rows of other models for the figures ``names``.

    Args:
        label: of the model itself.

    Raises:
        UsageError: a folder has none, or the label of another; or there is nothing to overlay.
    """
    if folders and not names:
        raise UsageError(
            '--overlay is for --distance and --entropy, which need --images FOLDER'
        )
    overlays: dict[str, tables.Rows] = {name: [] for name in names}
    labels = [label]
    for folder in folders:
        for name in names:
            numbers = {'size': int, 'block': int} | dict.fromkeys(
                OF_ATTENTION[name], float
            )
            try:
                with open(
                    folder / f'{name}.csv', encoding='utf-8', newline=''
                ) as stream:
                    rows = list(csv.DictReader(stream))
                rows = [
                    row | {key: to(row[key]) for key, to in numbers.items()}
                    for row in rows
                ]
                label = rows[0]['label']
            except (OSError, LookupError, ValueError, TypeError) as error:
                raise UsageError(
                    f'--overlay {folder}: no {name}.csv that this tool wrote ({error})'
                ) from error
            overlays[name] += rows
        if label in labels:
            raise UsageError(
                f'--overlay {folder}: the label {label!r} is taken, give --label'
            )
        labels.append(label)
    return overlays


def statistics_text(row: dict) -> str:
    """The statistics of a block in words."""
    return (
        f'  block {row["block"]:<3} distance {row["distance_patches"]:6.2f} patches '
        f'({row["distance_px"]:6.1f} px)  entropy {row["entropy_nats"]:5.2f} nats'
    )


def write_figure(path: Path, rows: tables.Rows, draw: Callable[[Path], None]) -> None:
    """Write ``path``.csv and .png; each is complete or as it was."""
    atomic_write_text(path.with_suffix('.csv'), csv_text(rows))
    with atomic_write(path.with_suffix('.png')) as partial_file:
        draw(partial_file)
