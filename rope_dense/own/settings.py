"""The settings of configs/own: a dataclass for each kind of task."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar, get_type_hints

from ..utils.similar import did_you_mean
from ..utils.validation import check_choice, check_integer, check_number
from .augment import AUGMENTS, FLIPS
from .backbones import WORDS, OwnBackbone, find_backbone
from .channel_settings import check_channels, names_of
from .text import read_setting

LEAST_DEPTH = 0.001  # metres: the first bin of the depth head


@dataclass(frozen=True)
class Own:
    """The settings of all tasks.

    Attributes:
        data_root: folder of the data set.
        train, val: of objects an annotation file in COCO's format, else [folder of images, folder
            of masks or depth maps], below `data_root`; None to look for the common names.
        backbone: 'tiny' (Perception Encoder), 'small', 'base' or 'large' (LingBot-Vision), or any
            architecture of ``RoPEViT``.
        weights: file or hub name of the backbone's weights, 'default' for the published ones of
            these words, or None to start from random values.
        epochs, batch_size: passes over the data; images of one GPU in an iteration.
        gpus: processes that train together; None for as many as the launcher started, else 1.
        size: shorter side of a test image in pixels; other sizes follow from it. Instance
            segmentation: side of the square that training crops to. Real time: side of the square
            that images are stretched to, or scaled to fit (``OwnRealtime.keep_ratio``).
        lr: learning rate, or None for the recipe's times the square root of the ratio of the
            batches (Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient
            Algorithms", 2022); from random values 5e-4.
        val_epochs: evaluate, and save, after so many epochs.
        patience: evaluations without progress after which training ends, or None.
        ema: evaluate and save a moving average of the weights.
        report: write the report of the best checkpoint after training (docs/report.md).
        max_value: value that is white in 16-bit images, such as 4095; None for the range that the
            files name or use (``range_of``).
        channels: of images that are not red, green and blue alone: their number, names of bands, or
            the numbers of the bands to use, from 1 (docs/channels.md).
        separate_files: whether each channel is a file of its own, whose path has the channel's name
            where the path of the image has the name of the first.
        mean, std: of each channel; None to compute them from a sample of the training images.
        show: three channels, or one, to draw as red, green and blue: names, or numbers from 1 among
            `channels`; None for the channels of these names, else the first three.
        augment: 'published' (the recipe's), 'light' (flips and small changes of size) or 'none'.
        flip: 'horizontal', 'vertical', 'both' or 'none'; None for the one of `augment`.
    """

    data_root: str
    train: str | Sequence[str] | None = None
    val: str | Sequence[str] | None = None
    backbone: str = 'small'
    weights: str | None = 'default'
    epochs: int = 50
    batch_size: int = 2
    gpus: int | None = None
    size: int = 640
    lr: float | None = None
    val_epochs: int = 1
    patience: int | None = None
    ema: bool = False
    report: bool = True
    max_value: int | None = None
    channels: int | Sequence[int | str] | None = None
    separate_files: bool = False
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    show: Sequence[int | str] | None = None
    augment: str = 'published'
    flip: str | None = None

    multiple: ClassVar[int] = 1  # of pixels: what the size must be

    def __post_init__(self) -> None:
        for name in ('epochs', 'batch_size', 'val_epochs'):
            check_integer(f'own.{name}', getattr(self, name), 1)
        check_integer('own.size', self.size, 32)
        if rest := self.size % self.multiple:
            low = self.size - rest
            raise ValueError(
                f'own.size={self.size}: give a multiple of {self.multiple}, such as {low} or '
                f'{low + self.multiple}'
            )
        if self.weights == 'default' and find_backbone(self.backbone).weights is None:
            raise ValueError(
                f'own.weights: name the weights of {self.backbone} (docs/checkpoints.md), or None '
                f'for random values; only {", ".join(WORDS)} have weights of their own'
            )
        check_choice('own.augment', self.augment, AUGMENTS)
        check_choice('own.flip', self.flip, (None, 'none', *FLIPS))
        for name, least in (('patience', 1), ('max_value', 255)):
            if (value := getattr(self, name)) is not None:
                check_integer(f'own.{name}', value, least)
        check_channels(self)
        if self.lr is not None:
            check_number('own.lr', self.lr, above=0)
        object.__setattr__(self, 'data_root', os.path.expanduser(self.data_root))
        object.__setattr__(self, 'gpus', number_of_processes(self.gpus))

    @property
    def root(self) -> Path:
        return Path(self.data_root)

    @property
    def channel_names(self) -> list[str]:
        """A name for each of ``channels``; none of pictures."""
        return names_of(self.channels)

    @property
    def separate_names(self) -> tuple[str, ...]:
        """The names of channels that are files of their own; none of other images."""
        return tuple(self.channel_names) if self.separate_files else ()

    @property
    def vit(self) -> OwnBackbone:
        return find_backbone(self.backbone)

    @property
    def batch(self) -> int:
        """Images of all processes in an iteration."""
        return self.batch_size * (self.gpus or 1)


@dataclass(frozen=True)
class OwnObjects(Own):
    """The settings for boxes and masks of objects, in addition to ``Own``.

    Attributes:
        classes: names to use, or None for all of the labels.
        negatives: train on images without objects, too.
        format: a key of ``datasets.labels.folders.FORMATS``; None to recognise it.
        partial: train although more than a tenth of the objects cannot be used, or most are cut.
    """

    classes: Sequence[str] | None = None
    negatives: bool = True
    format: str | None = None
    partial: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.classes)
        for name in ('train', 'val'):
            if not isinstance(given := getattr(self, name), str | None):
                raise ValueError(f'own.{name}={given!r}: give the annotation file, below data_root')


@dataclass(frozen=True)
class OwnRealtime(OwnObjects):
    """The settings of configs/own/realtime*.py, see ``OwnObjects``.

    Attributes:
        mosaic: whether training joins images (mosaic, MixUp, CopyBlend); None for the choice of
            `augment`.
        keep_ratio: scale images to fit the square of side `size`, instead of stretching them to it.
            A batch is padded to its largest image, in multiples of 32 pixels.
    """

    mosaic: bool | None = None
    keep_ratio: bool = False

    multiple: ClassVar[int] = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mosaic and self.augment != 'published':
            raise ValueError(
                f"own.mosaic=True: needs own.augment='published', got {self.augment!r}"
            )


@dataclass(frozen=True)
class OwnOriented(OwnObjects):
    """The settings of configs/own/oriented.py, see ``OwnObjects``."""

    multiple: ClassVar[int] = 32


@dataclass(frozen=True)
class OwnSemantic(Own):
    """The settings of configs/own/semantic.py, in addition to ``Own``.

    Attributes:
        classes: names in the order of the masks' numbers, or None for the names in classes.txt
            (or in Roboflow's _classes.csv).
        void: numbers in the masks, or names, of classes that are neither trained nor evaluated.
            255 is always such a number, unless it is the value of a class.
        values: number in the masks of each class; None for 0, 1, 2 ...
    """

    classes: Sequence[str] | None = None
    void: Sequence[int | str] = ()
    values: Sequence[int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.classes)
        check_folders(self)
        if self.values is not None and len({*self.values}) < len(self.values):
            raise ValueError(f'own.values={[*self.values]}: a number appears twice')


@dataclass(frozen=True)
class OwnDepth(Own):
    """The settings of configs/own/depth.py, in addition to ``Own``.

    Attributes:
        size: shorter side of images in pixels; crops are 4 / 3 as wide as high.
        unit: metres of a 1 in the depth files, such as 0.001 for millimetres.
        max_depth: metres; larger depths are neither predicted nor evaluated.
        lora: rank of the adapters of the backbone, which is frozen else; 0 for none.
    """

    size: int = 480
    unit: float = 0.001
    max_depth: float = 10.0
    lora: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_folders(self)
        check_number('own.unit', self.unit, above=0)
        check_number('own.max_depth', self.max_depth, above=LEAST_DEPTH)
        check_integer('own.lora', self.lora, 0)


Settings = TypeVar('Settings', bound=Own)


def settings_of(kind: type[Settings], given: Mapping[str, object]) -> Settings:
    """The settings of a task.

    Args:
        given: by name, see ``read_setting``.

    Raises:
        ValueError: a setting that this task does not have, or a value that is not allowed.
    """
    hints = get_type_hints(kind)
    allowed = [field.name for field in dataclasses.fields(kind)]
    for name in given:
        if name not in allowed:
            raise ValueError(
                f'own.{name}: no such setting{did_you_mean(name, allowed)}; allowed: '
                f'{", ".join(allowed)}'
            )
    if given.get('data_root') is None:
        raise ValueError('own.data_root: give the folder of the data set')
    return kind(**{name: read_setting(name, given[name], hints[name]) for name in given})


def number_of_processes(given: int | None) -> int:
    """The processes that train together: as many as the launcher started, else ``given``, else 1.

    Raises:
        ValueError: another number is given than the launcher started.
    """
    started = started_processes()
    if given is None:
        return started or 1
    check_integer('own.gpus', given, 1)
    if started not in (None, given):
        raise ValueError(
            f'own.gpus={given}: {started} processes were started together; leave own.gpus out'
        )
    return given


def started_processes() -> int | None:
    """The number of processes that torchrun, mpirun or srun started; None without a launcher.

    Slurm's number is of all commands of a job, so it counts after --launcher, which sets
    LOCAL_RANK.

    Raises:
        ValueError: a variable of the environment is set to something else.
    """
    names = ['WORLD_SIZE', 'OMPI_COMM_WORLD_SIZE']
    names += ['SLURM_NTASKS'] if 'LOCAL_RANK' in os.environ else []
    for name in names:
        if value := os.environ.get(name, '').strip():
            if not value.isdecimal() or int(value) == 0:
                raise ValueError(
                    f'{name}={value}: no number of processes; unset it, or start the training '
                    'with torchrun, mpirun or srun'
                )
            return int(value)
    return None


def check_classes(classes: Sequence[str] | None) -> None:
    """Raise ValueError unless there are names, each once."""
    if classes is not None and (not classes or len({*classes}) < len(classes)):
        refused = 'a name appears twice' if classes else 'give names, or None for all'
        raise ValueError(f'own.classes={[*classes]}: {refused}')


def check_folders(own: Own) -> None:
    """Raise ValueError unless ``train`` and ``val`` are two folders each, or None."""
    for name in ('train', 'val'):
        given = getattr(own, name)
        if given is not None and (isinstance(given, str) or len(given) != 2):
            raise ValueError(
                f'own.{name}={given!r}: give [folder of images, folder of labels], below data_root'
            )
