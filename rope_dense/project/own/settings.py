"""The settings of configs/own: a dataclass for each kind of task."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar, TypeVar, get_type_hints

from ...utils.configs import DOCS
from ...utils.validation import (
    check_choice,
    checked_integer,
    checked_number,
    did_you_mean,
)
from .augment import AUGMENTS, FLIPS
from .backbones import WORDS, OwnBackbone, find_backbone
from .text import read_setting

LEAST_DEPTH = 0.001  # metres: the first bin of the depth head
LEAST = dict(epochs=1, batch_size=1, val_epochs=1, patience=1, gpus=1, lora=0)
LEAST |= dict(size=32, teacher_size=32, max_value=255, tile=32, overlap=0)
DEEP_TILES = 'tiles of 16 bits are read by own.channels, such as own.channels=[1, 2, 3]'
ABOVE = dict(lr=0, save_minutes=0, unit=0, max_depth=LEAST_DEPTH, ground_distance=0)
ABOVE |= dict(least_share=0, empty_tiles=0, max_growth=1)
SLIDING = 'sliding'  # the teacher that is the backbone itself, on sliding windows


@dataclass(frozen=True)
class Own:
    """The settings of all tasks; docs/own_data.md has them with their consequences."""

    data_root: str  # folder of the data set
    # An annotation file in COCO's format, or [folder of images, folder of masks or depth maps],
    # below `data_root`; None to look for the common names.
    train: str | Sequence[str] | None = None
    val: str | Sequence[str] | None = None
    backbone: str = 'small'  # a key of ``WORDS``, or an architecture of ``RoPEViT``
    # File or hub name; 'default': of ``WORDS``; None: random.
    weights: str | None = 'default'
    epochs: int = 50
    # Images of one process in an iteration; see ``images_each``.
    batch_size: int | None = None
    # Processes; None for as many as the launcher started, else 1.
    gpus: int | None = None
    # Pixels: shorter side of a test image, or side of the square around it.
    size: int = 640
    lr: float | None = None  # None for the recipe's, see ``fit.set_schedule``
    val_epochs: int = 1  # evaluate, and save, after so many epochs
    # Save, too, after so many minutes without; None for never.
    save_minutes: float | None = 30
    # Evaluations without progress after which training ends.
    patience: int | None = None
    ema: bool = False  # evaluate and save a moving average of the weights
    report: bool = True  # on the best checkpoint, after training
    # White in 16-bit images; None for their range (``range_of``).
    max_value: int | None = None
    # Number, names, or numbers of bands from 1.
    channels: int | Sequence[int | str] | None = None
    # A file for each channel, whose path has the channel's name.
    separate_files: bool = False
    # Of each channel; None for a sample of training images.
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    # Three channels, or one: red, green and blue.
    show: Sequence[int | str] | None = None
    augment: str | None = None  # None: 'published', or as ``realtime_config`` says
    flip: str | None = None  # None for the flip of `augment`
    # Side in pixels of an image; None to train on images as a whole.
    tile: int | None = None
    # Of tiles, in pixels of an image; None for a quarter of a tile.
    overlap: int | None = None
    scales: Sequence[float] = (1.0,)  # at which images are cut into tiles: 0.5, 1 ...
    # Positions in metres: of a pixel of files that do not say it. None: in patches.
    ground_distance: float | None = None

    multiple: ClassVar[int] = 1  # of pixels: what the size must be
    # Usual images of one process: from weights, from random values.
    batches: ClassVar[tuple[int, int]] = (2, 2)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in LEAST and value is not None:
                checked_integer(f'own.{name}', value, LEAST[name])
            if name in ABOVE and value is not None:
                checked_number(f'own.{name}', value, above=ABOVE[name])
        classes = getattr(self, 'classes', None)
        if classes is not None and not classes:
            raise ValueError('own.classes=[]: give names, or None for all')
        if classes and len({*classes}) < len(classes):
            raise ValueError(f'own.classes={[*classes]}: a name appears twice')
        rest = self.size % self.multiple
        if rest:
            low = self.size - rest
            high = low + self.multiple
            raise ValueError(
                f'own.size={self.size}: give a multiple of {self.multiple}, such as {low} or {high}'
            )
        if self.weights == 'default' and self.vit.weights is None:
            raise ValueError(
                f'own.weights: name the weights of {self.backbone} ({DOCS}/checkpoints.md), or '
                f'None for random values; only {", ".join(WORDS)} have weights of their own'
            )
        self.labelled_parts  # noqa: B018  ValueError
        other_names(getattr(self, 'same_as', ()))  # ValueError
        check_choice('own.augment', self.augment, (None, *AUGMENTS))
        check_choice('own.flip', self.flip, (None, 'none', *FLIPS))
        check_channels(self)
        check_tile_settings(self)
        object.__setattr__(self, 'data_root', os.path.expanduser(self.data_root))

    @property
    def root(self) -> Path:
        return Path(self.data_root)

    @property
    def channel_names(self) -> list[str]:
        """A name for each of ``channels``, or its number from 1; none of pictures."""
        given = self.channels or ()
        return [*map(str, range(1, given + 1) if isinstance(given, int) else given)]

    @property
    def labelled_parts(self) -> dict[str, list[str]]:
        """``labelled`` of objects and semantic: classes by a part of the path of images.

        A part is one or more folders, or a file: 'north' or 'north/2024'. ValueError unless it is
        written as ['PART=CLASS', 'CLASS', 'PART=CLASS,CLASS' ...].
        """
        given = getattr(self, 'labelled', None) or ()
        found: dict[str, list[str]] = {}
        part = ''
        for word in filter(None, ','.join(given).split(',')):
            before, equals, name = word.strip().rpartition('=')
            part = before.strip().strip('/') if equals else part
            if not (part and name.strip()):
                raise ValueError(
                    f'own.labelled={[*given]}: give PART=CLASS,CLASS for each part of the paths'
                )
            found.setdefault(part, []).append(name.strip())
        return found

    @property
    def vit(self) -> OwnBackbone:
        return find_backbone(self.backbone)

    @property
    def images_each(self) -> int:
        """Images of one process in an iteration: ``batch_size``, or what is usual."""
        return self.batch_size or self.batches[self.weights is None]

    @property
    def batch(self) -> int:
        """Images of all processes in an iteration."""
        return self.images_each * (self.gpus or 1)


@dataclass(frozen=True)
class OwnObjects(Own):
    """The settings for boxes and masks of objects."""

    classes: Sequence[str] | None = None  # names to use, or None for all of the labels
    negatives: bool = True  # train on images, or tiles, without objects, too
    # Tiles without objects, at most, for each tile with objects.
    empty_tiles: float = 1.0
    least_share: float = 0.7  # of an object; less of it in a tile is ignored there
    # A key of ``data.labels.folders.FORMATS``, or 'folders'; None to recognise it.
    format: str | None = None
    # Train although more than a tenth of the objects cannot be used.
    partial: bool = False
    # The classes that some images are labelled for, see ``labelled_parts``; None: all for all.
    labelled: Sequence[str] | None = None
    # OURS=THEIRS, classes of labels or of --load-from under another name.
    same_as: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ('train', 'val'):
            given = getattr(self, name)
            if not isinstance(given, str | None):
                raise ValueError(
                    f'own.{name}={given!r}: give the annotation file, below data_root'
                )


@dataclass(frozen=True)
class OwnRealtime(OwnObjects):
    """The settings of configs/own/realtime*.py; ``size`` is the side of a square."""

    # Join images (mosaic, MixUp, CopyBlend); None as `augment` says.
    mosaic: bool | None = None
    # Scale images to fit the square, instead of stretching them to it.
    keep_ratio: bool = False

    multiple: ClassVar[int] = 32
    batches: ClassVar[tuple[int, int]] = (8, 4)  # docs/real_sets.md

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mosaic and self.augment not in (None, 'published'):
            raise ValueError(
                f"own.mosaic=True: needs own.augment='published', got {self.augment!r}"
            )


@dataclass(frozen=True)
class OwnOriented(OwnObjects):
    """The settings of configs/own/oriented.py."""

    multiple: ClassVar[int] = 32
    batches: ClassVar[tuple[int, int]] = (8, 4)  # docs/real_sets.md


@dataclass(frozen=True)
class OwnMaps(Own):
    """The settings for masks and depth maps; ``train`` and ``val`` are two folders each."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ('train', 'val'):
            given = getattr(self, name)
            if given is not None and (isinstance(given, str) or len(given) != 2):
                folders = '[folder of images, folder of labels]'
                raise ValueError(
                    f'own.{name}={given!r}: give {folders}, below data_root'
                )


@dataclass(frozen=True)
class OwnSemantic(OwnMaps):
    """The settings of configs/own/semantic.py.

    ``void`` has numbers in the masks, or names, of classes that are neither trained nor evaluated.
    255 is always such a number, unless it is the value of a class.
    """

    # In the order of the masks' numbers; None for classes.txt.
    classes: Sequence[str] | None = None
    void: Sequence[int | str] = ()
    # Number in the masks of each class; None for 0, 1, 2 ...
    values: Sequence[int] | None = None
    # As of objects; the pixels of other classes, such as the background, are ignored.
    labelled: Sequence[str] | None = None
    same_as: Sequence[str] = ()  # OURS=THEIRS, classes of --load-from

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values is not None and len({*self.values}) < len(self.values):
            raise ValueError(f'own.values={[*self.values]}: a number appears twice')


@dataclass(frozen=True)
class OwnDepth(OwnMaps):
    """The settings of configs/own/depth.py; crops are 4 / 3 of ``size`` wide."""

    size: int = 480
    unit: float = 0.001  # metres of a 1 in the depth files
    max_depth: float = 10.0  # metres; larger ones are neither trained nor predicted
    lora: int = 0  # rank of the adapters of the backbone; 0: none, it is frozen

    def __post_init__(self) -> None:
        super().__post_init__()
        check_lora(self.lora, self.weights is None, 'own.weights=None')


@dataclass(frozen=True)
class OwnAdapt(Own):
    """The settings of configs/own/adapt.py, which trains a backbone on pictures without labels."""

    size: int = 224  # pixels: side of the square crops
    # Rank of adapters; None for 8, or 0 if there is another teacher than ``SLIDING``.
    lora: int | None = None
    # Without adapters: train the last ones only; None for all.
    blocks: int | None = None
    teacher: str | None = None  # as `backbone`, or ``SLIDING``: distil its features
    teacher_weights: str | None = 'default'  # None is refused
    # Pixels: side of the crops for the teacher; None for `size`. Of the windows of ``SLIDING``;
    # None for the backbone's crops of pre-training.
    teacher_size: int | None = None
    # The largest side of the images of ``SLIDING`` over `size`, the smallest; None for 3.
    max_growth: float | None = None

    @property
    def images_each(self) -> int:
        """Images of one process in an iteration; ``SLIDING`` takes whole, larger ones."""
        return self.batch_size or (4 if self.teacher == SLIDING else 32)

    def __post_init__(self) -> None:
        has_teacher = self.teacher not in (None, SLIDING)
        is_part = self.blocks is not None
        trains_all = has_teacher or is_part or self.weights is None
        if self.lora is None:
            object.__setattr__(self, 'lora', 0 if trains_all else 8)
        super().__post_init__()
        for name in ('val', 'tile', 'patience', 'ground_distance'):
            if getattr(self, name) is not None:
                raise ValueError(
                    f'own.{name}: not for pictures without labels; leave it out'
                )
        if not isinstance(self.train, str | None):
            raise ValueError(
                f'own.train={self.train!r}: give one folder, below data_root'
            )
        others = 'own.teacher, own.blocks and own.weights=None'
        check_lora(self.lora, trains_all, others)
        if self.blocks is not None:
            checked_integer('own.blocks', self.blocks, 1, self.vit.depth)
        is_default = self.teacher_weights == 'default'
        if self.teacher == SLIDING:
            if self.weights is None:
                raise ValueError(
                    'own.weights=None: with own.teacher=sliding they are the teacher, too; name '
                    'the weights of the backbone'
                )
            if not is_default:
                raise ValueError(
                    f'own.teacher_weights={self.teacher_weights}: the teacher of '
                    'own.teacher=sliding has own.weights; leave it out'
                )
        elif self.max_growth is not None:
            raise ValueError('own.max_growth: give own.teacher=sliding, too')
        elif self.teacher is None:
            if not is_default or self.teacher_size:
                raise ValueError(
                    'own.teacher_weights, own.teacher_size: give own.teacher, too'
                )
        else:
            vit = find_backbone(self.teacher, 'own.teacher')
            if (vit.weights if is_default else self.teacher_weights) is None:
                raise ValueError(
                    f'own.teacher_weights={self.teacher_weights}: name the weights of '
                    f'own.teacher={self.teacher}'
                )


Settings = TypeVar('Settings', bound=Own)
Given = Mapping[str, object]  # settings by name, perhaps not as they must be


def task_settings(kind: type[Settings], given: Given) -> Settings:
    """The settings of a task from values by name (``read_setting``); ValueError if not allowed."""
    hints = get_type_hints(kind)
    allowed = [field.name for field in fields(kind)]
    for name in given:
        if name not in allowed:
            near = did_you_mean(name, allowed)
            raise ValueError(
                f'own.{name}: no such setting{near}; allowed: {", ".join(allowed)}'
            )
    if given.get('data_root') is None:
        raise ValueError('own.data_root: give the folder of the data set')
    values = {name: read_setting(name, given[name], hints[name]) for name in given}
    own = kind(**values)
    started = started_processes()
    if started is not None and own.gpus not in (None, started):
        raise ValueError(
            f'own.gpus={own.gpus}: {started} processes were started together; leave it out'
        )
    return replace(own, gpus=own.gpus or started or 1)


def other_names(same_as: Sequence[str]) -> dict[str, str]:
    """Our classes by their other names, of ['OURS=THEIRS' ...]; ValueError for other words."""
    found = {}
    for pair in same_as:
        ours, _, theirs = map(str.strip, pair.partition('='))
        if not (ours and theirs):
            raise ValueError(f'own.same_as={pair}: give OURS=THEIRS')
        found[theirs] = ours
    return found


def started_processes() -> int | None:
    """The number of processes that torchrun, mpirun or srun started; None without a launcher.

    Slurm's number is of all commands of a job, so it counts after --launcher, which sets
    LOCAL_RANK. ValueError if a variable of the environment is no number.
    """
    names = ['WORLD_SIZE', 'OMPI_COMM_WORLD_SIZE']
    if 'LOCAL_RANK' in os.environ:
        names.append('SLURM_NTASKS')
    for name in names:
        value = os.environ.get(name, '').strip()
        if value.isdecimal() and int(value) > 0:
            return int(value)
        if value:
            raise ValueError(
                f'{name}={value}: no number of processes; unset it, or start the training '
                'with torchrun, mpirun or srun'
            )
    return None


def check_lora(lora: int | None, trains_all: bool, others: str) -> None:
    """Raise ValueError for adapters of weights that are trained by ``others``."""
    if lora and trains_all:
        raise ValueError(f'own.lora={lora}: adapters are for runs without {others}')


def check_channels(own: Own) -> None:
    """Raise ValueError unless the settings of channels fit each other."""
    names = own.channel_names
    given = own.channels
    if given is None:
        for name in ('separate_files', 'mean', 'std', 'show'):
            if getattr(own, name):
                raise ValueError(
                    f'own.{name}: for images of own.channels, which is not given'
                )
        return
    if own.max_value is not None:
        raise ValueError(
            'own.max_value: for pictures; images of own.channels keep their values'
        )
    bands = [given] if isinstance(given, int) else given
    numbers = [band for band in bands if isinstance(band, int)]
    if len({*names}) < max(1, len(names)) or min(numbers, default=1) < 1:
        raise ValueError(
            f'own.channels={given!r}: give a number, names, or numbers of bands from 1, each once'
        )
    if 0 < len(numbers) < len(names) and not isinstance(given, int):
        raise ValueError(
            f'own.channels={given!r}: give either names or numbers of bands'
        )
    if own.separate_files and numbers:
        raise ValueError(
            'own.separate_files=True: give the name of each channel in own.channels'
        )
    for name in ('mean', 'std'):
        values = getattr(own, name)
        if values is not None and len(values) != len(names):
            raise ValueError(
                f'own.{name}: {len(values)} values for {len(names)} own.channels'
            )
    if own.std and min(own.std) <= 0:
        raise ValueError(f'own.std={[*own.std]}: give numbers above 0')
    if own.show is None:
        return
    allowed = {*names, *range(1, len(names) + 1)}
    if len(own.show) not in (1, 3) or not allowed >= {*own.show}:
        raise ValueError(
            f'own.show={[*own.show]}: give one or three of {", ".join(names)}, or numbers from 1 '
            f'to {len(names)}'
        )


def check_tile_settings(own: Own) -> None:
    """Raise ValueError unless the settings of tiles fit each other."""
    if own.tile is None:
        if own.overlap is not None or [*own.scales] != [1]:
            raise ValueError(
                'own.overlap, own.scales: for tiles of images; give own.tile, too'
            )
        return
    if own.overlap is not None and own.overlap >= own.tile:
        raise ValueError(
            f'own.overlap={own.overlap}: give less than own.tile={own.tile}'
        )
    if not own.scales or min(own.scales) <= 0:
        raise ValueError(
            f'own.scales={[*own.scales]}: give numbers above 0, such as [0.5, 1]'
        )
    if own.max_value is not None:
        raise ValueError(f'own.max_value={own.max_value}: {DEEP_TILES}')
    if isinstance(own, OwnObjects) and own.least_share > 1:
        raise ValueError(f'own.least_share={own.least_share}: give a fraction, up to 1')
