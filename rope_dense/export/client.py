"""What a client would have to write itself: the size of the test pipeline, and a threshold.

Traced, the size of the test pipeline would be a formula in all sizes after it. So the program has a
second input, ``resized``, with a size of its own; in the file it is computed from the first.

Letters: B images, C channels, H x W pixels, n points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..utils.sizes import ImageSize

if TYPE_CHECKING:
    import onnx_ir as ir


class Resize(NamedTuple):
    """Images at the size that a test pipeline gives them, as by mmcv's ``Resize``.

    Bilinear as in OpenCV, within one grey level. Checked in tests/export/test_export_client.py.

    Attributes:
        scale: (width, height) in pixels.
        keep_ratio: the scale bounds both sides.
        shortest: side of an image after it.
    """

    scale: tuple[int, int]
    keep_ratio: bool
    shortest: int = 1

    def size(self, height: int, width: int) -> ImageSize:
        """(height, width) of an image after it, in whole numbers: programs differ in others."""
        if not self.keep_ratio:
            return self.scale[1], self.scale[0]
        (least, most), (shorter, longer) = sorted(self.scale), sorted((height, width))
        to, of = (most, longer) if most * shorter <= least * longer else (least, shorter)
        rounded = ((2 * side * to + of) // (2 * of) for side in (height, width))
        rows, columns = (max(side, self.shortest) for side in rounded)
        return rows, columns

    def __call__(self, image: Tensor) -> Tensor:
        """Images [B, C, H, W], uint8 or float32, to float32."""
        return F.interpolate(image.float(), self.size(*image.shape[2:]), mode='bilinear')


class Frame(NamedTuple):
    """Sizes of an image: that the model sees, without padding, and of the input."""

    size: ImageSize
    input: ImageSize

    def ratios(self, like: Tensor) -> Tensor:
        """Pixels of the input to a pixel of the model, (x, y) [2], of the type of ``like``."""
        one = like.new_ones(())
        rows, columns = (one * new / (one * old) for old, new in zip(*self, strict=True))
        return torch.stack([columns, rows])

    def points(self, points: Tensor) -> Tensor:
        """Points [..., 2 n], (x, y) each, in pixels of the model, to pixels of the input."""
        if self.input is self.size:
            return points
        return points * self.ratios(points).repeat(points.shape[-1] // 2)

    def maps(self, maps: Tensor) -> Tensor:
        """Maps [B, C, H, W] on the pixels of the model, to those of the input; bilinear."""
        if self.input is self.size:
            return maps
        return F.interpolate(maps, self.input, mode='bilinear', align_corners=False)


class Nodes(list):
    """Nodes of ONNX to be put into a graph."""

    def add(self, kind: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """The output of a new node."""
        import onnx_ir as ir

        self.append(ir.node(kind, inputs, attributes))
        return self[-1].outputs[0]

    def numbers(self, *numbers: int) -> ir.Value:
        """A constant."""
        return self.add('Constant', value_ints=list(numbers))


def write_resize(graph: ir.Graph, resize: Resize) -> None:
    """Compute the second input of a graph from its first, as ``Resize``."""
    import onnx_ir as ir

    image, resized = graph.inputs
    nodes = Nodes()
    add, numbers = nodes.add, nodes.numbers
    size = numbers(resize.scale[1], resize.scale[0])
    if resize.keep_ratio:
        least, most = map(numbers, sorted(resize.scale))
        sides = add('Shape', image, start=2, end=4)
        longer, shorter = (add(kind, sides, keepdims=1) for kind in ('ReduceMax', 'ReduceMin'))
        is_long = add('LessOrEqual', add('Mul', most, shorter), add('Mul', least, longer))
        to, of = add('Where', is_long, most, least), add('Where', is_long, longer, shorter)
        grown = add('Add', add('Mul', add('Mul', sides, to), numbers(2)), of)
        size = add('Max', add('Div', grown, add('Mul', of, numbers(2))), numbers(resize.shortest))
    shape = add('Concat', add('Shape', image, end=2), size, axis=0)
    x = add('Resize', add('Cast', image, to=1), None, None, shape, mode='linear')
    ir.convenience.replace_all_uses_with(resized, x)
    graph.insert_before(graph[0], nodes)
    graph.inputs.remove(resized)


def write_threshold(graph: ir.Graph, groups: Sequence[Sequence[str]], score: float) -> None:
    """Leave out detections below a score; where an image of the batch has fewer, scores are 0.

    Args:
        groups: the names of the outputs of each detector, its scores first.
    """
    import onnx_ir as ir

    places = {out.name: place for place, out in enumerate(graph.outputs)}
    nodes = Nodes()
    add, numbers = nodes.add, nodes.numbers
    for names in groups:
        outs = [graph.outputs[places[name]] for name in names]
        enough = add('GreaterOrEqual', outs[0], add('Constant', value_float=score))
        counts = add('ReduceSum', add('Cast', enough, to=7), numbers(1), keepdims=0)
        number = add('ReduceMax', counts, keepdims=1)
        kept = [add('Where', enough, outs[0], add('Constant', value_float=0.0)), *outs[1:]]
        for name, old, values in zip(names, outs, kept, strict=True):
            new = add('Slice', values, numbers(0), number, numbers(1))
            assert old.shape is not None
            batch, _, *others = old.shape
            new.type, new.shape = old.type, ir.Shape([batch, 'detections', *others])
            old.name, new.name = f'{name}_all', name
            graph.outputs[places[name]] = new
    graph.extend(nodes)
