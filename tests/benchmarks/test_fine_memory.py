import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / 'benchmarks'))

from fine_memory import AliveBytes, count


def test_tensors_count_until_they_are_freed() -> None:
    with AliveBytes() as alive:
        x = torch.zeros(1000)  # 4000 bytes
        y = x.view(10, 100) + 1  # a view is no memory of its own
        del x, y
        torch.zeros(1500)
    assert (alive.peak, alive.now) == (8000, 0)


def test_resizing_needs_its_output_alone() -> None:
    output = 768 * 64 * 64 * 4
    assert count(64, 4, 16, 'bilinear', torch.float32) == output
    # Fine features need the widest part of the guidance: 128 channels of 256 x 256 pixels.
    assert count(64, 4, 16, 'attention', torch.float32) > output + 128 * 256 * 256 * 4
