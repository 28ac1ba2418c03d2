"""Tests of a sample of images that keep what the metric knows of each image."""

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
import torch
from mmengine.config import Config, ConfigDict
from mmengine.evaluator import BaseMetric
from mmengine.fileio import load
from mmengine.registry import DATA_SAMPLERS
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch.utils.data import Sampler

from ..data.tiles.dataset import TiledDataset
from ..data.tiles.evaluation import TiledEvaluator
from ..project.contents import evaluators
from ..utils.errors import UsageError
from .evaluator import Evaluator
from .scores import ClassMatches, ImageMeans, MeanAP, MeanIoU, Scores
from .settings import Setting


@dataclass(frozen=True)
class Sample:
    """Images of a data set in a random order: ``number`` of them, after the first ``skip``."""

    number: int
    seed: int = 0
    skip: int = 0

    def indices(self, size: int) -> list[int]:
        """Indices of the images in a data set of a size, ascending."""
        order = np.random.default_rng(self.seed).permutation(size)
        return sorted(order[self.skip : self.skip + self.number].tolist())


@DATA_SAMPLERS.register_module()
class ImageSampler(Sampler):
    """The images of a ``Sample``, for a dataloader; of tests in tiles all tiles of them.

    Args:
        dataset: that the images are taken of.
        number, seed, skip: see ``Sample``.

    Attributes:
        images: [items], the index of the image of each.
    """

    def __init__(self, dataset: Sized, number: int, seed: int, skip: int) -> None:
        images = image_indexes(dataset)
        chosen = Sample(number, seed, skip).indices(len({*images}))
        self.indices = np.flatnonzero(np.isin(images, chosen)).tolist()
        self.images = images[self.indices]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)


def image_indexes(dataset: Sized) -> np.ndarray:
    """The index of the image of each item of a data set."""
    return (
        dataset.images if isinstance(dataset, TiledDataset) else np.arange(len(dataset))
    )


class KeptResults(TiledEvaluator):
    """Metrics that are not computed: results of the images are kept."""

    def evaluate(self, size: int) -> dict:
        """No metric; ``results`` has a list of results for each of ``metrics``."""
        self.results = [list(metric.results) for metric in self.metrics]
        return {}


def check_metric(config: Config) -> None:
    """Raise UsageError unless a metric of the test has results of single images."""
    given = [str(metric.type) for _, metric in evaluators(config, 'test_evaluator')]
    if not any(name.rpartition('.')[2] in SCORES for name in given):
        raise UsageError(
            f'test_evaluator: {", ".join(given)} cannot be resampled by images, only '
            f'{", ".join(SCORES)}; compare settings with `rope-dense eval-resolutions`'
        )


def score_images(
    evaluator: Evaluator, setting: Setting, sample: Sample, title: str
) -> Scores:
    """Test a sample of the images with a setting; ``title`` is of the progress.

    ValueError as of ``Evaluator.apply``, or if the sample has no image.
    """
    config = evaluator.apply(setting)
    config.test_dataloader.sampler = ConfigDict(type='ImageSampler', **asdict(sample))
    assert evaluator.runner is not None
    with contextlib.redirect_stdout(io.StringIO()):  # what pycocotools prints
        metrics = KeptResults(
            [metric for _, metric in evaluators(config, 'test_evaluator')]
        )
        evaluator.runner.test_loop.run_on(config, title, metrics)
        return metric_scores(
            metrics, evaluator.runner.test_loop.dataloader.sampler.images
        )


def metric_scores(metrics: KeptResults, images: np.ndarray) -> Scores:
    """The scores of the first metric that has some; ``images`` as of ``ImageSampler``."""
    for metric, results in zip(metrics.metrics, metrics.results, strict=True):
        compute = SCORES.get(type(metric).__name__)
        if compute is not None:
            if not results:
                raise ValueError(
                    f'{type(metric).__name__}: no image of the sample has labels'
                )
            if compute is mean_iou:  # the areas of the tiles of an image are added
                tiles = groupby(zip(images, results, strict=True), itemgetter(0))
                areas = (zip(*(x for _, x in some), strict=True) for _, some in tiles)
                results = [tuple(map(sum, x)) for x in areas]
            return compute(metric, results)
    raise AssertionError('see check_metric')


def top_one(metric: BaseMetric, results: Sequence[Sequence[bool]]) -> ImageMeans:
    """Per cent of right classes, of the results of ``TopKAccuracy``."""
    right = np.array([first for first, *_ in results], float)
    return ImageMeans(f'accuracy/top{metric.topk[0]}', len(right), True, 100 * right)


def depth_error(metric: BaseMetric, results: Sequence[tuple]) -> ImageMeans:
    """The root of the mean squared error of an image, of the results of ``DepthMetric``."""
    errors = [float((found - true).square().mean().sqrt()) for true, found in results]
    return ImageMeans('rmse', len(errors), False, np.array(errors))


def mean_iou(metric: BaseMetric, results: Sequence[tuple]) -> MeanIoU:
    """Mean IoU, of the results of ``IoUMetric``."""
    intersection, union = (
        torch.stack(areas).double().numpy()
        for areas in list(zip(*results, strict=True))[:2]
    )
    return MeanIoU('mIoU', len(results), True, intersection, union)


def coco_precision(metric: BaseMetric, results: Sequence[tuple[dict, dict]]) -> MeanAP:
    """COCO's mAP of the first kind of the metric, of the results of ``CocoMetric``.

    Objects and predictions are matched by pycocotools, image by image.
    """
    truth, found = zip(*results, strict=True)
    kind = 'segm' if metric.metrics[0] == 'segm' else 'bbox'
    with tempfile.TemporaryDirectory() as folder:
        coco = metric._coco_api
        if coco is None:
            coco = COCO(metric.gt_to_coco_json(truth, f'{folder}/truth'))
        metric.cat_ids = coco.getCatIds(catNms=list(metric.dataset_meta['classes']))
        files = metric.results2json(found, f'{folder}/found')
        predictions = load(files[kind])
    if kind == 'segm':
        predictions = [{k: v for k, v in x.items() if k != 'bbox'} for x in predictions]
    evaluation = COCOeval(coco, load_predictions(coco, predictions), kind)
    evaluation.params.catIds = metric.cat_ids
    evaluation.params.imgIds = images = [item['img_id'] for item in truth]
    evaluation.params.iouThrs = np.asarray(metric.iou_thrs)
    evaluation.params.maxDets = metric.proposal_nums
    return MeanAP(f'coco/{kind}_mAP', len(images), True, class_matches(evaluation))


def load_predictions(coco: COCO, predictions: list[dict]) -> COCO:
    """Predictions on the images of a file; pycocotools does not read an empty list."""
    if predictions:
        return coco.loadRes(predictions)
    nothing = COCO()
    nothing.dataset = dict(coco.dataset, annotations=[])
    nothing.createIndex()
    return nothing


def class_matches(evaluation: COCOeval) -> list[ClassMatches]:
    """The matches of objects of any size, of the classes that have objects, by threshold."""
    params = evaluation.params
    places = {image: place for place, image in enumerate(params.imgIds)}
    params.areaRng, params.areaRngLbl = params.areaRng[:1], params.areaRngLbl[:1]
    params.maxDets = params.maxDets[-1:]
    evaluation.evaluate()
    by_class: dict[int, list[dict]] = {}
    for item in filter(None, evaluation.evalImgs):
        by_class.setdefault(item['category_id'], []).append(item)
    found = (matches_of(items, places) for items in by_class.values())
    return [matches for matches in found if matches.objects.any()]


def matches_of(items: Sequence[dict], places: dict[int, int]) -> ClassMatches:
    """The matches of a class.

    ``items`` are pycocotools' for the images that have objects or predictions of the class,
    ``places`` the index of an image by its id.
    """
    objects = np.zeros(len(places))
    for item in items:
        objects[places[item['image_id']]] = np.sum(~np.asarray(item['gtIgnore'], bool))
    scores = np.concatenate([item['dtScores'] for item in items])
    images = np.concatenate(
        [np.full(len(item['dtScores']), places[item['image_id']]) for item in items]
    )
    ignored = np.concatenate([np.asarray(item['dtIgnore'], bool) for item in items], 1)
    right = (
        np.concatenate([np.asarray(item['dtMatches'], bool) for item in items], 1)
        & ~ignored
    )
    order = np.argsort(-scores, kind='stable')
    return ClassMatches(
        images[order].astype(int), right[:, order], ~ignored[:, order], objects
    )


SCORES: dict[str, Callable[[BaseMetric, Sequence], Scores]] = dict(
    CocoMetric=coco_precision,
    IoUMetric=mean_iou,
    DepthMetric=depth_error,
    ValidDepthMetric=depth_error,
    TopKAccuracy=top_one,
)
