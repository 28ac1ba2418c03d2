"""Images of any number of channels in pipelines: loading, augmentation, and pictures of them.

Pixels are float32 [H, W, n], which has every value of 16 bits, in the order of the file; OpenCV's
resizing, cropping and warping take any n for float32, but for INTER_AREA (``shrink``).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np
from mmcv.transforms import BaseTransform
from mmengine.registry import TRANSFORMS

from .band_files import read_bands

Part = tuple[np.ndarray, np.ndarray | None]  # pixels, and where they are missing
CHANNELS_AT_A_TIME = 4  # of OpenCV's INTER_AREA
PERCENTILES = (2, 98)  # black and white of a picture
SAMPLES = 2**16  # pixels for the percentiles


@TRANSFORMS.register_module()
class LoadBands(BaseTransform):
    """Load an image of n channels from TIFF, .npy or other files of GDAL, as float32 [H, W, n].

    An array of the n channels that is in ``img`` already, as inferencers give, takes the place of a
    file; its missing values are NaN. Sets ``img``, ``img_shape``, ``ori_shape``, and, if values are
    missing, ``no_data``: bool [H, W], True where all channels are.

    Args:
        channels: their number.
        bands: numbers of the bands of a file that are its channels, from 1; None for all bands.
        names: of the channels, each in a file of its own. The path of an image has the first name,
            at its last place; the paths of the other files have the other names there.
        dtype: of all files, such as 'uint16'; None for any.
        fill: values of each channel for missing pixels; None leaves NaN.
        show: three channels, from 0, that are red, green and blue of a picture; not used here, but
            by what draws the images.
    """

    def __init__(
        self,
        channels: int,
        bands: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
        dtype: str | None = None,
        fill: Sequence[float] | None = None,
        show: Sequence[int] = (0, 1, 2),
    ) -> None:
        self.channels, self.bands, self.names, self.dtype = channels, bands, names, dtype
        self.fill = None if fill is None else np.asarray(fill, np.float32)
        self.show = tuple(show)

    def transform(self, results: dict) -> dict:
        if 'img' in results:
            pixels, missing = self.given(results['img'])
        else:
            pixels, missing = self.read(Path(results['img_path']))
        results['img'] = pixels
        results['img_shape'] = results['ori_shape'] = pixels.shape[:2]
        if missing is not None and missing.any():
            results['no_data'] = missing
        return results

    def read(self, path: Path) -> Part:
        """Pixels, float32 [H, W, n], and where all channels are missing: bool [H, W], or None.

        Raises:
            ValueError: the file, which is named, cannot be read or has other bands or pixels.
        """
        parts = [self.chosen(file, *read_bands(file)) for file in self.files(path)]
        return self.joined(path, parts)

    def joined(self, path: Path, parts: Sequence[Part]) -> Part:
        """``read`` of the channels in each file of an image."""
        if len({pixels.shape[:2] for pixels, _ in parts}) > 1:
            sizes = ', '.join(f'{x.shape[1]} x {x.shape[0]}' for x, _ in parts)
            raise ValueError(f'{path}: the files of its channels differ in size: {sizes}')
        pixels = np.concatenate([pixels for pixels, _ in parts], axis=2)
        if pixels.shape[2] != self.channels:
            raise ValueError(f'{path}: {pixels.shape[2]} bands, expected {self.channels}')
        if all(missing is None for _, missing in parts):
            return pixels.astype(np.float32), None
        missing = np.concatenate(
            [np.zeros(x.shape, bool) if m is None else m for x, m in parts], axis=2
        )
        return self.filled(pixels, missing)

    def given(self, pixels: np.ndarray) -> Part:
        """``read`` of an array [H, W, n]."""
        if pixels.ndim != 3 or pixels.shape[2] != self.channels:
            raise ValueError(
                f'the image has shape {[*pixels.shape]}, expected [height, width, {self.channels}]'
            )
        return self.filled(pixels, np.isnan(pixels))

    def filled(self, pixels: np.ndarray, missing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``read`` of pixels and of missing ones, both [H, W, n]."""
        values = np.float32(np.nan) if self.fill is None else self.fill
        return np.where(missing, values, pixels.astype(np.float32)), np.all(missing, axis=2)

    def chosen(self, path: Path, pixels: np.ndarray, missing: np.ndarray | None) -> Part:
        """The channels among the bands of one file."""
        self.check_type(path, str(pixels.dtype))
        if self.bands is None:
            return pixels, missing
        if max(self.bands) > pixels.shape[2]:
            raise ValueError(f'{path}: {pixels.shape[2]} bands, there is no band {max(self.bands)}')
        places = [band - 1 for band in self.bands]
        return pixels[..., places], None if missing is None else missing[..., places]

    def check_type(self, path: Path, dtype: str) -> None:
        """Raise ValueError for a file of another type than all have."""
        if self.dtype not in (None, dtype):
            raise ValueError(f'{path}: pixels of {dtype}, other images have {self.dtype}')

    def files(self, path: Path) -> list[Path]:
        """The files of an image.

        Raises:
            ValueError: ``names`` are given, and the path does not have the first.
        """
        if self.names is None:
            return [path]
        start, first, end = str(path).rpartition(self.names[0])
        if not first:
            raise ValueError(f'{path}: has no {self.names[0]!r}, the name of the first channel')
        return [Path(f'{start}{name}{end}') for name in self.names]


@TRANSFORMS.register_module()
class IgnoreNoData(BaseTransform):
    """After ``LoadBands`` and the loading of labels: no labels where an image has no data.

    Masks have 255 there, and depth maps 0.
    """

    def transform(self, results: dict) -> dict:
        if 'no_data' in results:
            for key, value in (('gt_seg_map', 255), ('gt_depth_map', 0)):
                if key in results:
                    labels = results[key].copy()
                    labels[results['no_data']] = value
                    results[key] = labels
        return results


@TRANSFORMS.register_module()
class BandJitter(BaseTransform):
    """Brightness, contrast and noise of each channel on its own, each with a probability.

    For channels that are no colours: hue and saturation, which mix them, are left out. Brightness
    is a factor, contrast a factor on the differences to the mean of the channel, noise is normal
    with a share of the standard deviation of the channel.

    Args:
        brightness, contrast: ranges of the factors.
        noise: largest share.
        prob: of each change.
    """

    def __init__(
        self,
        brightness: Sequence[float] = (0.875, 1.125),
        contrast: Sequence[float] = (0.75, 1.25),
        noise: float = 0.05,
        prob: float = 0.5,
    ) -> None:
        self.brightness, self.contrast, self.noise = brightness, contrast, noise
        self.prob = prob

    def transform(self, results: dict) -> dict:
        image = results['img']  # [H, W, n] float32
        if random.random() < self.prob:
            image = image * self.factors(self.brightness, image)
        if random.random() < self.prob:
            mean = image.mean((0, 1), np.float64).astype(np.float32)
            image = mean + (image - mean) * self.factors(self.contrast, image)
        if random.random() < self.prob:
            scale = image.std((0, 1), np.float64) * random.uniform(0, self.noise)
            noise = np.random.standard_normal(image.shape).astype(np.float32)
            image = image + noise * scale.astype(np.float32)
        results['img'] = image
        return results

    def factors(self, limits: Sequence[float], image: np.ndarray) -> np.ndarray:
        """Draw a factor for each channel: [n]."""
        return np.array([random.uniform(*limits) for _ in range(image.shape[2])], np.float32)


def shrink(image: np.ndarray, width: int, height: int) -> np.ndarray:
    """An image [H, W, n] resized by the mean of areas, which OpenCV has for four channels only."""
    groups = range(0, image.shape[2], CHANNELS_AT_A_TIME)
    parts = [
        cv2.resize(
            np.ascontiguousarray(image[..., start : start + CHANNELS_AT_A_TIME]),
            (width, height),
            interpolation=cv2.INTER_AREA,
        ).reshape(height, width, -1)
        for start in groups
    ]
    return np.concatenate(parts, axis=2)


def picture(image: np.ndarray, show: Sequence[int] = (0, 1, 2)) -> np.ndarray:
    """A picture, uint8 [H, W, 3] of blue, green and red, of an image [H, W, n] of any values.

    The 2nd percentile of each shown channel is black and the 98th is white.

    Args:
        show: channels that are red, green and blue.
    """
    shown = np.asarray(image[..., [*show][::-1]], np.float32)
    flat = shown.reshape(-1, 3)
    few = flat[:: max(1, len(flat) // SAMPLES)]
    low, high = np.nanpercentile(few, PERCENTILES, axis=0)
    scaled = (shown - low) / np.maximum(high - low, 1e-6)
    return (np.nan_to_num(scaled).clip(0, 1) * 255 + 0.5).astype(np.uint8)


def bands_in(pipeline: Iterable[Mapping]) -> LoadBands | None:
    """The ``LoadBands`` of a test pipeline, or None."""
    step = next((step for step in pipeline if step['type'] == 'LoadBands'), None)
    return LoadBands(**{key: step[key] for key in step if key != 'type'}) if step else None
