"""Reading of pictures in the pipelines of configs/own: value range, and OpenCV or Pillow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2

from ..datasets.images.deep import white_value
from ..datasets.images.headers import Header
from ..datasets.images.pictures import check_picture
from ..datasets.labels.objects import Report
from ..utils.config_parts import nodes

WHOLE = 2**16 - 1  # white in an image that uses all 16 bits
PAGES = 'image of several pages, of which the first is taken'


def survey_pictures(headers: Mapping[Path, Header], max_value: int | None) -> dict[str, Any]:
    """What the pipelines need to know of the images, as JSON.

    Args:
        headers: of all images of training and validation.
        max_value: value that becomes white, or None for the range of the images.

    Returns:
        ``white``: value that becomes white in 16-bit images, or None; ``backend``: 'pillow' if
        OpenCV cannot read some images that Pillow can, such as .heic, else None; ``notes``: list of
        (kind, file) for the report.

    Raises:
        ValueError: an image is no picture, see ``check_picture``.
    """
    for path, header in headers.items():
        check_picture(path, header)
    by_opencv = {'JPEG', 'MPO', 'PNG', 'TIFF', 'BMP', 'WEBP'}
    others = [
        path
        for path, header in headers.items()
        if header.compression == 'odd tiles'
        or (header.format not in by_opencv and not cv2.haveImageReader(str(path)))
    ]
    white, is_deep = max_value, any(header.is_deep for header in headers.values())
    if is_deep:
        white = white or white_value(headers)
        white = white or (WHOLE if others else None)  # Pillow cuts off at 255
    notes = [[PAGES, path.name] for path, header in headers.items() if header.pages > 1]
    return dict(white=white, backend='pillow' if others else None, notes=notes)


def fit_range(cfg: dict, survey: Mapping[str, Any]) -> None:
    """Let all pipelines scale 16-bit images by their range, where they do not use all bits.

    Images that OpenCV cannot read are read by Pillow.

    Args:
        survey: of ``survey_pictures``.
    """
    white, backend, report = survey['white'], survey['backend'], Report()
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
    for kind, place in survey['notes']:
        report.note(kind, place)
    said = [cfg.get('own_data'), *report.lines()]
    if white is not None:
        cfg['custom_imports']['imports'].append('rope_dense.datasets.images.deep')
        said.append(f'16-bit images are scaled: {white} is white')
    if said[1:]:
        cfg['own_data'] = '; '.join(filter(None, said))
