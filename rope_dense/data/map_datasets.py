"""Data sets of images with masks or depth maps, for mmseg, and the steps of their pipelines.

Masks are of class numbers. Depth maps are for mmseg's ``DepthEstimator``: files, loading,
augmentation and evaluation; a depth of 0 is unknown: such pixels are neither trained nor
evaluated. H x W pixels.
"""

import contextlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from mmcv.transforms import BaseTransform
from mmengine.registry import DATASETS, METRICS, TRANSFORMS
from torch import Tensor

from .classes import IGNORED
from .depth_maps import known_depths, read_depth
from .images.copies import read_map
from .labels.files import part_of
from .labels.maps import DEPTH, MASKS
from .map_files import check_map_size, load_pairs
from .mask_labels import label_map, read_mask_labels

with contextlib.redirect_stdout(io.StringIO()):  # what is optional there is printed
    from mmseg.datasets import BaseSegDataset
    from mmseg.evaluation import DepthMetric

Range = tuple[float, float]


@DATASETS.register_module()
class ImageMaskDataset(BaseSegDataset):
    """Images and masks, from a list of pairs or matched by their names; see ``load_pairs``.

    ``LoadClassMask`` reads the masks. Pixels of the numbers in `void` get the label 255, which
    heads, evaluators and padding ignore by default.

    Args:
        values: number in the masks of each of ``metainfo.classes``; None for 0, 1, 2 ... without
            those in `void`.
        void: numbers in the masks that are neither trained nor evaluated. 255 is one, unless it is
            the value of a class.
        labelled: the classes that images are labelled for, by a part of their paths below
            ``data_root``; pixels of other classes get the label 255 there.
        **settings: of ``BaseSegDataset``, without its suffixes.
    """

    def __init__(
        self,
        values: Sequence[int] | None = None,
        void: Sequence[int] = (),
        labelled: Mapping[str, Sequence[str]] = MappingProxyType({}),
        **settings: Any,
    ) -> None:
        self.labelled = labelled
        self.values = values
        self.void = tuple(void)
        super().__init__(**settings)

    def load_data_list(self) -> list[dict]:
        images = self.data_prefix['img_path']
        masks = self.data_prefix['seg_map_path']
        classes = self.metainfo['classes']
        labels = label_map(classes, self.values, self.void)
        maps: dict[str | None, dict[float, int]] = {None: labels}
        for part, names in self.labelled.items():
            maps[part] = {}
            for number, label in labels.items():
                is_known = label < len(classes) and classes[label] in names
                maps[part][number] = label if is_known else IGNORED
        root = Path(self.data_root or '')
        found = []
        for image, mask in load_pairs(self.ann_file, images, masks, MASKS):
            part_labels = maps[part_of(Path(image), root, self.labelled)]
            about = dict(label_map=part_labels, reduce_zero_label=False, seg_fields=[])
            found.append(dict(img_path=str(image), seg_map_path=str(mask), **about))
        return found


@TRANSFORMS.register_module()
class LoadClassMask(BaseTransform):
    """Read ``seg_map_path`` as ``gt_seg_map``, uint8 [H, W], by the ``label_map`` of the data set.

    mmseg's ``LoadAnnotations`` for masks of any depth of bits, without a cast before the numbers
    are looked at: 300 is no class 44. An image without a mask, as inferencers give, stays as it is.
    Of a tile (``TiledDataset``) the window is read.
    ValueError for colours, numbers that are neither classes nor ignored, or another size.
    """

    def transform(self, results: dict) -> dict:
        if 'seg_map_path' not in results:
            return results
        labels = read_mask_labels(results)
        check_map_size(Path(results['seg_map_path']), labels.shape, results)
        results['gt_seg_map'] = labels
        results.setdefault('seg_fields', []).append('gt_seg_map')
        return results


@DATASETS.register_module()
class ImageDepthDataset(BaseSegDataset):
    """Images and depth maps, from a list of pairs or matched by their names; see ``load_pairs``.

    ``LoadDepth`` reads the depth maps. Settings are of ``BaseSegDataset``, without its suffixes.
    """

    METAINFO = dict(classes=(), palette=())

    def load_data_list(self) -> list[dict]:
        root = self.data_root or ''
        images = self.data_prefix.get('img_path', root)
        maps = self.data_prefix.get('depth_map_path', root)
        return [
            dict(
                img_path=str(image),
                depth_map_path=str(depth),
                seg_fields=[],
            )
            for image, depth in load_pairs(self.ann_file, images, maps, DEPTH)
        ]


@TRANSFORMS.register_module()
class LoadDepth(BaseTransform):
    """Read ``depth_map_path`` as ``gt_depth_map``, float32 [H, W] in the unit of the model.

    mmseg's ``LoadDepthAnnotation`` for any depth of bits and .npy, with unknown depths as 0. Of a
    tile (``TiledDataset``) the window is read.

    Args:
        unit: metres of a 1 in the file, such as 0.001 for millimetres in a 16-bit PNG.
    """

    def __init__(self, unit: float = 1.0) -> None:
        self.unit = unit

    def transform(self, results: dict) -> dict:
        path = Path(results['depth_map_path'])
        known = read_map(path, results, 'depth', lambda: known_depths(read_depth(path)))
        depth = known * self.unit
        check_map_size(path, depth.shape, results)
        results['gt_depth_map'] = depth
        results.setdefault('seg_fields', []).append('gt_depth_map')
        return results


@TRANSFORMS.register_module()
class CropBox(BaseTransform):
    """Cut the box (left, top, right, bottom) out of image and maps; the last two are exclusive."""

    def __init__(self, box: Sequence[int]) -> None:
        self.left, self.top, self.right, self.bottom = box

    def transform(self, results: dict) -> dict:
        for key in ('img', *results.get('seg_fields', ())):
            results[key] = results[key][self.top : self.bottom, self.left : self.right]
        results['img_shape'] = results['img'].shape[:2]
        return results


@TRANSFORMS.register_module()
class RandomColourGain(BaseTransform):
    """DINOv3's colours for depth: with a probability, gain x brightness x image ** gamma.

    Values from 0 to 255 are clipped to them; each channel has a gain of its own. Source:
    facebookresearch/dinov3, dinov3/eval/depth/transforms.py (``ColorAug``). Checked by its formula.

    Args:
        prob: of a change.
        gamma, brightness, gain: ranges of the factors.
    """

    def __init__(
        self,
        prob: float = 0.5,
        gamma: Range = (0.9, 1.1),
        brightness: Range = (0.75, 1.25),
        gain: Range = (0.9, 1.1),
    ) -> None:
        self.prob = prob
        self.gamma = gamma
        self.brightness = brightness
        self.gain = gain

    def transform(self, results: dict) -> dict:
        if np.random.rand() < self.prob:
            gamma = np.random.uniform(*self.gamma)
            brightness = np.random.uniform(*self.brightness)
            gain = np.random.uniform(*self.gain, size=3)  # of each channel
            image = results['img'].astype(np.float32) ** gamma * (brightness * gain)
            results['img'] = image.clip(0, 255).astype(np.float32)
        return results


@METRICS.register_module()
class ValidDepthMetric(DepthMetric):
    """mmseg's ``DepthMetric`` over the images that have a depth to compare with.

    Predictions are clipped to the range, as DINOv3's evaluation does. mmseg would count an image
    without valid pixels as not a number, and so all metrics. ValueError if all images are so.
    Checked on depths computed by hand in tests/data/test_depth.py.
    """

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Clip and compare; images without valid pixels are left out."""
        for sample in data_samples:
            truth = sample['gt_depth_map']['data'].squeeze()
            if self._get_eval_mask(truth).any():
                depth: Tensor = sample['pred_depth_map']['data']
                clipped = depth.clamp(self.min_depth_eval, self.max_depth_eval)
                compared = {**sample, 'pred_depth_map': dict(data=clipped)}
                super().process(data_batch, [compared])

    def compute_metrics(self, results: list) -> dict[str, Any]:
        """The mean of each metric over the images."""
        if not results:
            bounds = f'{self.min_depth_eval:g} and {self.max_depth_eval:g}'
            raise ValueError(f'no image has a depth between {bounds} to evaluate')
        return super().compute_metrics(results)
