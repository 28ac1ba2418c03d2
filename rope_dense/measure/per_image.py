"""Tests of a sample of images that keep what the metric knows of each image."""

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import asdict, dataclass

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
    if isinstance(dataset, TiledDataset):
        return dataset.images
    return np.arange(len(dataset))


class KeptResults(TiledEvaluator):
    """Metrics that are not computed: results of the images are kept."""

    def evaluate(self, size: int) -> dict:
        """No metric; ``results`` has a list of results for each of ``metrics``."""
        self.results = [list(metric.results) for metric in self.metrics]
        return {}


def check_metric(config: Config) -> None:
    """Raise UsageError unless a metric of the test has results of single images."""
    given = [str(metric.type) for _, metric in evaluators(config, 'test_evaluator')]
    known = {name.rpartition('.')[2] for name in given} & SCORES.keys()
    if not known:
        raise UsageError(
            f'test_evaluator: {", ".join(given)} cannot be resampled by images, only '
            f'{", ".join(SCORES)}; compare settings with `rope-dense eval-resolutions`'
        )


def score_images(
    evaluator: Evaluator,
    setting: Setting,
    sample: Sample,
    title: str,
) -> Scores:
    """Test a sample of the images with a setting; ``title`` is of the progress.

    ValueError as of ``Evaluator.apply``, or if the sample has no image.
    """
    config = evaluator.apply(setting)
    config.test_dataloader.sampler = ConfigDict(type='ImageSampler', **asdict(sample))
    assert evaluator.runner is not None
    settings = [metric for _, metric in evaluators(config, 'test_evaluator')]
    with contextlib.redirect_stdout(io.StringIO()):  # what pycocotools prints
        loop = evaluator.runner.test_loop
        metrics = KeptResults(settings)
        loop.run_on(config, title, metrics)
        return metric_scores(metrics, loop.dataloader.sampler.images)


def metric_scores(metrics: KeptResults, images: np.ndarray) -> Scores:
    """The scores of the first metric that has some; ``images`` as of ``ImageSampler``."""
    for metric, results in zip(metrics.metrics, metrics.results, strict=True):
        compute = SCORES.get(type(metric).__name__)
        if compute is None:
            continue
        if not results:
            raise ValueError(
                f'{type(metric).__name__}: no image of the sample has labels'
            )
        if compute is mean_iou:  # the areas of the tiles of an image are added
            by_image = dict[int, list]()
            for image, areas in zip(images, results, strict=True):
                by_image.setdefault(image, []).append(areas)
            results = [
                tuple(map(sum, zip(*tiles, strict=True))) for tiles in by_image.values()
            ]
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
    intersections, unions, *_ = zip(*results, strict=True)
    intersection = torch.stack(intersections).double().numpy()
    union = torch.stack(unions).double().numpy()
    return MeanIoU('mIoU', len(results), True, intersection, union)


def coco_precision(metric: BaseMetric, results: Sequence[tuple[dict, dict]]) -> MeanAP:
    """COCO's mAP of masks, if the metric has it, else of boxes, of results of ``CocoMetric``.

    Objects and predictions are matched by pycocotools, image by image.
    """
    truth, found = zip(*results, strict=True)
    kind = 'segm' if 'segm' in metric.metrics else 'bbox'
    with tempfile.TemporaryDirectory() as folder:
        coco = metric._coco_api
        if coco is None:
            coco = COCO(metric.gt_to_coco_json(truth, f'{folder}/truth'))
        metric.cat_ids = coco.getCatIds(catNms=list(metric.dataset_meta['classes']))
        files = metric.results2json(found, f'{folder}/found')
        predictions = load(files[kind])
    if kind == 'segm':
        for item in predictions:
            item.pop('bbox', None)
    evaluation = COCOeval(coco, load_predictions(coco, predictions), kind)
    params = evaluation.params
    params.catIds = metric.cat_ids
    params.imgIds = [item['img_id'] for item in truth]
    params.iouThrs = np.asarray(metric.iou_thrs)
    params.maxDets = [max(metric.proposal_nums)]
    return MeanAP(f'coco/{kind}_mAP', len(truth), True, class_matches(evaluation))


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
    params.areaRng = params.areaRng[:1]
    params.areaRngLbl = params.areaRngLbl[:1]
    evaluation.evaluate()
    by_class: dict[int, list[dict]] = {}
    for item in filter(None, evaluation.evalImgs):
        by_class.setdefault(item['category_id'], []).append(item)
    found = [matches_of(items, places) for items in by_class.values()]
    return [matches for matches in found if matches.objects.any()]


def matches_of(items: Sequence[dict], places: dict[int, int]) -> ClassMatches:
    """The matches of a class.

    ``items`` are pycocotools' for the images that have objects or predictions of the class,
    ``places`` the index of an image by its id.
    """
    objects = np.zeros(len(places))
    images = []
    scores = []
    ignored = []
    found = []
    for item in items:
        place = places[item['image_id']]
        objects[place] = np.sum(~np.asarray(item['gtIgnore'], bool))
        images.append(np.full(len(item['dtScores']), place))
        scores.append(item['dtScores'])
        ignored.append(np.asarray(item['dtIgnore'], bool))
        found.append(np.asarray(item['dtMatches'], bool))
    order = np.argsort(-np.concatenate(scores), kind='stable')
    counted = ~np.concatenate(ignored, 1)[:, order]
    right = np.concatenate(found, 1)[:, order] & counted
    return ClassMatches(np.concatenate(images)[order], right, counted, objects)


SCORES: dict[str, Callable[[BaseMetric, Sequence], Scores]] = dict(
    CocoMetric=coco_precision,
    IoUMetric=mean_iou,
    DepthMetric=depth_error,
    ValidDepthMetric=depth_error,
    TopKAccuracy=top_one,
)
