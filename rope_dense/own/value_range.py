"""Own pictures: the value range of 16 bits, and OpenCV or Pillow."""

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
from .augment import all_pipelines, kind, say

WHOLE = 2**16 - 1  # white in an image that uses all 16 bits
PAGES = 'image of several pages, of which the first is taken'
BY_OPENCV = {'JPEG', 'MPO', 'PNG', 'TIFF', 'BMP', 'WEBP'}


def survey_pictures(headers: Mapping[Path, Header], max_value: int | None) -> dict[str, Any]:
    """The values of the pictures that the pipelines need, as JSON.

    Args:
        max_value: value that becomes white, or None for the range of the images.

    Returns:
        ``white``: value that becomes white in 16-bit images, or None; ``backend``: 'pillow' if
        OpenCV cannot read some images that Pillow can, such as .heic, else None; ``notes``: list of
        (kind, file) for the report.

    Raises:
        ValueError: an image is no picture, see ``check_picture``.
    """
    needs_pillow, is_deep = False, any(header.is_deep for header in headers.values())
    for path, header in headers.items():
        check_picture(path, header)
        is_known = header.format in BY_OPENCV or cv2.haveImageReader(str(path))
        needs_pillow |= header.compression == 'odd tiles' or not is_known
    white = max_value
    if is_deep:
        white = white or white_value(headers)
        white = white or (WHOLE if needs_pillow else None)  # Pillow cuts off at 255
    notes = [[PAGES, path.name] for path, header in headers.items() if header.pages > 1]
    return dict(white=white, backend='pillow' if needs_pillow else None, notes=notes)


def fit_range(cfg: dict, survey: Mapping[str, Any]) -> None:
    """Let all pipelines scale 16-bit images by their range, and read by Pillow where OpenCV cannot.

    Args:
        survey: of ``survey_pictures``.
    """
    white, backend, report = survey['white'], survey['backend'], Report()
    for pipeline in all_pipelines(cfg):
        names = [*map(kind, pipeline)]
        if white is not None and 'LoadImageFromFile' in names:
            place = names.index('LoadImageFromFile') + 1
            pipeline.insert(place, dict(type='LoadDeepImage', max_value=white))
        for _, step in nodes(pipeline):
            if white is not None and kind(step) == 'AffineMosaic':
                step['max_value'] = white
            if backend is not None and kind(step) in ('LoadImageFromFile', 'AffineMosaic'):
                step['imdecode_backend'] = backend
    for note, place in survey['notes']:
        report.note(note, place)
    say(cfg, *report.lines())
    if white is not None:
        cfg['custom_imports']['imports'].append('rope_dense.datasets.images.deep')
        say(cfg, f'16-bit images are scaled: {white} is white')
