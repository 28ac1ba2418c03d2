"""What ``rope-dense predict`` is asked for: its settings, and the images that are meant."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from mmengine.config import Config

from ..data.images.sources import (
    ImageReader,
    Source,
    Video,
    find_video,
    listed_sources,
    unreadable_sources,
)
from ..project.load import Options
from ..utils.config_parts import pipelines
from ..utils.errors import UsageError
from .place import Wanted, check_beside
from .thresholds import DEFAULT, Scores

Given = str | Path | Sequence[str | Path]  # one path, or several


@dataclass(frozen=True)
class Request:
    """The model, the images, and what is wanted of them.

    Args:
        config, checkpoint, cfg_options, work_dir: see ``find_model``.
        images: a file, a folder, a list of files, a video, the number of a camera, the address of a
            stream; or '-' for paths on standard input.
        out: folder; by default predictions, in the work folder. Files of the user's in it stay:
            see ``Results``.
        score: detectors: of a box that is written and drawn, at least; for all classes or each, see
            ``least_scores``.
        write: detectors: formats, see ``FORMATS``.
        ids: COCO file with the ids of images and classes for the format 'results'.
        batch: images at a time.
        size: of the model's input, '480' (the shorter side) or '480x640' (height and width); by
            default as the test pipeline resizes.
        scores: segmentors: also write the probability of each class, but for images in tiles; of
            detectors, with the format 'yolo', the score of each box.
        tile_above: megapixels above which an image is predicted in tiles.
        file, runtime: what predicts in place of the model, see ``FileModel``.
        device: such as 'cuda:1'; by default a GPU if there is one.
    """

    config: str
    checkpoint: str | None
    images: Given
    out: Path | None = None
    score: Scores = DEFAULT
    write: Sequence[str] = ('coco',)
    ids: Path | None = None
    batch: int = 1
    size: str | None = None
    scores: bool = False
    tile_above: float = 32
    device: str | None = None
    cfg_options: Options = ()
    work_dir: str | None = None
    file: Path | None = None
    runtime: str | None = None

    @property
    def wanted(self) -> Wanted:
        """What is written."""
        return Wanted(self.write, self.scores, self.ids)


@dataclass(frozen=True)
class Pictures:
    """The images that are predicted.

    Args:
        given: what the user gave.
        reader: of the config's images.
        sources: of all processes; none of a video.
        video: or None.
    """

    given: Given
    reader: ImageReader
    sources: Sequence[Source]
    video: Video | None

    def inputs(self) -> list[str | Path]:
        """The files that are read."""
        if self.video:
            return [self.video.given]
        return [*self.paths.values()]

    @cached_property
    def paths(self) -> dict[str, Path]:
        """The files of the images, by their names."""
        return {source.file_name: source.path for source in self.sources}

    def drawable(self, file_name: str) -> np.ndarray:
        """The pixels of an image by its name: BGR uint8 [H, W, 3]."""
        return self.reader.picture(self.reader.read(self.paths[file_name]))


def find_pictures(cfg: Config, images: Given, out: Path, count: int) -> Pictures:
    """The images that the user gave, for a number of processes.

    UsageError if they cannot be shared, or the images of a folder would be among the results.
    """
    reader = ImageReader(next(pipelines(cfg.test_dataloader.dataset)))
    video = find_video(str(images)) if isinstance(images, (str, Path)) else None
    if count > 1 and (video or images == '-'):
        raise UsageError(
            'several processes predict images of a folder or a list, no video or -'
        )
    sources: list[Source] = []
    if images == '-':
        sources = listed_sources(sys.stdin)
    elif not isinstance(images, (str, Path)):
        sources = listed_sources(map(str, images))
    elif video is None:
        given = Path(images)
        if given.is_dir():
            check_beside(given, out)
        # Folders and dead links that have the name of an image are named at the end.
        sources = reader.find(given, out) + unreadable_sources(given, out)
    return Pictures(images, reader, sources, video)
