"""The evaluator of COCO's figures that mmdet's ``CocoMetric`` uses."""

import contextlib
import io

from mmdet.evaluation.metrics import coco_metric
from pycocotools.cocoeval import COCOeval

from ...engine.figure_source import has_faster_coco


class OneLimit(COCOeval):
    """pycocotools' evaluation, whose mean of AP counts as many boxes as its other figures.

    pycocotools' counts 100 whatever ``maxDets`` is, or is -1.
    """

    def summarize(self) -> None:
        """Compute and print the figures."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            super().summarize()
        precision = self.eval['precision'][..., 0, -1]
        known = precision[precision > -1]
        self.stats[0] = known.mean() if known.size else -1
        limit = self.params.maxDets[-1]
        print(f'AP of the {limit} best of a class in an image: {self.stats[0]:.3f}')
        print(printed.getvalue().partition('\n')[2], end='')


def use_one_limit() -> bool:
    """Let mmdet's ``CocoMetric`` count as many boxes in each figure, the largest ``maxDets``.

    It uses faster-coco-eval, which computes pycocotools' figures in less time
    (tests/project/test_coco_eval.py); False where it is not installed. mmdet's ``use_mp_eval``
    still evaluates with pycocotools.
    """
    has_faster = has_faster_coco()
    coco_metric.COCOeval = OneLimit
    if has_faster:
        from faster_coco_eval import COCOeval_faster

        coco_metric.COCOeval = COCOeval_faster
    return has_faster
