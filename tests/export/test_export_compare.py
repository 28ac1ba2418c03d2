"""Comparison of an exported file with its model."""

import torch
from torch import Tensor, nn

from rope_dense.export.compare import largest_difference


class Detector(nn.Module):
    """Scores and boxes: zeros, where nothing is found."""

    outputs = compared = ('scores', 'boxes')

    def __init__(self, scale: float, shift: float = 0.0) -> None:
        super().__init__()
        self.scale, self.shift = scale, shift

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        return image * 0 + self.shift, image * self.scale


def test_an_output_of_zeros_is_compared_as_it_is(tmp_path):
    image = torch.linspace(0, 2, 6).reshape(1, 1, 2, 3)

    def difference(file: Detector) -> float:
        path = tmp_path / 'file.pt2'
        torch.export.save(torch.export.export(file, (image,)), path)
        return largest_difference(path, Detector(1.0), image)

    assert difference(Detector(1.0)) == 0
    assert difference(Detector(1.5)) == 0.5
    assert difference(Detector(1.0, shift=0.25)) == 0.25
