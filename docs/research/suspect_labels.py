"""Break labels on purpose, and see how many of them two rankings put first: ours and cleanlab's.

    rope-dense predict RUN IMAGES --out found --score 0 --write results --ids LABELS.json
    pip install cleanlab
    python docs/research/suspect_labels.py LABELS.json found/results.json

A twentieth of the labels is broken, a third of them each: removed, moved by a quarter to a half of
their sides along both axes, or given another class. N is their number. The figure is the share of
them that the first N suspects name: by the label, or by a prediction at its true place (IoU 0.5).
For cleanlab (ObjectLab, arXiv:2309.00832) boxes are ranked by its scores for overlooked, badly
located and swapped boxes together, at its own probability thresholds and at the thresholds of our
report; it ranks images by one score. Our score of an image is the highest suspicion in it.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator, Sequence

import numpy as np

from rope_dense.report.objects import (
    Matches,
    best_threshold,
    fix_errors,
    match_truth,
    objects_of,
    overlaps,
)
from rope_dense.report.suspects import find_suspects

SHARE, SEEDS, KINDS = 0.05, range(5, 15), ('removed', 'moved', 'class')
Place = tuple[float, int, int | None, dict]  # suspicion, image, id of the label, box


def broken(
    truth: Sequence[dict], seed: int
) -> tuple[list[dict], dict[int, tuple[str, dict]]]:
    """The labels with broken ones, and what was done to which true object, by its id."""
    random, labels = np.random.default_rng(seed), copy.deepcopy([*truth])
    classes = sorted({item['category_id'] for item in truth})
    chosen = random.choice(len(labels), round(SHARE * len(labels)), replace=False)
    done = {}
    for number, index in enumerate(chosen):
        item, kind = labels[index], KINDS[number % 3]
        done[item['id']] = kind, truth[index]
        if kind == 'moved':
            step = random.uniform(0.25, 0.5, 2) * random.choice([-1, 1], 2)
            left, top, *sides = item['bbox']
            item['bbox'] = [*(np.array([left, top]) + step * sides), *sides]
        if kind == 'class':
            others = [label for label in classes if label != item['category_id']]
            item['category_id'] = int(random.choice(others))
    left = [item for item in labels if done.get(item['id'], ('', {}))[0] != 'removed']
    return left, done


def matched(truth: Sequence[dict], predictions: Sequence[dict]) -> Matches:
    return match_truth(objects_of(truth), objects_of(predictions))


def thresholds(truth: Sequence[dict], predictions: Sequence[dict]) -> dict[int, float]:
    """The score with the best F1 of each class, as in the report."""
    scored, counts = fix_errors(matched(truth, predictions))
    return {
        label: best_threshold(scored.where(scored.label == label), count)['threshold']
        for label, count in counts.items()
    }


def ours(truth: Sequence[dict], predictions: Sequence[dict]) -> Iterator[Place]:
    for x in find_suspects(matched(truth, predictions)):
        label = None if x.label is None else int(x.label['id'])
        yield (
            x.suspicion,
            int(x.other['image']),
            label,
            dict(bbox=x.other['box'].tolist()),
        )


class Cleanlab:
    """cleanlab's scores of the same labels and predictions."""

    def __init__(self, truth: Sequence[dict], predictions: Sequence[dict]) -> None:
        self.images = sorted({item['image_id'] for item in (*truth, *predictions)})
        classes = sorted({item['category_id'] for item in (*truth, *predictions)})
        self.least = float(np.mean([*thresholds(truth, predictions).values()]))
        of = {image: ([], []) for image in self.images}
        for items, place in ((truth, 0), (predictions, 1)):
            for item in items:
                of[item['image_id']][place].append(item)
        self.truth = [of[image][0] for image in self.images]
        # As cleanlab orders them: by class, as given within one.
        self.found = [
            [
                [item for item in of[image][1] if item['category_id'] == name]
                for name in classes
            ]
            for image in self.images
        ]
        self.labels = [
            dict(
                bboxes=np.array([corners(item) for item in items], float).reshape(
                    -1, 4
                ),
                labels=np.array(
                    [classes.index(item['category_id']) for item in items], int
                ),
            )
            for items in self.truth
        ]
        self.predictions = []
        for groups in self.found:
            arrays = np.empty(len(classes), object)
            for number, group in enumerate(groups):
                rows = [[*corners(item), item['score']] for item in group]
                arrays[number] = np.array(rows, float).reshape(-1, 5)
            self.predictions.append(arrays)

    def places(self, is_tuned: bool) -> Iterator[Place]:
        """The boxes by its three scores."""
        from cleanlab.object_detection import rank

        given = dict(labels=self.labels, predictions=self.predictions)
        high = dict(high_probability_threshold=self.least) if is_tuned else {}
        low = dict(low_probability_threshold=self.least) if is_tuned else {}
        overlooked = rank.compute_overlooked_box_scores(**given, **high)
        badly = rank.compute_badloc_box_scores(**given, **low)
        swapped = rank.compute_swap_box_scores(**given, **high)
        for number, image in enumerate(self.images):
            flat = [item for group in self.found[number] for item in group]
            for score, item in zip(overlooked[number], flat, strict=True):
                if not np.isnan(score):
                    yield 1 - score, image, None, item
            for scores in (badly[number], swapped[number]):
                for score, item in zip(scores, self.truth[number], strict=True):
                    yield 1 - score, image, item['id'], {}

    def ranked_images(self) -> list[int]:
        from cleanlab.object_detection.rank import get_label_quality_scores

        scores = get_label_quality_scores(self.labels, self.predictions, verbose=False)
        return [self.images[index] for index in np.argsort(scores, kind='stable')]


def corners(item: dict) -> list[float]:
    left, top, width, height = item['bbox']
    return [left, top, left + width, top + height]


def named(places: Sequence[Place], done: dict[int, tuple[str, dict]]) -> set[int]:
    """The broken objects among the first places, as many as there are broken ones."""
    found = set()
    for _, image, label, box in sorted(places, key=lambda place: -place[0])[
        : len(done)
    ]:
        near = [
            dict(item, image_id=0)
            for _, item in done.values()
            if item['image_id'] == image
        ]
        same = []
        if box and near:
            given = objects_of([dict(box, category_id=0)], 0)
            same = overlaps(given, objects_of(near), False)[0] >= 0.5
        found |= {label} & {*done}
        found |= {
            item['id'] for item, is_same in zip(near, same, strict=False) if is_same
        }
    return found


def main(labels: str, results: str) -> None:
    with open(labels, encoding='utf-8') as file:
        truth = json.load(file)['annotations']
    with open(results, encoding='utf-8') as file:
        predictions = json.load(file)
    rows: dict[str, list[list[float]]] = {}
    for seed in SEEDS:
        given, done = broken(truth, seed)
        other, mine = Cleanlab(given, predictions), [*ours(given, predictions)]
        images = {item['image_id'] for _, item in done.values()}
        first = [*dict.fromkeys(place[1] for place in mine)][: len(images)]
        theirs = other.ranked_images()[: len(images)]
        for name, places in (
            ('rope_dense', mine),
            ('cleanlab', [*other.places(False)]),
            ('cleanlab, thresholds of the report', [*other.places(True)]),
        ):
            hits = named(places, done)
            shares = [np.mean([key in hits for key in done])]
            for kind in KINDS:
                shares.append(
                    np.mean([key in hits for key, (x, _) in done.items() if x == kind])
                )
            rows.setdefault(name, []).append(shares)
        rows.setdefault('rope_dense, images', []).append(
            [len({*first} & images) / len(images)]
        )
        rows.setdefault('cleanlab, images', []).append(
            [len({*theirs} & images) / len(images)]
        )
    print(f'{"recall among the first N":36} all   ', '  '.join(KINDS))
    for name, shares in rows.items():
        values = np.array(shares)
        print(f'{name:36}', *(f'{value:.2f}  ' for value in values.mean(0)), end=' ')
        print(f'all: {values[:, 0].min():.2f} to {values[:, 0].max():.2f}')


if __name__ == '__main__':
    main(*sys.argv[1:])
