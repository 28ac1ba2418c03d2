"""Images with masks of class numbers, for mmseg. H x W pixels."""

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmcv.transforms import BaseTransform
from mmengine.registry import DATASETS, TRANSFORMS

from .labels.maps import MASKS
from .map_files import check_map_size, load_pairs
from .mask_labels import label_map, read_mask_labels

with contextlib.redirect_stdout(io.StringIO()):  # what is optional there is printed
    from mmseg.datasets import BaseSegDataset


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
        **settings: of ``BaseSegDataset``, without its suffixes.
    """

    def __init__(
        self, values: Sequence[int] | None = None, void: Sequence[int] = (), **settings: Any
    ) -> None:
        self.values, self.void = values, tuple(void)
        super().__init__(**settings)

    def load_data_list(self) -> list[dict]:
        images, masks = self.data_prefix['img_path'], self.data_prefix['seg_map_path']
        labels = label_map(self.metainfo['classes'], self.values, self.void)
        common = dict(label_map=labels, reduce_zero_label=False)
        return [
            dict(img_path=str(image), seg_map_path=str(mask), seg_fields=[], **common)
            for image, mask in load_pairs(self.ann_file, images, masks, MASKS)
        ]


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
