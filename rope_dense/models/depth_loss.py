"""Scale-invariant loss of depth over the valid pixels of a batch."""

import torch
from mmengine.logging import MessageHub
from mmengine.registry import MODELS
from torch import Tensor, nn

MEAN_SHARE = 0.15  # of the squared mean; 1 would be the mean square, 0 invariant to scale


@MODELS.register_module()
class BatchSiLogLoss(nn.Module):
    """sqrt(var(g) + 0.15 mean(g)^2) of g = log(prediction) - log(target), over a whole batch.

    Pixels whose target is not above 0 count for nothing; a batch without valid pixels has the loss
    0. mmseg's ``SiLogLoss``, which the heads take too, is the mean of the losses of the images, and
    its share of the squared mean is 0.5. Source: facebookresearch/dinov3, dinov3/eval/depth/loss.py
    (``SigLoss``). Checked against it in tests/models/test_depth_loss.py.

    Args:
        warm_up: iterations that train the mean alone, so that the scale is learned first.
        eps: added to both depths before the logarithm.
        loss_name: key among the losses.
    """

    def __init__(
        self, warm_up: int = 100, eps: float = 1e-3, loss_name: str = 'loss_silog'
    ) -> None:
        super().__init__()
        self.warm_up, self.eps, self.loss_name = warm_up, eps, loss_name

    def forward(self, depth: Tensor, target: Tensor) -> Tensor:
        """Depth and target of the same shape to a scalar."""
        valid = target > 0  # to select these pixels would wait for a GPU
        number = valid.sum()
        depth, target = (torch.where(valid, x, 1.0) for x in (depth, target))  # log 1 - log 1 = 0
        g = (depth + self.eps).log() - (target + self.eps).log()
        mean = g.sum() / number.clamp(min=1)
        square = MEAN_SHARE * mean**2
        if MessageHub.get_current_instance().get_info('iter', 0) >= self.warm_up:
            squares = ((g - mean) ** 2 * valid).sum()
            square = square + squares / (number - 1).clamp(min=1)
        loss = square.clamp(min=1e-12).sqrt()  # the root has no gradient at 0
        return torch.where(number < 2, 0.0 * loss, loss)  # one pixel has no variance
