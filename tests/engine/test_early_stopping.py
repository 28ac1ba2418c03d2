"""A resumed run stops where an uninterrupted one does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mmengine.config import Config

from helpers.toy_runs import log_of, toy_config, toy_run

pytestmark = pytest.mark.usefixtures('surroundings')


def config(
    folder: Path, results: Sequence[float], iterations: int = 40, **more: Any
) -> Config:
    """A run that stops after two evaluations, each of four iterations, without improvement."""
    stop = dict(type='ResumableEarlyStoppingHook', monitor='score', rule='greater')
    stop.update(patience=2, min_delta=1e-6)
    return toy_config(folder, iterations, results, custom_hooks=[dict(stop, **more)])


def test_small_progress_counts_and_none_does_not(tmp_path: Path) -> None:
    assert toy_run(config(tmp_path, (0.1, 0.101, 0.102, 0.102, 0.102, 0.9))).iter == 20


def test_the_count_and_the_best_score_are_resumed(tmp_path: Path) -> None:
    """After 0.3 there is one evaluation in each process."""
    toy_run(config(tmp_path, (0.3, 0.2), 8))
    runner = toy_run(config(tmp_path, (0.25, 0.9)), resume=tmp_path / 'iter_8.pth')
    assert runner.iter == 12


def test_a_run_that_has_stopped_stays_so_unless_it_may_wait_longer(
    tmp_path: Path,
) -> None:
    toy_run(config(tmp_path, (0.3, 0.2, 0.1)))
    runner = toy_run(config(tmp_path, ()), resume=tmp_path / 'iter_12.pth')
    assert runner.iter == 12 and 'stopped after 2 evaluations' in log_of(runner)
    longer = config(tmp_path, (0.2, 0.9), patience=3)
    assert toy_run(longer, resume=tmp_path / 'iter_12.pth').iter == 16
