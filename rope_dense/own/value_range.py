"""Reading of images in the pipelines of configs/own: value range, and OpenCV or Pillow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..datasets.images.band_files import ARRAY, band_header
from ..datasets.images.deep import image_backend, is_deep, range_of
from ..datasets.labels.files import IMAGE_SUFFIXES, list_files
from ..datasets.labels.image_headers import BANDS
from ..datasets.pairs import DEPTH, MASKS, match
from ..utils.config_parts import nodes

KINDS = {'seg_map_path': MASKS, 'depth_map_path': DEPTH}  # that may be in the folder of the images
PICTURE_BANDS = 4  # red, green, blue and alpha
WHOLE = 2**16 - 1  # white in an image that uses all 16 bits


def fit_range(cfg: dict, max_value: int | None) -> None:
    """Let all pipelines scale 16-bit images by their range, where they do not use all bits.

    Images that OpenCV cannot read are read by Pillow.

    Args:
        max_value: value that becomes white, or None for the range of the training images.

    Raises:
        ValueError: images have more bands than pictures.
    """
    files = image_files(cfg['train_dataloader']['dataset'])
    check_picture(files[:1])
    white, backend = max_value or range_of(files), image_backend(files)
    if backend is not None:
        white = white or (WHOLE if any(map(is_deep, files)) else None)  # Pillow cuts off at 255
    parts = [cfg[f'{name}_dataloader']['dataset']['pipeline'] for name in ('train', 'val', 'test')]
    for pipeline in (*parts, cfg.get('tta_pipeline') or []):
        types = [step['type'].rpartition('.')[2] for step in pipeline]
        if white is not None and 'LoadImageFromFile' in types:
            place = types.index('LoadImageFromFile') + 1
            pipeline.insert(place, dict(type='LoadDeepImage', max_value=white))
        for _, step in nodes(pipeline):
            name = str(step.get('type')).rpartition('.')[2]
            if white is not None and name == 'AffineMosaic':
                step['max_value'] = white
            if backend is not None and name in ('LoadImageFromFile', 'AffineMosaic'):
                step['imdecode_backend'] = backend
    if white is not None:
        cfg['custom_imports']['imports'].append('rope_dense.datasets.images.deep')
        said = [cfg.get('own_data'), f'16-bit images are scaled: {white} is white']
        cfg['own_data'] = '; '.join(filter(None, said))


def check_picture(files: Sequence[Path]) -> None:
    """Raise ValueError for files with more than the four bands of a picture, or of arrays."""
    for file in files:
        if file.suffix.lower() in BANDS and (find_spec('rasterio') or file.suffix == ARRAY):
            header = band_header(file)
            if header.bands > PICTURE_BANDS or file.suffix.lower() == ARRAY:
                raise ValueError(
                    f'{file}: {header.bands} bands of {header.dtype}, no picture: give '
                    f'own.channels={header.bands}, or names or numbers of bands (docs/channels.md)'
                )


def image_files(dataset: Mapping[str, Any]) -> list[Path]:
    """The image files in the folder of a data set; none if it is not there."""
    prefix, root = dataset['data_prefix'], Path(dataset.get('data_root') or '')
    for name, kind in KINDS.items():
        if name in prefix:
            kind = replace(kind, channels=tuple(dataset.get('channels') or ()))
            found = match(root / prefix['img_path'], root / prefix[name], kind)
            return [*found.images.values()]
    return list_files(root / (prefix.get('img') or ''), IMAGE_SUFFIXES)
