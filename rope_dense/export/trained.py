"""Write a trained model to a file, compared with the model, or to a repository of the hub."""

import math
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.utils import to_2tuple
from torch import Tensor

from ..project.building import building
from ..project.checks.data import build_dataset, patch_size
from ..project.checks.recipe import part_text
from ..project.contents import max_aspect_ratio, stored_classes
from ..project.hub import push_to_hub, save_for_hub
from ..project.load import Options, find_model
from ..project.model import Colour, build_model, classes_and_colours, mask_numbers
from ..project.ready import ready
from ..utils.config_parts import size_steps
from ..utils.errors import UsageError
from ..utils.progress import show_elapsed
from ..utils.sizes import ImageSize
from ..utils.validation import parse_size
from .compare import check_comparable, compare_file
from .exporter import DTYPES, OPSET, Dynamic, check_export_path, export

Precision = Literal['fp32', 'fp16', 'bf16', 'int8']


def export_model(
    config: str | Path,
    checkpoint: str | Path | None,
    out: str | Path,
    *,
    size: str = 'dynamic',
    batch: int | Dynamic = 'dynamic',
    dtype: Precision = 'fp32',
    resize: bool = False,
    rgb: bool = False,
    top: int | None = None,
    score: float | None = None,
    opset: int = OPSET,
    unchecked: bool = False,
    cfg_options: Options = (),
) -> dict:
    """Write a trained model to a file, run that, and print its differences from the model.

    Args:
        config, checkpoint, cfg_options: see ``find_model``.
        out: NAME.onnx or NAME.pt2.
        size: of the images, '800x1344' (height and width in pixels), '640', or 'dynamic'.
        resize: images of any size to the size of the test pipeline, in the file.
        batch, dtype, rgb, top, score, opset: see ``export``.
        unchecked: accept a file that cannot be compared, or is wrong in a program.

    Returns:
        The metadata, see ``export``.

    Raises:
        UsageError, CheckpointError, ValueError: the model cannot be read or exported so, or the
            file does not compute what the model does.
    """
    out = Path(out)
    check_export_path(out)
    if not unchecked:
        check_comparable(out, dtype)
    precisions = {name: dtype for dtype, name in DTYPES.items()}
    pixels: ImageSize | Dynamic = 'dynamic'
    if size != 'dynamic':
        pixels = to_2tuple(parse_size(size))
    cfg, weights = find_model(config, checkpoint, cfg_options)
    model, classes, colours = trained_model(cfg, weights)
    print(f'{out}: the model is traced and compared, which takes minutes', flush=True)
    with show_elapsed(f'{out}: traced'):
        metadata = export(
            model,
            out,
            size=pixels,
            batch=batch,
            dtype=precisions[dtype],
            classes=classes,
            colours=colours,
            resize=resize_of(cfg, patch_size(model)),
            resize_inside=resize,
            rgb=rgb,
            top=top,
            score=score,
            opset=opset,
        )
    for name, value in metadata.items():
        text = part_text(value) if name in ('colours', 'meaning') else value
        print(f'{name:15} {text}')
    size_text = f'{out.stat().st_size / 1e6:.1f} MB'
    print(f'{out}: {size_text}; the same in {out.with_suffix(".json")}')
    too_large = size_advice_text(metadata)
    if too_large:
        print(f'{out}: {too_large}')
    pictures = []
    try:
        pictures = pictures_of(cfg)
    except (UsageError, OSError) as error:
        print(
            f'{out}: Not compared on images of the run: {error}; rope-dense test RUN '
            f'--data-root FOLDER --file {out} compares them'
        )
    with show_elapsed(f'{out}: compared with the model'):
        try:
            for line in compare_file(out, model, metadata, pictures):
                print(f'{out}: {line}', flush=True)
        except UsageError as error:
            if not unchecked:
                raise
            print(f'WARNING: {error}')
    return metadata


def pictures_of(cfg: Config) -> list[Tensor]:
    """Two images [C, H, W] that the run is tested on, as its pipeline gives them to the model."""
    loader = cfg.get('test_dataloader')
    if loader is None:
        return []
    dataset = build_dataset(cfg, 'test_dataloader', loader.dataset)
    places = {0, len(dataset) // 2} if len(dataset) else ()
    with building('test_dataloader'):
        return [dataset[place]['inputs'] for place in sorted(places)]


def trained_model(
    cfg: Config, checkpoint: str | None
) -> tuple[BaseModel, Sequence[str] | None, Sequence[Colour] | None]:
    """The model with its weights; names and colours of its classes, if the checkpoint has them.

    Raises:
        UsageError, CheckpointError: they cannot be read, or do not fit.
    """
    if checkpoint is None:  # of several tasks, which has its weights
        return build_model(cfg), None, None
    loops = ['test'] if cfg.get('test_dataloader') else []
    used = ready(cfg, *loops, weights=checkpoint, has_runner=False, has_data=False)
    model = used.model
    stored = used.checkpoint
    classes = stored_classes(stored).get('classes')
    if not classes:  # a model of the hub has its classes in the config
        classes = (cfg.get('metainfo') or {}).get('classes')
    if classes is None or cfg.get('test_dataloader') is None:
        return model, classes, None
    return model, classes, classes_and_colours(cfg, stored)[1]


def size_advice_text(metadata: dict) -> str:
    """Advice if the file takes no images as small as the test pipeline's; '' if it takes them."""
    if metadata['resize'] is None or metadata['size'] != 'dynamic':
        return ''
    width, height = metadata['resize']['scale']
    rows, columns = metadata['smallest_size']
    if height >= rows and width >= columns:
        return ''
    return (
        f'takes images from {rows} x {columns} pixels on, and the test pipeline has {height} x '
        f'{width}: give --size {height}x{width} for a file of one size'
    )


def resize_of(cfg: Config, patch: int) -> dict | None:
    """The size of the test pipeline: of its first Resize; None without one. See ``Resize``."""
    loader = cfg.get('test_dataloader') or {}
    pipeline = (loader.get('dataset') or {}).get('pipeline') or ()
    for _, step, _ in size_steps(pipeline):
        if step.type.endswith('Resize'):
            break
    else:
        return None
    if isinstance(step.scale, (int, float)):
        return None
    ratio = max_aspect_ratio(pipeline, patch)
    return dict(
        scale=list(step.scale),
        keep_ratio=bool(step.get('keep_ratio')),
        antialias=step.get('backend') == 'pillow',
        ratio=None if math.isinf(ratio) else ratio,
    )


def push_model(
    config: str,
    checkpoint: str | None,
    name: str,
    *,
    license: str | None = None,
    metric: Sequence[tuple[str, float]] = (),
    private: bool = False,
    folder: str | Path | None = None,
    cfg_options: Options = (),
) -> str:
    """Upload a trained model to the hub, or write its files.

    Args:
        config, checkpoint, cfg_options: see ``find_model``.
        name: of the repository, OWNER/NAME.
        license, metric: for the card, see ``save_for_hub``.
        private: make the repository private.
        folder: write the files here, and do not upload.

    Returns:
        The address of the commit, or the folder and its files.

    Raises:
        UsageError, CheckpointError, ValueError: the model cannot be read or stored so.
    """
    cfg, weights = find_model(config, checkpoint, cfg_options)
    if weights is None:
        raise UsageError('each of several tasks is stored by its own config')
    used = ready(cfg, 'test', weights=weights, has_runner=False, has_data=False)
    classes, colours = classes_and_colours(cfg, used.checkpoint)
    numbers = mask_numbers(cfg)
    masks = []
    if numbers is not None:
        of_classes = list(range(len(classes)))
        masks = numbers[[*of_classes, -1]].tolist()
    with TemporaryDirectory() as temporary:
        written = save_for_hub(
            cfg,
            used.model.state_dict(),
            folder or temporary,
            name=name,
            classes=classes,
            colours=colours,
            license=license,
            metrics=dict(metric),
            masks=masks,
        )
        if folder is None:
            return push_to_hub(written, name, private=private)
        files = sorted(path.name for path in written.iterdir())
        return f'{written}: {", ".join(files)}'
