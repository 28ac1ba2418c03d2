"""Focal losses of logits: ``sigmoid_focal_loss_*`` and ``softmax_focal_loss_*`` of mmcv.

Lin et al., "Focal Loss for Dense Object Detection" (ICCV 2017). mmcv has them for GPUs
alone; on a CPU mmdet uses formulas of its own. Letters: N items, C classes, p and q probabilities
of a class and of the others, whose logarithms are taken of the logits: mmcv's kernels round p to 1
from a logit of 17 on, where their loss of other classes jumps to 87.
Checked against float64 and autograd in tests/operators/test_focal_loss.py.
"""

from ctypes import c_float

import torch
import torch.nn.functional as F
from torch import Tensor

from .bags import at_least_float32

LEAST = torch.finfo(torch.float32).tiny  # of probabilities


def sigmoid_focal_loss_forward(
    input: Tensor,
    target: Tensor,
    weight: Tensor,
    output: Tensor,
    gamma: float,
    alpha: float,
) -> None:
    """Write the loss of each item and class to ``output`` [N, C].

    Args:
        input: logits [N, C].
        target: [N], classes; any other number is an item of no class.
        weight: [C], of the items of each class (1 for items of none), or empty.
        output: [N, C].
        gamma: exponent of 1 - p.
        alpha: weight of the class, 1 - alpha of each other class.
    """
    x, is_class, gamma, alpha = prepare_logits(input, target, gamma, alpha)
    loss_of_class = -alpha * (-x).sigmoid() ** gamma * F.logsigmoid(x)
    loss_of_others = -(1 - alpha) * x.sigmoid() ** gamma * F.logsigmoid(-x)
    loss = torch.where(is_class, loss_of_class, loss_of_others)
    factor = weight_of(target, weight, input.shape[1])
    output.copy_(loss * factor[:, None])


def sigmoid_focal_loss_backward(
    input: Tensor,
    target: Tensor,
    weight: Tensor,
    grad_input: Tensor,
    gamma: float,
    alpha: float,
) -> None:
    """Write the derivatives of the losses by their logits to ``grad_input`` [N, C]."""
    x, is_class, gamma, alpha = prepare_logits(input, target, gamma, alpha)
    p = x.sigmoid()
    q = (-x).sigmoid()
    grad_of_class = -alpha * q**gamma * (q - gamma * p * F.logsigmoid(x))
    grad_of_others = -(1 - alpha) * p**gamma * (gamma * q * F.logsigmoid(-x) - p)
    grad = torch.where(is_class, grad_of_class, grad_of_others)
    factor = weight_of(target, weight, input.shape[1])
    grad_input.copy_(grad * factor[:, None])


def softmax_focal_loss_forward(
    input: Tensor,
    target: Tensor,
    weight: Tensor,
    output: Tensor,
    gamma: float,
    alpha: float,
) -> None:
    """Write the loss of each item to ``output`` [N]; 0 for targets below 0.

    Args:
        input: probabilities [N, C], after the softmax.
        target: [N], classes.
        weight: [C], of the classes, or empty.
        output: [N].
        gamma: exponent of 1 - p.
        alpha: factor of all losses.
    """
    p, factor = probability(input, target, weight)
    gamma = c_float(gamma).value
    alpha = c_float(alpha).value
    loss = -alpha * (1 - p) ** gamma * p.clamp(min=LEAST).log()
    output.copy_(loss * factor)


def softmax_focal_loss_backward(
    input: Tensor,
    target: Tensor,
    weight: Tensor,
    buff: Tensor,
    grad_input: Tensor,
    gamma: float,
    alpha: float,
) -> None:
    """Write the derivatives by the logits to ``grad_input`` [N, C]; ``buff`` [N] is overwritten."""
    p, factor = probability(input, target, weight)
    gamma = c_float(gamma).value
    alpha = c_float(alpha).value
    q = (1 - p).clamp(min=LEAST)
    decay = gamma * q ** (gamma - 1) * p * p.clamp(min=LEAST).log()
    grad = alpha * (decay - (1 - p) ** gamma)
    buff.copy_(grad * factor)
    classes = torch.arange(input.shape[1], device=input.device)
    is_class = target[:, None] == classes
    grad_input.copy_(buff[:, None] * (is_class.to(input.dtype) - input))


def prepare_logits(
    logits: Tensor,
    target: Tensor,
    gamma: float,
    alpha: float,
) -> tuple[Tensor, Tensor, float, float]:
    """Logits [N, C] to compute with, whether a class is the target, and the settings as float32."""
    classes = torch.arange(logits.shape[1], device=logits.device)
    is_class = target[:, None] == classes
    x = at_least_float32(logits)
    return x, is_class, c_float(gamma).value, c_float(alpha).value


def probability(
    probabilities: Tensor,
    target: Tensor,
    weight: Tensor,
) -> tuple[Tensor, Tensor]:
    """Of the target classes [N], and the weights of the items, 0 for targets below 0."""
    index = target.clamp(min=0)[:, None]
    p = at_least_float32(probabilities.gather(1, index)[:, 0])
    factor = weight_of(target, weight, probabilities.shape[1])
    return p, factor * (target >= 0)


def weight_of(
    target: Tensor,
    weight: Tensor,
    num_classes: int,
) -> Tensor:
    """Weights [N] of the targets [N], 1 for a target that is no class or without weights."""
    if not weight.numel():
        return torch.ones_like(target, dtype=torch.float32)
    is_class = (target >= 0) & (target < num_classes)
    weights = at_least_float32(weight[target.clamp(0, num_classes - 1)])
    return torch.where(is_class, weights, 1)
