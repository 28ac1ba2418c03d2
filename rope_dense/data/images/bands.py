"""Images of more than three channels or 8 bits: loading, augmentation, pixels without data.

``LoadBands`` gives float32 [H, W, n], which has every value of 16 bits, in the order of the file;
OpenCV's resizing, cropping and warping take any n for float32, but for INTER_AREA (``shrink``).

``LoadDeepImage`` scales pictures of 16 bits to 8 by their range: mmcv takes the upper 8 bits, so
that what a camera of 12 bits writes to a 16-bit file would be black.
"""

import random
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import cv2
import numpy as np
import torch
from mmcv.transforms import BaseTransform
from mmengine.registry import TRANSFORMS
from mmengine.structures import BaseDataElement

from ...utils.progress import progress
from ..mask_colours import ignored_label
from .band_files import BandFile, BandHeader, channel_files
from .headers import Header, check_pixel_count, read_header

CHANNELS_AT_A_TIME = 4  # of OpenCV's INTER_AREA
PERCENTILES = (2, 98)  # black and white of a picture
SAMPLES = 2**16  # pixels for the percentiles
WHOLE = 2**16 - 1  # white in a picture that uses all 16 bits
CLIPPED = 0.01  # of the values of a picture, above white, from which on it is said
# Of 255, below which a picture of 16 bits is of another range; of 12 bits in 16 it ends at 16.
DARK, VERY_DARK = 64, 17


@TRANSFORMS.register_module()
class LoadBands(BaseTransform):
    """Load an image of n channels from TIFF, .npy or other files of GDAL, as float32 [H, W, n].

    An array in ``img``, as inferencers give, takes the place of a file; its missing values are NaN.
    Sets ``img``, ``img_shape``, ``ori_shape``, and, if values are missing, ``no_data``: bool
    [H, W], True where all channels are.

    Args:
        channels: their number.
        bands: of a file that are its channels: numbers from 1, or names as the files describe
            them; a file without names has the channels alone, in this order. None for all bands.
        names: of the channels, each in a file of its own: ``channel_files``.
        dtype: of all files, such as 'uint16'; None for any.
        fill: values of each channel for missing pixels; None leaves NaN.
        show: three channels, from 0, that are red, green and blue where an image is drawn.
    """

    def __init__(
        self,
        channels: int,
        bands: Sequence[int] | Sequence[str] | None = None,
        names: Sequence[str] | None = None,
        dtype: str | None = None,
        fill: Sequence[float] | None = None,
        show: Sequence[int] = (0, 1, 2),
    ) -> None:
        self.channels = channels
        self.bands = bands
        self.names = names
        self.dtype = dtype
        self.fill = None if fill is None else np.asarray(fill, np.float32)
        self.show = tuple(show)

    def transform(self, results: dict) -> dict:
        given = results.get('img')
        if given is None:
            pixels = self.load(Path(results['img_path']))
        else:
            pixels = check_array(given, self.channels).astype(np.float32, copy=False)
        results['img'] = self.filled(pixels)
        results['img_shape'] = results['ori_shape'] = pixels.shape[:2]
        missing = no_data(pixels)
        if missing is not None:
            results['no_data'] = missing
        return results

    def load(self, path: Path) -> np.ndarray:
        """Pixels, float32 [H, W, n], of which missing ones are NaN.

        ValueError if a file cannot be read, or has other bands or pixels.
        """
        with ExitStack() as opened:
            files = []
            for name in self.files(path):
                files.append(opened.enter_context(closing(BandFile(name))))
            self.check_headers(path, {file.path: file.header for file in files})
            header = files[0].header
            check_pixel_count(path, header.height, header.width)
            return np.concatenate([self.part(file) for file in files], axis=2)

    def part(
        self,
        file: BandFile,
        rows: tuple[int, int] | None = None,
        columns: tuple[int, int] | None = None,
    ) -> np.ndarray:
        """``load`` of one of the files of an image; of a part of it, see ``BandFile.read``."""
        pixels, missing = file.read(self.numbers(file.path, file.header), rows, columns)
        pixels = pixels.astype(np.float32)
        pixels[missing] = np.nan
        return pixels

    def numbers(self, path: Path, header: BandHeader) -> list[int] | None:
        """The bands of a file that are channels, from 1; None for all. ValueError without them."""
        bands = self.bands
        is_named = any(header.names) or header.bands != self.channels
        if bands is None or (isinstance(bands[0], str) and not is_named):
            return None
        found = [header.find(band) for band in bands]
        if 0 in found:
            names = f' ({", ".join(header.names)})' if any(header.names) else ''
            absent = bands[found.index(0)]
            raise ValueError(
                f'{path}: {header.bands} bands{names}, there is no band {absent}'
            )
        return found

    def check_headers(self, path: Path, headers: Mapping[Path, BandHeader]) -> None:
        """Raise ValueError unless the files of an image have one size, all channels, ``dtype``."""
        number = 0
        for name, header in headers.items():
            if self.dtype not in (None, header.dtype):
                raise ValueError(
                    f'{name}: pixels of {header.dtype}, other images have {self.dtype}'
                )
            number += len(self.numbers(name, header) or range(header.bands))
        sizes = [f'{header.width} x {header.height}' for header in headers.values()]
        if len(set(sizes)) > 1:
            raise ValueError(
                f'{path}: files of its channels differ in size: {", ".join(sizes)}'
            )
        if number != self.channels:
            raise ValueError(f'{path}: {number} bands, expected {self.channels}')

    def filled(self, pixels: np.ndarray) -> np.ndarray:
        """Pixels [H, W, n] with the values for missing ones."""
        if self.fill is None:
            return pixels
        return np.where(np.isnan(pixels), self.fill, pixels)

    def files(self, path: Path) -> list[Path]:
        """The files of an image, see ``channel_files``."""
        return [path] if self.names is None else channel_files(path, self.names)


@TRANSFORMS.register_module()
class IgnoreNoData(BaseTransform):
    """After the loading of labels: masks have 255, and depth maps 0, where an image has no data."""

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

    Brightness is a factor, contrast a factor on the differences to the mean of the channel, noise
    is normal with a share of its deviation. Hue and saturation would mix channels.

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
        self.brightness = brightness
        self.contrast = contrast
        self.noise = noise
        self.prob = prob

    def transform(self, results: dict) -> dict:
        image = results['img']  # [H, W, n] float32
        if image.ndim == 2:  # OpenCV drops the axis of one channel
            image = image[..., None]
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
        factors = [random.uniform(*limits) for _ in range(image.shape[2])]
        return np.array(factors, np.float32)


def check_array(pixels: np.ndarray, channels: int | None = None) -> np.ndarray:
    """An array that is given as an image, [H, W, n] of n channels, or uint8 [H, W, 3] for None.

    Floats are rounded for None. ValueError, with type and shape, for what would be taken for
    another image.
    """
    shape, dtype = [*pixels.shape], pixels.dtype
    number = channels or 3
    if len(shape) == 3 and shape[2] == number and pixels.size:
        if dtype == np.uint8 or (channels and dtype.kind in 'uif'):
            return pixels
        is_known = dtype.kind == 'f' and pixels.min() >= 0
        if is_known and 1 < pixels.max() <= 255:
            return (pixels + 0.5).astype(np.uint8)
    kinds = (
        'numbers' if channels else 'uint8, or floats from 0 to 255: blue, green and red'
    )
    raise ValueError(
        f'array of {dtype} and shape {shape}: expected [height, width, {number}] of {kinds}'
    )


def no_data(image: np.ndarray) -> np.ndarray | None:
    """The pixels of an image [H, W, n] without any channel (NaN): bool [H, W], or None for none."""
    if image.dtype.kind != 'f':
        return None
    missing = np.isnan(image[..., 0])
    for channel in range(1, image.shape[2] if missing.any() else 1):
        missing &= np.isnan(image[..., channel])
    return missing if missing.any() else None


def drop_predictions_without_data(
    sample: BaseDataElement,
    missing: np.ndarray | None,
) -> None:
    """Drop predictions for pixels without data, bool [H, W] of ``no_data``, in place.

    Labels are ``ignored_label`` there, and depth is 0 (unknown). Of objects the centre has to have
    data; of those with masks half of the pixels.
    """
    if missing is None:
        return
    if 'pred_sem_seg' in sample:
        labels = sample.pred_sem_seg.data  # [1, H, W]
        number = len(sample.seg_logits.data) if 'seg_logits' in sample else 1
        labels[:, torch.from_numpy(missing).to(labels.device)] = ignored_label(number)
    if 'pred_depth_map' in sample:
        depth = sample.pred_depth_map.data
        depth[:, torch.from_numpy(missing).to(depth.device)] = 0
    if 'pred_instances' not in sample:
        return
    found = sample.pred_instances
    if 'masks' in found:
        masks = torch.as_tensor(found.masks).cpu().numpy().astype(bool)  # [N, H, W]
        has_data = [2 * (mask & missing).sum() <= mask.sum() for mask in masks]
    else:
        boxes = getattr(found.bboxes, 'tensor', found.bboxes).cpu().numpy()
        centres = boxes[:, :2]
        if boxes.shape[1] == 4:  # others are rotated: x, y, width, height, angle
            centres = (centres + boxes[:, 2:]) / 2
        height, width = missing.shape
        columns, rows = centres.astype(int).clip(0, [width - 1, height - 1]).T
        has_data = ~missing[rows, columns]
    sample.pred_instances = found[torch.tensor(has_data, dtype=torch.bool)]


def shrink(image: np.ndarray, width: int, height: int) -> np.ndarray:
    """An image [H, W, n] resized by the mean of areas, which OpenCV has for four channels only."""
    small = []
    for start in range(0, image.shape[2], CHANNELS_AT_A_TIME):
        group = np.ascontiguousarray(image[..., start : start + CHANNELS_AT_A_TIME])
        group = cv2.resize(group, (width, height), interpolation=cv2.INTER_AREA)
        small.append(group.reshape(height, width, -1))
    return np.concatenate(small, axis=2)


def picture(image: np.ndarray, show: Sequence[int] = (0, 1, 2)) -> np.ndarray:
    """A picture, uint8 [H, W, 3] of blue, green and red, of an image [H, W, n] of any values.

    The channels ``show`` are red, green and blue. The 2nd percentile of each is black and the 98th
    is white; NaN is black.
    """
    shown = np.asarray(image[..., [*show][::-1]], np.float32)
    flat = shown.reshape(-1, 3)
    few = flat[:: max(1, len(flat) // SAMPLES)]
    with warnings.catch_warnings():
        # All values of a channel are missing.
        warnings.simplefilter('ignore', RuntimeWarning)
        low, high = np.nanpercentile(few, PERCENTILES, axis=0)
    scaled = (shown - low) / np.maximum(high - low, 1e-6)
    return (np.nan_to_num(scaled).clip(0, 1) * 255 + 0.5).astype(np.uint8)


def find_load_bands(pipeline: Iterable[Mapping]) -> LoadBands | None:
    """The ``LoadBands`` of a test pipeline, or None."""
    for step in pipeline:
        if step['type'] == 'LoadBands':
            settings = {key: step[key] for key in step if key != 'type'}
            return LoadBands(**settings)
    return None


@TRANSFORMS.register_module()
class LoadDeepImage(BaseTransform):
    """After ``LoadImageFromFile``: 16 bits again, ``max_value`` and more become 255."""

    def __init__(self, max_value: int) -> None:
        self.max_value = max_value

    def transform(self, results: dict) -> dict:
        path = results.get('img_path')
        if path and read_header(Path(path)).is_deep:
            results['img'] = to_8_bits(read_deep(Path(path)), self.max_value)
        return results


def read_deep(path: Path) -> np.ndarray:
    """Pixels of 16 bits, BGR uint16 [H, W, 3], turned as EXIF says; ValueError if unreadable."""
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH
    pixels = None
    with suppress(cv2.error):
        pixels = cv2.imread(str(path), flags)
        if pixels is None:  # as of a TIFF that is turned by 90 degrees
            pixels = cv2.imdecode(np.fromfile(path, np.uint8), flags)
    if pixels is None or pixels.dtype != np.uint16:
        raise ValueError(f'{path}: OpenCV cannot read its 16 bits')
    return pixels


def to_8_bits(pixels: np.ndarray, max_value: int) -> np.ndarray:
    """uint16 to uint8: 0 to ``max_value`` becomes 0 to 255, rounded."""
    scaled = np.minimum(pixels, max_value).astype(np.float32) * (255 / max_value)
    return (scaled + 0.5).astype(np.uint8)


def read_white_value(headers: Mapping[Path, Header]) -> int | None:
    """The value that is white in 16-bit images; None without such images.

    It is what TIFF files say (MaxSampleValue), else the end of the bits that the brightest image
    uses: 4095 for 12 bits; 65535 for black ones. Images of 8 bits among them do not count.
    """
    deep = sorted(path for path, header in headers.items() if header.is_deep)
    largest = 0
    for path in progress(deep, 'values of 16-bit images'):
        if largest > WHOLE // 2:
            break  # all bits are used
        value = headers[path].max_value or int(read_deep(path).max())
        largest = max(largest, value)
    if not deep:
        return None
    return 2 ** largest.bit_length() - 1 or WHOLE


def range_text(path: Path, pixels: np.ndarray, max_value: int | None) -> str:
    """The line on a 16-bit picture whose range is not the run's; '' of others.

    Args:
        pixels: as they were read, uint8.
        max_value: the run's white, see ``LoadDeepImage``; None for 65535.
    """
    brightest = pixels.max()
    is_dark = brightest < (DARK if max_value is None else VERY_DARK)
    if not (is_dark or brightest == 255) or not read_header(path).is_deep:
        return ''
    values = read_deep(path)
    end = int(values.max())
    limit = max_value or WHOLE
    share = (values > limit).mean()
    if share < CLIPPED and not (is_dark and end):
        return ''
    return (
        f'{path}: 16 bits of another range than in training: its values end at {end}, {share:.0%} '
        f'of them are above {limit}, which is white: give own.max_value in the training\n'
    )
