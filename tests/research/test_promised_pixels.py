"""docs/research/promised_pixels.py: what is missed on the other half, of scores that are made."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample

SCRIPT = Path(__file__).parents[2] / 'docs' / 'research' / 'promised_pixels.py'
spec = importlib.util.spec_from_file_location('promised_pixels', SCRIPT)
assert spec is not None and spec.loader is not None
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)


def samples(*_: Any) -> list[SegDataSample]:
    """Twenty images whose scores of the true class are uniform."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(20):
        likely = torch.rand(20, 20, generator=generator)
        logits = torch.stack([likely, 1 - likely]).log()
        truth = torch.zeros(1, 20, 20, dtype=torch.long)
        found.append(
            SegDataSample(
                seg_logits=PixelData(data=logits), gt_sem_seg=PixelData(data=truth)
            )
        )
    return found


def test_the_shares_of_uniform_scores(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = SimpleNamespace(eval=list)
    monkeypatch.setattr(program, 'find_model', lambda *given: (None, None))
    monkeypatch.setattr(program, 'ready', lambda *given, **more: (model, None, None))
    monkeypatch.setattr(program, 'build_loader', lambda cfg: None)
    monkeypatch.setattr(program, 'predict_samples', samples)
    program.main(['run'])
    lines = capsys.readouterr().out.splitlines()
    for share, line in zip(program.SHARES, lines, strict=True):
        missed = float(line.split('missed ')[1].split(',')[0])
        # Of 10 images: n / (n + 1) mean + 1 / (n + 1) is the share.
        assert abs(missed - (share - (1 - share) / 10)) < 0.02
    assert '; 1.9 masks a pixel' in lines[0]  # 2 (1 - t), and t is about 0.055
