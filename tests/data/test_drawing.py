"""Names on drawn pictures are shown as they are: matplotlib would read $...$ as a formula."""

import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmdet.visualization import DetLocalVisualizer
from mmengine.structures import InstanceData

from rope_dense.data.images.drawing import draw

SHOWN = dict(gt=dict(draw_gt=True, draw_pred=False), pred={})
IMAGE = np.full((60, 240, 3), 40, np.uint8)


def visualizer_and_sample(
    name: str, kind: str
) -> tuple[DetLocalVisualizer, DetDataSample]:
    objects = InstanceData(
        bboxes=torch.tensor([[4.0, 4, 200, 50]]), labels=torch.tensor([0])
    )
    if kind == 'pred':
        objects.scores = torch.ones(1)
    visualizer = DetLocalVisualizer(name='drawing')
    visualizer.dataset_meta = dict(classes=[name], palette=[(255, 0, 0)])
    return visualizer, DetDataSample(**{f'{kind}_instances': objects})


def drawn(name: str, kind: str = 'pred') -> np.ndarray:
    visualizer, sample = visualizer_and_sample(name, kind)
    return draw(visualizer, 'a.png', IMAGE, sample, **SHOWN[kind])


@pytest.mark.parametrize('name', ['$x^$', 'US$1-US$5', '{$}#$', '$1_$5', 'one $'])
@pytest.mark.parametrize('kind', ['gt', 'pred'])
def test_dollars_are_drawn(name: str, kind: str) -> None:
    """As by mmdet, to which a dollar after a backslash is one."""
    visualizer, sample = visualizer_and_sample(name.replace('$', r'\$'), kind)
    visualizer.add_datasample(
        'a.png', IMAGE, sample, **dict(draw_gt=False) | SHOWN[kind]
    )
    np.testing.assert_array_equal(drawn(name, kind), visualizer.get_image()[..., ::-1])


@pytest.mark.parametrize(
    'name', ['two\nlines', 'a\ttab', 'long ' * 100, '=cmd()', '<b>']
)
def test_odd_names_are_drawn(name: str) -> None:
    assert (drawn(name) != IMAGE).any()
