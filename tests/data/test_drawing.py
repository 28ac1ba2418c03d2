"""Names on drawn pictures can be read, cover no other object, and are shown as they are."""

import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmdet.visualization import DetLocalVisualizer
from mmengine.structures import InstanceData, PixelData
from mmengine.visualization import Visualizer
from mmrotate.visualization import RotLocalVisualizer
from mmseg.structures import SegDataSample
from mmseg.visualization import SegLocalVisualizer

from rope_dense.data.images.drawing import draw

SHOWN = dict(gt=dict(draw_gt=True, draw_pred=False), pred={})
IMAGE = np.full((60, 240, 3), 40, np.uint8)
RED, BLUE = (255, 0, 0), (0, 0, 255)


def named(visualizer: Visualizer, *names: str) -> Visualizer:
    visualizer.dataset_meta = dict(classes=names, palette=[RED, BLUE][: len(names)])
    return visualizer


def drawn(name: str, kind: str = 'pred', image: np.ndarray = IMAGE) -> np.ndarray:
    """A picture with a box of 0.1 of its sides from its middle."""
    height, width = image.shape[:2]
    box = [[width / 2, height / 2, 0.6 * width, 0.6 * height]]
    return boxes_drawn(image, box, [0], name, kind=kind)


def boxes_drawn(
    image: np.ndarray,
    boxes: list[list[float]],
    labels: list[int],
    *names: str,
    kind: str = 'pred',
) -> np.ndarray:
    objects = InstanceData(bboxes=torch.tensor(boxes), labels=torch.tensor(labels))
    if kind == 'pred':
        objects.scores = torch.ones(len(boxes))
    visualizer = named(DetLocalVisualizer(name='drawing'), *names)
    sample = DetDataSample(**{f'{kind}_instances': objects})
    return draw(visualizer, 'a.png', image, sample, **SHOWN[kind])


def grey(height: int, width: int) -> np.ndarray:
    return np.full((height, width, 3), 40, np.uint8)


def coloured(picture: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    return (picture == colour[::-1]).all(-1)


@pytest.mark.parametrize('name', ['$x^$', 'US$1-US$5', '{$}#$', '$1_$5', 'one $'])
@pytest.mark.parametrize('kind', ['gt', 'pred'])
def test_dollars_are_drawn(name: str, kind: str) -> None:
    """matplotlib would read $...$ as a formula, which is narrower."""
    widths = []
    for text in (name, name.replace('$', '8')):  # as wide as a dollar
        red = coloured(drawn(text, kind, grey(300, 600)), RED)
        widths.append(red.any(0).sum())
    assert widths[0] == widths[1]


@pytest.mark.parametrize(
    'name', ['two\nlines', 'a\ttab', 'long ' * 100, '=cmd()', '<b>']
)
def test_odd_names_are_drawn(name: str) -> None:
    assert (drawn(name) != IMAGE).any()


@pytest.mark.parametrize('side', [320, 1280, 2560])
def test_names_and_lines_grow_with_the_picture(side: int) -> None:
    """A name is above its box, a 20th of the side high, and the line a 200th wide."""
    picture = drawn('name', image=grey(side, side))
    middle = side // 2
    tag = coloured(picture, RED)[: middle + side // 100, middle : middle + side // 20]
    assert 0.03 * side < tag.sum(0).max() < 0.06 * side  # beside the letters
    assert tag.any(1).argmax() > 0.45 * side
    line = (picture[int(0.55 * side), : middle + side // 20] != 40).any(-1).sum()
    assert side / 320 <= line <= side / 100


def test_a_name_at_the_edge_is_whole() -> None:
    [inner, edge] = [
        coloured(boxes_drawn(grey(300, 400), [box], [0], 'name'), RED)
        for box in ([100.0, 100, 140, 140], [380.0, 0, 399, 40])
    ]
    assert edge[:, :340].sum() > 100  # moved to the left, and down
    # Of the box at the edge, a part of the outline is beneath the name.
    assert edge.sum() > 0.8 * inner.sum()


def test_names_do_not_cover_each_other() -> None:
    """The first of two at one place is written, with the second's box a few pixels above."""
    boxes = [[100.0, 100, 200, 200], [102.0, 97, 202, 197]]
    picture = boxes_drawn(grey(300, 400), boxes, [0, 1], 'first', 'second')
    above = picture[80:97]
    assert coloured(above, RED).sum() > 100
    assert not coloured(above, BLUE).any()


def test_a_crowd_has_its_names_in_the_corner() -> None:
    """Colours tell the classes there, and all boxes can be seen."""
    places = [(x, y) for x in range(60, 280, 24) for y in range(60, 280, 24)]
    boxes = [[x, y, x + 14.0, y + 14.0] for x, y in places]
    labels = [0] * (len(boxes) - 1) + [1]
    picture = boxes_drawn(grey(300, 300), boxes, labels, 'cell', 'other')
    corner = picture[:58, :58]
    assert coloured(corner, RED).sum() > 200 < coloured(corner, BLUE).sum()
    for x, y in places:
        assert (picture[y + 6 : y + 9, x + 6 : x + 9] == 40).all()


def test_a_rotated_box_has_its_name_above_it() -> None:
    boxes = torch.tensor([[200.0, 80, 20, 20, 0], [200, 200, 90, 60, np.pi / 2]])
    objects = InstanceData(bboxes=boxes, labels=torch.tensor([0, 1]))
    objects.scores = torch.ones(2)
    visualizer = named(RotLocalVisualizer(name='drawing'), 'first', 'second')
    sample = DetDataSample(pred_instances=objects)
    picture = draw(visualizer, 'a.png', grey(300, 400), sample)
    assert coloured(picture[58:70, 190:230], RED).sum() > 100
    assert coloured(picture[143:155, 170:210], BLUE).sum() > 100
    assert (picture[165:235, 180:220] == 40).all()


@pytest.mark.parametrize('kind', ['gt', 'pred'])
def test_a_segment_has_its_name(kind: str) -> None:
    """Once, in its widest part, and only if it is there."""
    labels = torch.zeros(1, 200, 300).long()
    labels[:, 20:60, 20:60] = 1  # a small part
    labels[:, 60:180, 140:280] = 1
    visualizer = named(SegLocalVisualizer(name='drawing', alpha=0.5), 'wall', 'door')
    sample = SegDataSample(**{f'{kind}_sem_seg': PixelData(data=labels)})
    picture = draw(visualizer, 'a.png', grey(200, 300), sample, **SHOWN[kind])
    blue = coloured(picture, BLUE)
    assert blue[110:130, 190:230].sum() > 100
    assert not blue[20:60, 20:60].any()
    sample = SegDataSample(**{f'{kind}_sem_seg': PixelData(data=labels * 0)})
    picture = draw(visualizer, 'a.png', grey(200, 300), sample, **SHOWN[kind])
    assert not coloured(picture, BLUE).any()
    assert coloured(picture, RED).sum() > 100


def test_the_visualizer_stays_as_it_was() -> None:
    visualizer = named(SegLocalVisualizer(name='drawing'), 'wall')
    before = {**vars(visualizer)}
    sample = SegDataSample(pred_sem_seg=PixelData(data=torch.zeros(1, 20, 30).long()))
    draw(visualizer, 'a.png', grey(20, 30), sample)
    assert vars(visualizer) == before
