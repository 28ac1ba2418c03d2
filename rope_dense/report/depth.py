"""The report of a depth model."""

import math
from itertools import pairwise

import numpy as np
from mmengine.config import Config
from mmengine.model import BaseModel

from ..data.images.drawing import depth_picture
from ..utils.errors import UsageError
from . import figures
from .page import ReportPage
from .predictions import (
    Image,
    Ranked,
    ReadPicture,
    build_metric,
    evaluated_loader,
    picture_reader,
    predict_samples,
    side_by_side,
)
from .record import Row

EDGES = np.array([0, 1, 2, 3, 4, 6, 8, 10, 15, 20, 30, 50, 80, np.inf])  # metres


def add_depth(page: ReportPage, cfg: Config, model: BaseModel) -> None:
    """Add all sections on depth; UsageError if no image has a true depth."""
    sums = np.zeros((len(EDGES) - 1, 5))
    errors = []
    ranked = Ranked()
    metric = build_metric(cfg, 'DepthMetric')
    for sample in predict_samples(model, evaluated_loader(page, cfg)):
        metric.process({}, [sample.to_dict()])
        of_test = [x.numpy() for pair in metric.results for x in pair]
        metric.results.clear()
        if not of_test or not of_test[0].size:
            continue
        sums += sums_of(of_test[1], of_test[0])
        error = float(np.sqrt(np.square(of_test[1] - of_test[0]).mean()))
        errors.append(error)
        truth = sample.gt_depth_map.data.squeeze().numpy()
        predicted = sample.pred_depth_map.data.squeeze().numpy()
        ranked.add(-error, dict(path=sample.img_path, rmse=error), (truth, predicted))
    if not errors:
        raise UsageError('report: no image has a true depth to compare with')
    page.record.about['images'] = len(errors)
    page.record.about['mean RMSE of an image (m)'] = np.mean(errors)
    add_distances(page, distance_rows(sums))
    read = picture_reader(cfg)
    ranked.add_to(
        page,
        'Image, true depth (black: unknown) and predicted, on one scale.',
        lambda image: draw_depths(image, read),
        lambda row: f'RMSE {row["rmse"]:.3f} m',
    )


def sums_of(predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Number of pixels, and sums of their figures, by distance: [distances, 5]."""
    difference = predicted - truth
    ratio = np.maximum(predicted / truth, truth / predicted)
    columns = (
        np.ones_like(truth),
        difference,
        difference**2,
        abs(difference) / truth,
        ratio < 1.25,
    )
    place = np.digitize(truth, EDGES[1:-1])
    sums = [np.bincount(place, column, len(EDGES) - 1) for column in columns]
    return np.stack(sums, 1)


def distance_rows(sums: np.ndarray) -> list[Row]:
    """A row for all pixels, and one for each range of distances that has some."""
    names = ['all']
    for low, high in pairwise(EDGES):
        names.append(f'{low:g} to {high:g} m')
    rows = []
    for name, values in zip(names, [sums.sum(0), *sums], strict=True):
        number = int(values[0])
        if number:
            bias, square, relative, near = (values[1:] / number).tolist()
            row = dict(pixels=number, rmse=math.sqrt(square), bias=bias)
            rows.append({'class': name, **row, 'abs_rel': relative, 'd1': near})
    return rows


def add_distances(page: ReportPage, rows: list[Row]) -> None:
    """Add the figures by distance."""
    page.section(
        'Distances',
        'Errors in metres by the true distance, over all of its pixels in all images. (The test '
        'prints the mean over the images, as the head of this page does: images of near scenes '
        'count as much there as others.) bias is the mean of prediction less truth, abs_rel the '
        'mean error as a fraction of the distance, d1 the fraction of pixels within a factor 1.25.',
    )
    lengths = {row['class']: row['rmse'] for row in rows}
    figure = figures.draw_bars({'': lengths}, 'RMSE of the pixels (m)')
    page.add_figure('rmse', figure, 'RMSE.')
    page.add_table(rows)
    page.record.classes = rows  # the name by which reports are compared


def draw_depths(image: Image, read: ReadPicture) -> np.ndarray:
    """An image beside its true and its predicted depth (BGR)."""
    truth, predicted = image.content
    both = depth_picture(np.hstack([truth, predicted]).astype(np.float32))
    picture = read(image.row['path'], None)[..., ::-1]
    width = truth.shape[1]  # beside which the prediction has a scale
    return side_by_side(picture, both[:, :width], both[:, width:])
