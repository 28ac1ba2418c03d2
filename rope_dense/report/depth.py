"""The report of a depth model."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.model import BaseModel

from ..datasets.images.drawing import depth_picture
from ..project.errors import UsageError
from . import figures
from .page import Page
from .predictions import build_loader, max_value_of, predict, read_picture

EDGES = np.array([0, 1, 2, 3, 4, 6, 8, 10, 15, 20, 30, 50, 80, np.inf])  # metres
WORST, BEST = 6, 3


def report(page: Page, cfg: Config, model: BaseModel) -> None:
    """Add all sections on depth.

    Raises:
        UsageError: no image has a true depth.
    """
    sums = np.zeros((len(EDGES) - 1, 5))
    images: list[dict[str, Any]] = []
    for sample in predict(model, build_loader(cfg)):
        truth = sample.gt_depth_map.data.squeeze().numpy()
        predicted = sample.pred_depth_map.data.squeeze().numpy()
        known = truth > 0
        if not known.any():
            continue
        sums += sums_of(predicted[known], truth[known])
        error = float(np.sqrt(np.square(predicted[known] - truth[known]).mean()))
        depths = (truth.astype(np.float16), predicted.astype(np.float16))
        images.append(dict(path=sample.img_path, rmse=error, depths=depths))
    if not images:
        raise UsageError('report: no image has a true depth to compare with')
    page.figures['about'] |= dict(images=len(images), rmse=np.mean([x['rmse'] for x in images]))
    page.section(
        'Distances',
        'Errors in metres by the true distance: bias is the mean of prediction less truth, abs_rel '
        'the mean error as a share of the distance, d1 the share of pixels within a factor 1.25.',
    )
    rows = distances(sums)
    page.add_figure('rmse', figures.bars({x['class']: x['rmse'] for x in rows}, 'RMSE'), 'RMSE.')
    page.add_table('classes', rows)  # under the name by which reports are compared
    add_pictures(page, images, max_value_of(cfg))


def sums_of(predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Number of pixels, and sums of their figures, by distance: [distances, 5]."""
    difference = predicted - truth
    ratio = np.maximum(predicted / truth, truth / predicted)
    relative = abs(difference) / truth
    columns = (np.ones_like(truth), difference, difference**2, relative, ratio < 1.25)
    place, length = np.digitize(truth, EDGES[1:-1]), len(EDGES) - 1
    return np.stack([np.bincount(place, column, length) for column in columns], 1)


def distances(sums: np.ndarray) -> list[dict[str, Any]]:
    """A row for all pixels, and one for each range of distances that has some."""
    names = [f'{low:g} to {high:g} m' for low, high in pairwise(EDGES)]
    rows = []
    for name, row in zip(['all', *names], [sums.sum(0), *sums], strict=True):
        if row[0]:
            bias, square, relative, near = row[1:] / row[0]
            figure = dict(pixels=int(row[0]), rmse=float(np.sqrt(square)), bias=float(bias))
            rows.append({'class': name, **figure, 'abs_rel': float(relative), 'd1': float(near)})
    return rows


def add_pictures(page: Page, images: list[dict[str, Any]], max_value: int | None) -> None:
    """Add the images with the largest and the least error, each beside its two depths."""
    ranked = sorted(images, key=lambda x: -x['rmse'])
    shown = [('Worst pictures', 'worst', ranked[:WORST])]
    shown.append(('Best pictures', 'best', ranked[WORST:][-BEST:][::-1]))
    for title, name, rows in shown:
        page.section(title, 'Image, true depth (black: unknown) and predicted, on one scale.')
        page.figures[name] = [dict(path=x['path'], rmse=x['rmse']) for x in rows]
        for number, image in enumerate(rows, start=1):
            depths = depth_picture(np.hstack(image['depths']).astype(np.float32))
            drawn = np.hstack([read_picture(image['path'], max_value)[..., ::-1], depths])
            words = f'{Path(image["path"]).name}: RMSE {image["rmse"]:.3f} m'
            page.add_picture(f'{name}_{number}', drawn, words)
