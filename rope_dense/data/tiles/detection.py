"""Boxes of large images: detected in tiles of the image and of its halvings."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.structures import InstanceData
from torch import Tensor

from ...utils.journal import Journal
from ..images.bands import LoadBands
from ..labels.geometry import mask_lengths, run_lengths
from ..rotated import rectangle_corners
from ..rotated_results import about_convention, rotated_annotation
from .band_image import open_image
from .plan import TileGrid, TilePredictor, Window

if find_spec('mmdet'):  # which needs shapely
    import shapely
    from mmcv.ops import box_iou_rotated
    from mmdet.structures.bbox import bbox_overlaps, get_box_tensor
    from pycocotools import mask as coco_mask

BORDER = 0.01  # of a tile's side: a box that ends nearer to it may be cut off there
AT_ONCE = 128  # boxes that are compared with all others
UPRIGHT_IOU = 0.5
ROTATED_IOU = 0.1  # as mmrotate merges the tiles of DOTA


@dataclass(frozen=True)
class Level:
    """The tiles of an image that is shrunken ``shrink`` times along each axis."""

    shrink: int
    grid: TileGrid


class TilePlace(NamedTuple):
    """The place of a tile among the tiles of an image.

    Attributes:
        level, row, column: its tile of a level.
        size: (height, width) of the image.
        number: of the tile in its image, from 0.
        is_last: it is the last one of its image.
    """

    level: Level
    size: tuple[int, int]
    row: int
    column: int
    number: int
    is_last: bool = False

    @property
    def window(self) -> Window:
        """Its pixels in the shrunken image."""
        return self.level.grid.window(self.row, self.column)


def make_levels(
    height: int,
    width: int,
    tile: int,
    overlap: int,
    halvings: int,
) -> list[Level]:
    """The image itself, and its halvings until it fits one tile, or as many (-1 for no limit).

    An object is inside of a tile at each level where it is not larger than the overlap, and at the
    last level, which has one tile.
    """
    shrink = 1
    levels = []
    while True:
        grid = TileGrid(-(-height // shrink), -(-width // shrink), tile, overlap)
        levels.append(Level(shrink, grid))
        if len(grid) == 1 or len(levels) > halvings >= 0:
            return levels
        shrink *= 2


def detect(
    path: Path,
    levels: Sequence[Level],
    min_score: float | list[float],
    bands: LoadBands | None,
    predict: TilePredictor,
    journal: Journal,
    steps: range,
) -> None:
    """Add the detections in the tiles of levels to a journal, a line of JSON for each.

    A line has the box (left, top, right, bottom) in pixels of the image, score, label, the index of
    the tile, whether the box is cut, and the mask if there is one (see ``mask_lengths``). Rotated
    boxes (x, y, w, h, angle) are `rbox`, within their upright box.

    Args:
        min_score: of all classes, or of each.
        bands: see ``open_image``.
        steps: rows of tiles, counted over all levels.
    """
    full = open_image(path, bands)
    size = (full.height, full.width)
    left = steps[journal.finished :]
    step = 0
    tile = 0
    for level in levels:
        grid = level.grid
        image = open_image(path, bands, level.shrink)
        for row, top in enumerate(grid.tops):
            if step in left:
                strip = image.read(top, top + grid.tile_height)
                lines = []
                samples = predict(grid.tiles_of(strip), level.shrink)
                for column, sample in enumerate(samples):
                    found = sample.pred_instances
                    least = torch.as_tensor(min_score, device=found.scores.device)
                    if least.ndim:
                        least = least[found.labels]
                    found = found[found.scores >= least].cpu()
                    place = TilePlace(level, size, row, column, tile + column)
                    lines += detection_lines(found, place)
                text = ''.join(json.dumps(line) + '\n' for line in lines)
                journal.finish_step(text.encode())
            step += 1
            tile += len(grid.lefts)


def detection_lines(found: InstanceData, place: TilePlace) -> list[dict]:
    """Return the lines of one tile, see ``detect``."""
    height, width = place.size
    shrink = place.level.shrink
    left, top, *_ = place.window
    # [N, 4 or 5], in pixels of the tile
    tile_boxes = get_box_tensor(found.bboxes).double()
    is_rotated = tile_boxes.shape[1] == 5
    boxes = upright(tile_boxes) if is_rotated else tile_boxes
    cut = is_cut_by_tile(boxes, place.level.grid, place.row, place.column)
    boxes = (boxes + torch.tensor([left, top, left, top])) * shrink
    boxes = boxes.clamp(min=0).minimum(torch.tensor([width, height, width, height]))
    lines = []
    for box, score, label, is_cut in zip(
        boxes.tolist(),
        found.scores.tolist(),
        found.labels.tolist(),
        cut.tolist(),
        strict=True,
    ):
        line = dict(
            box=box,
            score=score,
            label=label,
            tile=place.number,
            cut=is_cut,
        )
        lines.append(line)
    if is_rotated:
        moved = tile_boxes[:, :4] + torch.tensor([left, top, 0, 0])
        tile_boxes[:, :4] = moved * shrink
        for line, rbox in zip(lines, tile_boxes.tolist(), strict=True):
            line['rbox'] = rbox
    for line, mask in zip(lines, found.get('masks', ()), strict=False):
        lengths = mask_lengths(np.asarray(mask), left, top, place.size, shrink)
        area = int(coco_mask.area(run_lengths(lengths)))
        line['mask'] = dict(counts=lengths['counts'], area=area)
    return lines


def instances_of(lines: Sequence[dict], is_rotated: bool) -> InstanceData:
    """The boxes of lines, see ``detect``, with their scores and labels."""
    key, columns = ('rbox', 5) if is_rotated else ('box', 4)
    boxes = torch.tensor([line[key] for line in lines]).reshape(-1, columns)
    found = InstanceData(bboxes=boxes)
    found.scores = torch.tensor([line['score'] for line in lines])
    found.labels = torch.tensor([line['label'] for line in lines], dtype=torch.long)
    return found


def upright(boxes: Tensor) -> Tensor:
    """The boxes (left, top, right, bottom) [N, 4] around rotated boxes [N, 5]."""
    corners = torch.from_numpy(rectangle_corners(boxes.numpy())).reshape(-1, 4, 2)
    return torch.cat([corners.amin(1), corners.amax(1)], 1)


def is_cut_by_tile(boxes: Tensor, grid: TileGrid, row: int, column: int) -> Tensor:
    """[N], true for boxes [N, 4] that reach a side of the tile inside of the image."""
    left, top, right, bottom = grid.window(row, column)
    margin = BORDER * grid.tile
    inner = [left > 0, top > 0, right < grid.width, bottom < grid.height]
    far = boxes[:, 2:] >= torch.tensor([right - left, bottom - top]) - margin
    near = torch.cat([boxes[:, :2] <= margin, far], 1)
    return (near & torch.tensor(inner)).any(1)


def suppress_duplicates(lines: Sequence[dict], threshold: float) -> list[dict]:
    """The lines of all tiles without repeated objects, by falling score.

    Within a class, boxes are taken in this order: complete ones before those that are cut, and by
    falling score. A box is dropped if an earlier one, of another tile, was not, and

    - their intersection over union is above the threshold, or
    - the box is cut, and its share within the other one is above the threshold.

    Boxes of the same tile are never compared: the detector has suppressed its duplicates.
    """
    if not lines:
        return []
    boxes = np.array([[*line['box'], *line.get('rbox', ())] for line in lines], float)
    scores = column(lines, 'score')
    labels = column(lines, 'label')
    tiles = column(lines, 'tile')
    cut = column(lines, 'cut')
    order = np.lexsort((-scores, cut))
    left = []
    for label in np.unique(labels):
        rivals = order[labels[order] == label]
        out = duplicate_mask(boxes[rivals], cut[rivals], tiles[rivals], threshold)
        left += rivals[~out].tolist()
    return sorted((lines[index] for index in left), key=lambda line: -line['score'])


def column(lines: Sequence[dict], name: str) -> np.ndarray:
    """A value of each line [N]."""
    return np.array([line[name] for line in lines])


def duplicate_mask(
    boxes: np.ndarray,
    cut: np.ndarray,
    tiles: np.ndarray,
    threshold: float,
) -> np.ndarray:
    """[N], true for boxes [N, 4 or 9] of a class that are dropped, see ``suppress_duplicates``."""
    out = np.zeros(len(boxes), bool)
    places = shapely.box(*boxes[:, :4].T)
    tree = shapely.STRtree(places)
    for start in range(0, len(boxes), AT_ONCE):
        some = start + np.flatnonzero(~out[start : start + AT_ONCE])
        first, later = tree.query(places[some])  # pairs of upright boxes that touch
        first = some[first]
        rivals = (later > first) & (tiles[later] != tiles[first])
        first = first[rivals]
        later = later[rivals]
        covered = pair_overlaps(boxes[later], boxes[first], 'iou') > threshold
        within = pair_overlaps(boxes[later], boxes[first], 'iof') > threshold
        covered |= cut[later] & within
        for index, other in zip(first[covered], later[covered], strict=True):
            out[other] |= not out[index]
    return out


def pair_overlaps(boxes: np.ndarray, others: np.ndarray, mode: str) -> np.ndarray:
    """Intersection over union ('iou') or over the first box ('iof') [N] of pairs of boxes.

    Boxes are [N, 4]; or [N, 9] of rotated boxes, their upright boxes first.
    """
    first = torch.from_numpy(boxes)
    second = torch.from_numpy(others)
    result = bbox_overlaps(first[:, :4], second[:, :4], mode, is_aligned=True)
    if boxes.shape[1] == 4:
        return result.numpy()
    near = result > 0  # others cannot overlap
    first = first[near, 4:]
    second = second[near, 4:]
    centre = F.pad(second[:, :2], (0, 3))  # float32 is exact near zero
    overlaps = box_iou_rotated(
        (first - centre).float(),
        (second - centre).float(),
        mode,
        aligned=True,
    )
    result = torch.zeros_like(result)
    result[near] = overlaps.double()
    return result.numpy()


def as_coco(
    lines: Sequence[dict],
    file_name: str,
    size: tuple[int, int],
    classes: Sequence[str],
    convention: str | None = None,
) -> dict:
    """A data set in COCO's format: one image, (height, width) in pixels, with scored annotations.

    Categories are numbered from 1, in the order of the classes.

    Args:
        convention: of the angles of rotated boxes; None for upright boxes.
    """
    height, width = size
    annotations = []
    for index, line in enumerate(lines, start=1):
        left, top, right, bottom = line['box']
        sides = (right - left, bottom - top)
        annotation = dict(
            id=index,
            image_id=1,
            category_id=line['label'] + 1,
            iscrowd=0,
            bbox=[left, top, *sides],
            area=sides[0] * sides[1],
            score=line['score'],
        )
        if 'rbox' in line and convention:
            annotation |= rotated_annotation(line['rbox'], convention)
        if 'mask' in line:
            mask = line['mask']
            segmentation = dict(size=list(size), counts=mask['counts'])
            annotation |= dict(segmentation=segmentation, area=mask['area'])
        annotations.append(annotation)
    image = dict(
        id=1,
        file_name=file_name,
        height=height,
        width=width,
    )
    categories = [dict(id=number, name=name) for number, name in enumerate(classes, 1)]
    return dict(
        **(dict(info=about_convention(convention)) if convention else {}),
        images=[image],
        categories=categories,
        annotations=annotations,
    )
