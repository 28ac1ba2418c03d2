"""The study of ``PositionalDebias``: labels, scores, page."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

STUDY = Path(__file__).parents[2] / 'docs' / 'research' / 'positional_debias'
# It imports run.py of the scaling study, and has this name itself.
spec = importlib.util.spec_from_file_location('debias_study', STUDY / 'run.py')
study = importlib.util.module_from_spec(spec)
sys.modules['debias_study'] = study
other = sys.modules.pop('run', None)
spec.loader.exec_module(study)
del sys.modules['run']
if other is not None:
    sys.modules['run'] = other


def test_labels_of_patches() -> None:
    mask = np.zeros((20, 30), np.uint8)
    mask[:, 10:20] = 3
    mask[:10, 20:30] = 255
    mask[10:, 20:26] = 1  # six tenths of a patch
    labels = study.patch_labels(mask, 11)
    assert labels.tolist() == [0, 3, 255, 0, 3, 255]


def test_a_linear_head_finds_what_is_linear() -> None:
    torch.manual_seed(0)
    x, plane = torch.randn(4, 50, 6), torch.randn(6)
    y = (x @ plane > 0).long()
    y[0, :3] = study.IGNORED
    assert study.head_score((x, y), (x, y), 2) > 97
    assert study.head_score((x, y), (x, 1 - y.clamp(max=1)), 2) < 3


def test_matching_counts_each_class_once() -> None:
    """Lengths do not matter. Of class 0, four patches of five find it, of class 1 two of two; the
    patch of class 2, which the other image lacks, does not count."""
    east, north = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    first = torch.stack([9 * east, east, north, north, east])
    second = torch.stack([north, east, 5 * east, north, north])
    y = torch.tensor([[0, 0, 1, 0, 2], [1, 0, 0, study.IGNORED, study.IGNORED]])
    first[3] = torch.tensor([0.1, 1.0])  # class 0 that looks like 1
    found = study.match_score(torch.stack([first, second]), y)
    # From the first image 2 of 3 and 1 of 1, from the second 2 of 2 and 1 of 1.
    assert found == pytest.approx(100 * (4 / 5 + 1) / 2)


def test_page_has_the_tables_of_the_results() -> None:
    page = (STUDY / 'README.md').read_text(encoding='utf-8')
    assert '\n'.join(['', *study.results(), '']) in page
    settings = len(study.BACKBONES) * len(study.SEEDS)
    assert len(study.read(study.RESULTS)) == settings * len(study.NECKS) * len(
        study.TASKS
    )
    assert len(study.read(study.SIZES)) == settings * len(study.GROWTH)


@pytest.mark.parametrize(
    'values, is_clear', [((1, 1.2, 1.4), True), ((0.3, 0.4, 0.5), False)]
)
def test_the_criterion(values: tuple[float, ...], is_clear: bool) -> None:
    assert study.counts(values) == is_clear and not study.counts((-1, 2, 3))
