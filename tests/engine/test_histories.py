"""Histories of logged values, which each iteration copies and each checkpoint has, are bounded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from helpers.toy_runs import curves, toy_config, toy_run
from rope_dense.engine import runner as runners

pytestmark = pytest.mark.usefixtures('surroundings')


def test_a_history_has_a_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the longer one of a checkpoint from before, and of no line that is logged."""
    window = dict(
        log_processor=dict(type='LogProcessor', window_size=5, by_epoch=False)
    )
    toy_run(toy_config(tmp_path / 'whole', **window))
    toy_run(toy_config(tmp_path / 'run', 8, **window))
    monkeypatch.setattr(runners, 'LOGGED', 5)
    longer = toy_config(tmp_path / 'run', 12, **window)
    runner = toy_run(longer, resume=tmp_path / 'run' / 'iter_8.pth')
    saved = torch.load(tmp_path / 'run' / 'iter_12.pth', weights_only=False)[
        'message_hub'
    ]
    for histories in (runner.message_hub.log_scalars, saved['log_scalars']):
        assert {len(history.data[0]) for history in histories.values()} <= {
            1,
            2,
            3,
            4,
            5,
        }
        assert (
            len(histories['train/loss'].data[0])
            == len(histories['train/loss'].data[1])
            == 5
        )
    losses = [
        [line['loss'] for line in curves(tmp_path / name).values()]
        for name in ('whole', 'run')
    ]
    assert losses[0] == losses[1]
