"""Launched operations in evaluation against transformers'."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from helpers.deim import pair

sys.path.insert(0, str(Path(__file__).parents[3] / 'benchmarks'))

from launches import LaunchCounter


@pytest.mark.parametrize('size, share', [('s', 0.7), ('x', 0.75)])
def test_no_more_launches_than_transformers(size: str, share: float) -> None:
    """Their number does not depend on the width; tables are in the caches of both."""
    reference, model = pair(size)
    image = torch.randn(1, 3, 64, 96)
    with torch.no_grad():
        for _ in range(2):
            with LaunchCounter() as theirs:
                reference(image)
            with LaunchCounter() as ours:
                model.bbox_head(model.extract_feat(image))
    assert ours.total <= share * theirs.total
