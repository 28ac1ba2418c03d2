"""Images and masks of class numbers, of any file format, for mmseg."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmengine.registry import DATASETS

from .own_data import IGNORED, paired_files

with contextlib.redirect_stdout(io.StringIO()):  # what is optional there is printed
    from mmseg.datasets import BaseSegDataset


@DATASETS.register_module()
class ImageMaskDataset(BaseSegDataset):
    """mmseg's data set of two folders, with files of any suffix, matched by their names.

    Pixels of the classes in `void` get the label 255, which heads, evaluators and padding ignore
    without being told; the numbers of the other classes close up. So void may be any number of the
    masks, and no other setting has to know it. Images without a mask are left out.

    Args:
        void: class numbers in the masks that are neither trained nor evaluated; `metainfo.classes`
            has the others, in the order of their numbers.
        **settings: of ``BaseSegDataset``, without its suffixes.

    Raises:
        ValueError: no image has a mask of its name.
    """

    def __init__(self, void: Sequence[int] = (), **settings: Any) -> None:
        self.void = tuple(void)
        super().__init__(**settings)

    def load_data_list(self) -> list[dict]:
        images, masks = (Path(self.data_prefix[name]) for name in ('img_path', 'seg_map_path'))
        label_map = closed_up(len(self.metainfo['classes']), self.void)
        return [
            dict(
                img_path=str(image),
                seg_map_path=str(mask),
                label_map=label_map,
                reduce_zero_label=self.reduce_zero_label,
                seg_fields=[],
            )
            for image, mask in paired_files(images, masks)
        ]


def closed_up(num_classes: int, void: Sequence[int]) -> dict[int, int] | None:
    """From a label of the masks to the model's, for labels that change; None if none does."""
    numbers = [number for number in range(num_classes + len(void)) if number not in void]
    moved = {old: new for new, old in enumerate(numbers) if old != new}
    return {**dict.fromkeys(void, IGNORED), **moved} or None
