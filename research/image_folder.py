"""Images in a folder for each class, with the labels and the protocol of ImageNet's test sets.

(mmpretrain and torchvision have parts of it; neither is required here.)
"""

import re
from collections.abc import Sequence
from pathlib import Path

import mmengine
import numpy as np
import torch
from mmcv.transforms import BaseTransform
from mmengine.dataset import BaseDataset
from mmengine.evaluator import BaseMetric
from mmengine.registry import DATASETS, METRICS, TRANSFORMS
from mmengine.structures import BaseDataElement
from PIL import Image

SUFFIXES = {'.jpg', '.jpeg', '.png', '.bmp', '.webp', '.tif', '.tiff', '.ppm'}


@DATASETS.register_module()
class ClassFolderDataset(BaseDataset):
    """The images of DATA_ROOT/CLASS/..., each with the class indices that count as right.

    The index of a class is, with ``class_index``, what that says for the name of its folder;
    without it the number that is its name if all folders are numbers (ImageNet-V2: 0 to 999), or
    its place among the sorted names (ImageNet).

    Args:
        data_root: folder of the class folders.
        class_index: see ``read_class_index``.
        real_labels: JSON list with a list of class indices for each image, the "ReaL" labels of
            Beyer et al., "Are we done with ImageNet?", 2020. The number at the end of an image's
            name, from 1, is its place. Images without a label are left out.
        pipeline: transforms.
        serialize_data: see mmengine's ``BaseDataset``.

    Raises:
        ValueError: no image, or a folder or image that the index or the labels do not have.
    """

    def __init__(
        self,
        data_root: str,
        class_index: str | None = None,
        real_labels: str | None = None,
        pipeline: Sequence[dict] = (),
        serialize_data: bool = True,
    ) -> None:
        self.class_index, self.real_labels = class_index, real_labels
        super().__init__(
            data_root=data_root,
            pipeline=list(pipeline),
            serialize_data=serialize_data,
            test_mode=True,
        )

    def load_data_list(self) -> list[dict]:
        labels = label_folders(Path(self.data_root), self.class_index)
        self._metainfo = dict(
            classes=tuple(labels),
            class_indices=tuple(labels.values()),
            is_indexed=self.class_index is not None or all(map(str.isdecimal, labels)),
        )
        data = [
            dict(img_path=str(path), labels=[label])
            for name, label in labels.items()
            for path in sorted((Path(self.data_root) / name).rglob('*'))
            if path.suffix.lower() in SUFFIXES
        ]
        if self.real_labels:
            data = relabel(data, mmengine.load(self.real_labels))
        if not data:
            raise ValueError(
                f'{self.data_root}: no (labelled) image in folders of classes; looked for '
                f'{", ".join(sorted(SUFFIXES))}'
            )
        return data


def label_folders(root: Path, class_index: str | None) -> dict[str, int]:
    """From the name of each class folder to the index of its class, by index."""
    names = class_folders(root)
    if class_index is not None:
        indices = read_class_index(Path(class_index))
        if unknown := [name for name in names if name not in indices]:
            raise ValueError(
                f'{class_index} has no class {", ".join(unknown[:5])}, of {len(unknown)} such '
                f'folders in {root}'
            )
        labels = {name: indices[name] for name in names}
    elif all(name.isdecimal() for name in names):
        labels = {name: int(name) for name in names}
    else:
        labels = {name: index for index, name in enumerate(names)}
    return dict(sorted(labels.items(), key=lambda item: item[1]))


def class_folders(root: Path) -> list[str]:
    """Names of the folders in a folder, sorted; ValueError if there is none."""
    names = sorted(path.name for path in root.iterdir() if path.is_dir())
    if not names:
        raise ValueError(f'{root}: contains no folder of a class')
    return names


def read_class_index(path: Path) -> dict[str, int]:
    """From the name of a class (a WordNet ID) to its index.

    Args:
        path: a JSON file {"0": ["n01440764", "tench"], ...}; a text file with a name first in each
            line; or a folder of class folders (ImageNet's validation set): their sorted names.
    """
    if path.is_dir():
        names = class_folders(path)
    elif path.suffix == '.json':
        return {name[0]: int(index) for index, name in mmengine.load(path).items()}
    else:
        names = [
            line.split()[0] for line in path.read_text().splitlines() if line.strip()
        ]
    return {name: index for index, name in enumerate(names)}


def relabel(data: list[dict], labels: list[list[int]]) -> list[dict]:
    """The images that have labels, with these labels."""
    result = []
    for item in data:
        number = re.search(r'(\d+)$', Path(item['img_path']).stem)
        place = int(number[1]) if number else 0
        if not 1 <= place <= len(labels):
            raise ValueError(
                f'{item["img_path"]}: the name does not end in a number from 1 to {len(labels)}, '
                'its place in the labels (as in ILSVRC2012_val_00000001.JPEG)'
            )
        if labels[place - 1]:
            result.append(dict(item, labels=labels[place - 1]))
    return result


@TRANSFORMS.register_module()
class ResizeCentreCrop(BaseTransform):
    """Resize the shorter side to ``scale / crop_ratio`` and cut the middle out.

    Bicubic with antialiasing by PIL, sides and offsets rounded as torchvision's Resize and
    CenterCrop do on PIL images, which the published evaluations use.

    Args:
        scale: (width, height) to return, equal.
        crop_ratio: side of the crop over the shorter side of the resized image, up to 1.

    Raises:
        ValueError: a scale that is no square, or another ratio.
    """

    def __init__(self, scale: tuple[int, int], crop_ratio: float) -> None:
        if len(scale) != 2 or scale[0] != scale[1]:
            raise ValueError(
                f'classifiers are tested on squares, got {scale[1]}x{scale[0]}'
            )
        if not 0 < crop_ratio <= 1:
            raise ValueError(f'crop_ratio must be over 0 and up to 1, got {crop_ratio}')
        self.side, self.crop_ratio = scale[0], crop_ratio

    def transform(self, results: dict) -> dict:
        image = Image.fromarray(
            np.ascontiguousarray(results['img'])
        )  # resizing is by channel
        short, sides = int(self.side / self.crop_ratio), image.size
        width, height = (
            short if side == min(sides) else int(short * side / min(sides))
            for side in sides
        )
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        left, top = round((width - self.side) / 2), round((height - self.side) / 2)
        results['img'] = np.asarray(
            image.crop((left, top, left + self.side, top + self.side))
        )
        return results


@TRANSFORMS.register_module()
class PackClassInputs(BaseTransform):
    """The image as a tensor [3, height, width], its labels in a data sample."""

    def transform(self, results: dict) -> dict:
        image = torch.from_numpy(results['img'].copy()).permute(2, 0, 1)
        sample = BaseDataElement(metainfo=dict(img_path=results['img_path']))
        sample.labels = torch.tensor(results['labels'])
        return dict(inputs=image, data_samples=sample)


@METRICS.register_module()
class TopKAccuracy(BaseMetric):
    """Per cent of images with a right class among the k highest scores.

    Args:
        topk: values of k.
        subset: let the classes of the data set compete only, as ImageNet-A and -R are tested.

    Raises:
        ValueError: at the first image, for classes that the head does not have.
    """

    default_prefix = 'accuracy'

    def __init__(self, topk: Sequence[int] = (1, 5), subset: bool = False) -> None:
        super().__init__()
        self.topk, self.subset = topk, subset

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        for sample in data_samples:
            scores = sample['scores'].cpu()
            self.check_classes(sample['labels'].tolist(), len(scores))
            if self.subset:
                indices = list(self.dataset_meta['class_indices'])
                masked = torch.full_like(scores, -torch.inf)
                masked[indices] = scores[indices]
                scores = masked
            ranked = scores.topk(min(max(self.topk), len(scores))).indices
            right = torch.isin(ranked, sample['labels'].cpu())
            self.results.append([bool(right[:k].any()) for k in self.topk])

    def check_classes(self, labels: list[int], num_classes: int) -> None:
        """Raise ValueError unless the head has the classes of the folders and of an image."""
        indices = self.dataset_meta['class_indices']
        if (highest := max(*indices, *labels)) >= num_classes:
            raise ValueError(
                f'the images have class {highest} (from 0), but the head has {num_classes} classes'
            )
        if not (self.dataset_meta['is_indexed'] or len(indices) == num_classes):
            raise ValueError(
                f'{len(indices)} folders of classes, but the head has {num_classes} classes: say '
                'which they are with --class-index or class_index (and --subset or subset=True of '
                'the evaluator, if only they compete)'
            )

    def compute_metrics(self, results: list[list[bool]]) -> dict[str, float]:
        means = 100 * np.mean(results, axis=0)
        return {
            f'top{k}': float(mean) for k, mean in zip(self.topk, means, strict=True)
        }
