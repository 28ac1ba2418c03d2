"""The distance on the ground of a pixel, for positions in metres."""

import json
import math
import warnings
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from mmcv.transforms import BaseTransform
from mmengine.dataset import Compose

from ..utils.validation import checked_number
from .images.band_files import check_rasterio

if find_spec('rasterio'):
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning


class GroundDistance(BaseTransform):
    """Add ``ground_distance``, metres on the ground of a pixel of the input, to an image.

    It stands after the step that resizes, of which a pipeline has one, and before the step that
    packs, whose ``meta_keys`` name it. The first that is known counts: ``gsd`` of the image in a
    COCO file, the transform of a GeoTIFF in a projected system, ``default``. ``file`` names an
    image in memory.

    Args:
        coco: a COCO file whose images have ``gsd``, found by the last part of ``file_name``.
        default: metres of a pixel of a file; None refuses images of which nothing is known.

    Raises:
        ValueError: an image of unknown distance.
    """

    def __init__(
        self, coco: str | Path | None = None, default: float | None = None
    ) -> None:
        self.known = {} if coco is None else coco_distances(Path(coco))
        self.default = default
        self.file: Path | None = None
        if default is not None:
            checked_number('GroundDistance: default', default, above=0)

    def transform(self, results: dict) -> dict:
        """Add the distance."""
        path = results.get('img_path') or self.file
        distance = self.default
        if path is not None:
            known = self.known.get(Path(path).name)
            distance = known or file_distance(str(path)) or distance
        if distance is None:
            raise ValueError(
                f'{path}: no distance on the ground: give images[].gsd in the COCO file of '
                'GroundDistance, a GeoTIFF in a projected system, or GroundDistance.default'
            )
        width, height = results.get('scale_factor', (1.0, 1.0))
        pixel = distance * results.get('shrink', 1)  # of a large image, smaller by this
        results['ground_distance'] = pixel / math.sqrt(width * height)
        return results


def name_file(pipeline: Compose, file: Path | None) -> bool:
    """Tell a pipeline the file of the next image, or None; return whether it has a use for it."""
    steps = [step for step in pipeline.transforms if isinstance(step, GroundDistance)]
    for step in steps:
        step.file = file
    return bool(steps)


def coco_distances(path: Path) -> dict[str, float]:
    """``gsd`` of the images of a COCO file by their names; ValueError for two of one name."""
    found: dict[str, float] = {}
    for image in json.loads(path.read_text(encoding='utf-8'))['images']:
        name = Path(image['file_name']).name
        if 'gsd' not in image:
            continue
        distance = checked_number(f'{path}: gsd of {name}', image['gsd'], above=0)
        if found.setdefault(name, distance) != distance:
            raise ValueError(f'{path}: two images {name} differ in gsd: rename one')
    return found


@lru_cache(4096)
def file_distance(path: str) -> float | None:
    """Metres of a pixel of a GeoTIFF; None without a projected system.

    ValueError for a TIFF without rasterio, which would tell.
    """
    if not path.lower().endswith(('.tif', '.tiff')):
        return None
    check_rasterio(path)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', NotGeoreferencedWarning)
        with rasterio.open(path) as file:
            system, area = file.crs, abs(file.transform.determinant)
    if system is None or not system.is_projected:
        return None
    _, metres = system.linear_units_factor
    return math.sqrt(area) * metres
