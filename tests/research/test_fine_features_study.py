"""The study of fine features: its scores by hand, and its page beside its results."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

FOLDER = Path(__file__).parents[2] / 'docs' / 'research' / 'fine_features'


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f'fine_features_{name}', FOLDER / f'{name}.py'
    )
    module = sys.modules[spec.name] = importlib.util.module_from_spec(
        spec
    )  # for dataclasses
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_tables_of_the_results() -> None:
    summarize, page = script('summarize'), (FOLDER / 'README.md').read_text()
    tables = [summarize.table(*which) for which in summarize.TABLES]
    for table in (summarize.errors(), *tables):
        assert table in page


@pytest.mark.parametrize('shift, f1', [(0, 100.0), (2, 100.0), (3, 0.0)])
def test_borders_count_within_two_pixels(shift: int, f1: float) -> None:
    labels = torch.zeros(1, 12, 24, dtype=torch.int64)
    predicted = labels.clone()
    labels[:, :, 10:], predicted[:, :, 10 + shift :] = 4, 4
    scores = script('run').scores(predicted, labels)
    assert scores['border_F1'] == f1
    sky, pavement = 100 * 10 / (10 + shift), 100 * (14 - shift) / 14
    assert scores['Sky'] == pytest.approx(sky, abs=0.01)
    assert scores['mIoU'] == pytest.approx((sky + pavement) / 2, abs=0.01)


def test_ignored_pixels_do_not_count() -> None:
    labels = torch.zeros(1, 12, 24, dtype=torch.int64)
    labels[:, :, 10:] = 4
    predicted = labels.clone()
    predicted[:, :4], labels[:, :4] = 7, 255
    scores = script('run').scores(predicted, labels)
    assert (scores['mIoU'], scores['border_F1'], scores['Fence']) == (100.0, 100.0, 0.0)
