"""The classifiers of the study of kinds: their views, and the figures of the page."""

import csv
import importlib
from pathlib import Path

import numpy as np
import pytest

STUDY = Path(__file__).parents[2] / 'docs' / 'research' / 'scaling_study'


def test_a_view_grows_around_its_object(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(STUDY))
    study = importlib.import_module('classify')
    image = np.zeros((60, 80, 3), np.uint8)
    image[20:30, 40:50] = 255
    shift = np.zeros(2)
    for growth, side in ((2.0, 40), (2.0, 80), (1.0, 40)):
        seen = study.crop((image, 45.0, 25.0, 10), growth, shift, side)
        bright = seen[0] > 0
        share = bright.float().mean().item()
        assert share == pytest.approx(growth**-2, abs=0.1)
        rows, columns = bright.nonzero().float().mean(0).tolist()
        half = side / (10 * growth) / 2 + 0.5  # a pixel of the image
        assert (rows, columns) == pytest.approx((side / 2, side / 2), abs=half)


def test_the_page_has_the_figures():
    with open(STUDY / 'classify.csv', newline='', encoding='utf-8') as file:
        rows = [*csv.DictReader(file)]
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        found.setdefault((row['position'], row['scaling']), []).append(row['top1'])
    page = (STUDY / 'kinds.md').read_text(encoding='utf-8')
    for key, scores in found.items():
        assert f'| {" | ".join([*key, *scores])} |' in page
