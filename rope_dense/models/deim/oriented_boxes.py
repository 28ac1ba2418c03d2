"""Oriented boxes as symmetric matrices: five numbers without a border and without a special case.

A box of sides w and h at angle a (radians, clockwise, y down) is the matrix
A = R(a) diag(w, h) R(a)^T, which takes the unit circle to the ellipse in the box. It is the same
for (w, h, a), (w, h, a + pi) and (h, w, a + pi / 2), so no convention of angles (le90, oc, le135)
and no square box is a special case. Its logarithm has three free numbers:

    size     m = log(w h) / 2
    stretch  u = log(w / h) / 2 * (cos 2a, sin 2a)

So a box is (x, y, m, u1, u2), all of them real, each box once, and a sum of such numbers is a box.
x, y, w and h are in units of the mean of the two sides of the image, so that an image of any shape
has the same geometry in both directions. If the image rotates by 90 degrees, the centre and shifts
of it rotate, m stays and u becomes -u.

Published real-time detectors predict the angle itself, with a distribution for the vertices of a
rectangle around the box (Ding et al., "Real-Time Oriented Object Detection Transformer in Remote
Sensing Images", TGRS 2026) or with a loss along the shorter way around the period (Hu et al.,
"RiO-DETR", 2026), and match by distances of vertices (RHINO, Lee et al., WACV 2025), because the
angle has a border and none in a square. Sums of logarithms of such matrices are known as
log-Euclidean (Arsigny et al., 2006).

Letters: M boxes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LEAST_SIDE = 1e-4  # of an annotation, in units of the image
BOUND = 8.0  # of m and u: exp(-8) of an image has no pixel
TINY = 1e-12  # keeps the derivative of a norm at 0 finite


def from_rotated(boxes: Tensor) -> Tensor:
    """(cx, cy, w, h, a) in any convention of the angle to (x, y, m, u1, u2), both [..., 5].

    Sides below ``LEAST_SIDE`` count as that.
    """
    centre, sides, angle = boxes.split([2, 2, 1], -1)
    width, height = sides.clamp(min=LEAST_SIDE).log().chunk(2, -1)
    stretch = (width - height) / 2
    direction = torch.cat([(2 * angle).cos(), (2 * angle).sin()], -1)
    return torch.cat([centre, (width + height) / 2, stretch * direction], -1)


def to_rotated(boxes: Tensor) -> Tensor:
    """(x, y, m, u1, u2) to (cx, cy, w, h, a) with w >= h and a in [-pi / 2, pi / 2): le90."""
    centre, size, stretch = boxes.split([2, 1, 2], -1)
    length = norm(stretch)
    cos, sin = stretch.chunk(2, -1)
    angle = torch.atan2(sin, cos) / 2
    angle = torch.where(angle >= math.pi / 2 - 1e-6, angle - math.pi, angle)
    return torch.cat([centre, (size + length).exp(), (size - length).exp(), angle], -1)


def matrices(shape: Tensor) -> Tensor:
    """(m, u1, u2) to (A11, A22, A12), both [..., 3]; the inverse matrix is that of -shape."""
    size, stretch = shape.split([1, 2], -1)
    length = norm(stretch)
    even = size.exp() * length.cosh()
    first, second = (size.exp() * length.sinh() / length * stretch).chunk(2, -1)
    return torch.cat([even + first, even - first, second], -1)


def norm(stretch: Tensor) -> Tensor:
    """Length [..., 1] of [..., 2], at least 1e-6."""
    return (stretch.square().sum(-1, keepdim=True) + TINY).sqrt()


def apply(matrix: Tensor, vectors: Tensor) -> Tensor:
    """Products [..., 2] of symmetric matrices (A11, A22, A12) [..., 3] and vectors [..., 2]."""
    first, second, mixed = matrix.unbind(-1)
    x, y = vectors.unbind(-1)
    return torch.stack([first * x + mixed * y, mixed * x + second * y], -1)


def move(boxes: Tensor, change: Tensor) -> Tensor:
    """Boxes [..., 5] after a change [..., 5] of each.

    The first two numbers shift the centre, relative to the sides of the box and along them; the
    others are added to m and u.
    """
    centre, shape = boxes.split([2, 3], -1)
    shift, growth = change.split([2, 3], -1)
    shape_after = (shape + growth).clamp(-BOUND, BOUND)
    return torch.cat([centre + apply(matrices(shape), shift), shape_after], -1)


def change_between(reference: Tensor, boxes: Tensor) -> Tensor:
    """The change [..., 5] with which ``move`` makes boxes from reference boxes."""
    (centre, shape), (box_centre, box_shape) = (x.split([2, 3], -1) for x in (reference, boxes))
    return torch.cat([apply(matrices(-shape), box_centre - centre), box_shape - shape], -1)


def entries(boxes: Tensor) -> Tensor:
    """(x, y, A11, A22, 2 A12), [..., 5]: (cx, cy, w, h, 0) of a box along the axes.

    The L1 distance of these numbers counts the centres and all entries of the matrices. For boxes
    along the axes it is the L1 distance of (cx, cy, w, h); a rotation by 90 degrees keeps it.
    """
    centre, shape = boxes.split([2, 3], -1)
    sides, mixed = matrices(shape).split([2, 1], -1)
    return torch.cat([centre, sides, 2 * mixed], -1)


def divergence(boxes: Tensor, targets: Tensor) -> Tensor:
    """Kullback-Leibler divergence of boxes and targets as Gaussians; leading axes broadcast.

    The covariance of a box is A A / 4. Yang et al., "Learning High-Precision Bounding Box for
    Rotated Object Detection via Kullback-Leibler Divergence" (NeurIPS 2021). As mmrotate's
    ``kld_loss``, which has no pairs of all boxes and divides by determinants that cancel for thin
    boxes; checked against it in tests/models/deim/test_oriented_boxes.py.
    """
    (centre, shape), (to_centre, to_shape) = (x.split([2, 3], -1) for x in (boxes, targets))
    inverse, matrix = matrices(-shape), matrices(to_shape)
    distance = apply(inverse, to_centre - centre).square().sum(-1)
    rows = inverse[..., 0::2], inverse[..., [2, 1]]  # of the inverse, each a vector
    product = sum(apply(matrix, row).square().sum(-1) for row in rows)
    return product / 2 + 2 * distance + 2 * (shape - to_shape)[..., 0] - 1


def saturated(distance: Tensor) -> Tensor:
    """A divergence, 0 or more, as a loss below 1: mmrotate's with ``fun='log1p', tau=1``."""
    return 1 - 1 / (1 + distance.clamp(min=0).log1p())
