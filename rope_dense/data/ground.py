"""The distance on the ground of a pixel, for positions in metres."""

import math
import os
import warnings
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from mmcv.transforms import BaseTransform
from mmengine.dataset import Compose

from ..utils.validation import checked_number
from .images.band_files import check_rasterio
from .labels.coco_files import gsd_of, load_coco
from .labels.files import errors_at, finite_numbers

if find_spec('rasterio'):
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

NONE = ('', 'false', 'none', 'null')  # of distances in labels
LEAST = 1e-4  # metres of a pixel: less is in degrees


class GroundDistance(BaseTransform):
    """Add ``ground_distance``, metres on the ground of a pixel of the input, to an image.

    It stands after the step that resizes, of which a pipeline has one, and before the step that
    packs, whose ``meta_keys`` name it. The first that is known counts: ``gsd`` of the image in a
    COCO file, the transform of a GeoTIFF in a projected system, ``default``. ``file`` names an
    image in memory.

    Args:
        coco: (file, folder of its images) of COCO files; may be gone where there is a default.
        default: metres of a pixel of a file; None refuses images of which nothing is known.

    Raises:
        ValueError: an image of unknown distance, or a ``gsd`` that is none.
    """

    def __init__(
        self, coco: Sequence[Sequence[str]] = (), default: float | None = None
    ) -> None:
        self.known: dict[str, float] = {}
        for path, folder in coco:
            if default is None or Path(path).is_file():
                self.read_labels(path, folder)
        self.default = default
        self.file: Path | None = None
        if default is not None:
            checked_number('GroundDistance: default', default, above=0)

    def find(self, path: str | Path) -> float | None:
        """Metres of a pixel of a file as its labels or the file say; None if neither does."""
        return self.known.get(os.path.realpath(path)) or file_distance(str(path))

    def read_labels(self, path: str, folder: str) -> None:
        """Take the distances of the images of a COCO file that has some."""
        for image in load_coco(Path(path)).content['images']:
            gsd = gsd_of(image)
            if str(gsd).strip().lower() in NONE:
                continue
            file = os.path.realpath(Path(folder, image['file_name']))
            with errors_at(f'{image.get("labels", path)}, image {file}'):
                (number,) = finite_numbers([gsd], 'gsd')
                self.known[file] = checked_number('gsd in metres', number, LEAST)

    def transform(self, results: dict) -> dict:
        """Add the distance."""
        path = results.get('img_path') or self.file
        distance = (path and self.find(path)) or self.default
        if distance is None:
            raise ValueError(
                f'{path}: no distance on the ground: give images[].gsd in a COCO file of '
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
