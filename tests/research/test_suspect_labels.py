"""docs/research/suspect_labels.py: labels are broken as it says, and ours finds them."""

import runpy
from collections import Counter
from pathlib import Path

import numpy as np

SCRIPT = Path(__file__).parents[2] / 'docs' / 'research' / 'suspect_labels.py'


def test_broken_labels_are_named() -> None:
    """Of nearly perfect predictions nine of ten at least, and none of right labels."""
    script = runpy.run_path(str(SCRIPT))
    random = np.random.default_rng(0)
    truth, predictions = [], []
    for number in range(300):
        column, row = number % 3, number // 3 % 2  # six objects in an image
        box = [column * 60.0, row * 60.0, *random.uniform(20, 50, 2)]
        item = dict(
            image_id=number // 6, category_id=int(random.integers(1, 5)), bbox=box
        )
        truth.append(item | dict(id=number, iscrowd=0))
        noisy = [*(np.array(box) + random.normal(0, 1, 4))]
        predictions.append(item | dict(bbox=noisy, score=float(random.uniform(0.6, 1))))
    labels, done = script['broken'](truth, seed=0)
    assert Counter(kind for kind, _ in done.values()) == dict(
        removed=5, moved=5, **{'class': 5}
    )
    assert len(labels) == 295 and len(done) == 15
    changed = [x['id'] for x in labels if x != truth[x['id']]]
    assert {*changed} == {key for key, (kind, _) in done.items() if kind != 'removed'}
    named = script['named']([*script['ours'](labels, predictions)], done)
    assert len(named & {*done}) >= 14
    assert not [place for place in script['ours'](truth, predictions) if place[0] > 0.3]
