"""Oriented boxes as seven real numbers without a border and without a special case.

A box of sides w and h at angle a (radians, clockwise, y down) is the same box as (w, h, a + pi) and
(h, w, a + pi / 2), and a square has no longer side. Numbers that are functions of the box itself,
and continuous:

    size     m = log(w h) / 2
    stretch  u = log(w / h) / 2 * (cos 2a, sin 2a)     0 for squares
    turn     v = (cos 4a - 1, sin 4a) / 2              0 for boxes along the axes

m and u are the logarithm of the symmetric matrix A = R(a) diag(w, h) R(a)^T, which takes the unit
circle to the ellipse in the box; it has the angle of a long box, and none of a square, which v has.
So a box is (x, y, m, u1, u2, v1, v2), and a sum of such numbers is a box. x, y, w and h are in
units of the mean of the two sides of the image, so that an image of any shape has the same geometry
in both directions. If the image rotates by 90 degrees, centres and their shifts rotate, m and v
stay, and u becomes -u.

Published real-time detectors predict the angle itself, with a distribution for the vertices of a
rectangle around the box (Ding et al., "Real-Time Oriented Object Detection Transformer in Remote
Sensing Images", TGRS 2026) or with a loss along the shorter way around the period (Hu et al.,
"RiO-DETR", 2026), and match by distances of vertices (RHINO, Lee et al., WACV 2025), because an
angle has a border, and two values for a square. Angles at two frequencies have neither: Yu and Da,
"Phase-Shifting Coder" (CVPR 2023). Sums of logarithms of matrices are the log-Euclidean metric
(Arsigny et al., 2006).

Letters: M boxes.
"""

import math

import torch
from torch import Tensor

NUMBERS = 7
SPLIT = (2, 3, 2)  # centre; m and u, the shape; v
SIDES = 1e-4, 1e3  # least and largest of an annotation, in units of the image
FARTHEST = 1e6  # distance of two boxes in units of one of them, whose square is finite
BOUND = 8.0  # of m and u: exp(-8) of an image has no pixel
TINY = 1e-12  # keeps the derivative of a norm at 0 finite


def from_rotated(boxes: Tensor) -> Tensor:
    """(cx, cy, w, h, a) [..., 5] in any convention of the angle to our numbers [..., 7].

    Sides outside ``SIDES`` count as its ends; numbers that are not finite give NaN.
    """
    centre, sides, angle = boxes.split([2, 2, 1], -1)
    width, height = (sides.clamp(*SIDES).log() + 0 * sides).chunk(2, -1)
    twice = 2 * angle
    four_times = 4 * angle
    stretch = (width - height) / 2 * torch.cat([twice.cos(), twice.sin()], -1)
    turn = torch.cat([four_times.cos() - 1, four_times.sin()], -1) / 2
    return torch.cat([centre, (width + height) / 2, stretch, turn], -1)


def to_rotated(boxes: Tensor) -> Tensor:
    """Our numbers to (cx, cy, w, h, a) with w >= h and a in [-pi / 2, pi / 2), which is le90.

    (cos 4a, sin 4a) of ``turn`` and of ``stretch``, whose weight is log(w / h) ** 2, give the angle
    up to quarter turns; ``stretch`` tells which side is the longer one.
    """
    centre, size, stretch, turn = boxes.split([2, 1, 2, 2], -1)
    length = norm(stretch)
    (u1, u2), (v1, v2) = stretch.chunk(2, -1), turn.chunk(2, -1)
    sine = 2 * v2 + 8 * u1 * u2
    cosine = 1 + 2 * v1 + 4 * (u1 - u2) * (u1 + u2)
    angle = torch.atan2(sine, cosine) / 4
    is_across = u1 * (2 * angle).cos() + u2 * (2 * angle).sin() < 0
    across = torch.where(angle < 0, angle + math.pi / 2, angle - math.pi / 2)
    angle = torch.where(is_across, across, angle)
    return torch.cat([centre, (size + length).exp(), (size - length).exp(), angle], -1)


def corners_of(boxes: Tensor) -> Tensor:
    """(cx, cy, w, h, a) [..., 5] to corners [..., 4, 2], (x, y), around each box."""
    centre, sides, angle = boxes.split([2, 2, 1], -1)
    along, across = (sides / 2).chunk(2, -1)
    along = along * torch.cat([angle.cos(), angle.sin()], -1)
    across = across * torch.cat([-angle.sin(), angle.cos()], -1)
    points = (-along - across, along - across, along + across, across - along)
    return torch.stack([centre + point for point in points], -2)


def matrices(shape: Tensor) -> Tensor:
    """(m, u1, u2) to (A11, A22, A12), both [..., 3]; -shape gives the inverse matrix."""
    size, stretch = shape.split([1, 2], -1)
    length = norm(stretch)
    even = size.exp() * length.cosh()
    first, second = (size.exp() * length.sinh() / length * stretch).chunk(2, -1)
    return torch.cat([even + first, even - first, second], -1)


def norm(stretch: Tensor) -> Tensor:
    """Length [..., 1] of [..., 2], at least 1e-6."""
    # a sum with TINY would be left out of an ONNX file
    return stretch.square().sum(-1, keepdim=True).clamp(min=TINY).sqrt()


def apply(matrix: Tensor, vectors: Tensor) -> Tensor:
    """Products [..., 2] of symmetric matrices (A11, A22, A12) [..., 3] and vectors [..., 2]."""
    first, second, mixed = matrix.unbind(-1)
    x, y = vectors.unbind(-1)
    return torch.stack([first * x + mixed * y, mixed * x + second * y], -1)


def move_boxes(boxes: Tensor, change: Tensor) -> Tensor:
    """Boxes [..., 7] after a change [..., 7] of each.

    The first two numbers shift the centre, relative to the sides of the box and along them; the
    others are added.
    """
    centre, others = boxes.split([2, 5], -1)
    shift, growth = change.split([2, 5], -1)
    step = apply(matrices(others[..., :3]), shift)
    return torch.cat([centre + step, (others + growth).clamp(-BOUND, BOUND)], -1)


def change_between(reference: Tensor, boxes: Tensor) -> Tensor:
    """The change [..., 7] with which ``move_boxes`` makes boxes from reference boxes."""
    centre, others = reference.split([2, 5], -1)
    box_centre, box_others = boxes.split([2, 5], -1)
    shift = apply(matrices(-others[..., :3]), box_centre - centre)
    return torch.cat([shift, box_others - others], -1)


def entries(boxes: Tensor) -> Tensor:
    """(x, y, A11, A22, 2 A12, exp(m) v), [..., 7]: (cx, cy, w, h, 0, 0, 0) along the axes.

    All are lengths. Their L1 distance counts the centres, all entries of the matrices and the turn.
    For boxes along the axes it is the distance of (cx, cy, w, h). A rotation by 90 degrees
    keeps it.
    """
    centre, shape, turn = boxes.split(SPLIT, -1)
    sides, mixed = matrices(shape).split([2, 1], -1)
    return torch.cat([centre, sides, 2 * mixed, shape[..., :1].exp() * turn], -1)


def divergence(boxes: Tensor, targets: Tensor) -> Tensor:
    """Kullback-Leibler divergence of boxes and targets as Gaussians; leading axes broadcast.

    The covariance of a box is A A / 4. Yang et al., "Learning High-Precision Bounding Box for
    Rotated Object Detection via Kullback-Leibler Divergence" (NeurIPS 2021). As mmrotate's
    ``kld_loss``, which has no pairs of all boxes and divides by determinants that cancel for thin
    boxes; checked against it in tests/models/deim/test_oriented_boxes.py.
    """
    centre, shape, _ = boxes.split(SPLIT, -1)
    to_centre, to_shape, _ = targets.split(SPLIT, -1)
    inverse = matrices(-shape)
    matrix = matrices(to_shape)
    distance = apply(inverse, to_centre - centre).clamp(-FARTHEST, FARTHEST)
    distance = distance.square().sum(-1)
    # Of the inverse, each a vector.
    rows = (inverse[..., 0::2], inverse[..., 1:].flip(-1))
    product = sum(apply(matrix, row).square().sum(-1) for row in rows)
    return product / 2 + 2 * distance + 2 * (shape - to_shape)[..., 0] - 1


def saturate(distance: Tensor) -> Tensor:
    """A divergence, 0 or more, as a loss below 1: mmrotate's with ``fun='log1p', tau=1``."""
    return 1 - 1 / (1 + distance.clamp(min=0).log1p())
