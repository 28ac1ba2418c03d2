"""Mask2Former for segmentors that slide."""

from collections.abc import Sequence

from mmengine.registry import MODELS
from mmseg.models.decode_heads import Mask2FormerHead
from torch import Tensor


@MODELS.register_module()
class SlideMask2FormerHead(Mask2FormerHead):
    """mmseg's Mask2FormerHead, which also works with ``test_cfg=dict(mode='slide', ...)``.

    A segmentor that slides sets ``img_shape`` to the size of the crop. mmseg's head resizes its
    masks to ``pad_shape`` instead, the size of the image (open-mmlab/mmsegmentation issue 3666).
    Weights, training and results on whole images are the same as in mmseg. Checked against
    hand-written crops in tests/models/test_mask2former_head.py.
    """

    def predict(
        self,
        maps: Sequence[Tensor],
        batch_img_metas: list[dict],
        test_cfg: dict,
    ) -> Tensor:
        """Class scores [B, num_classes, H, W] on the pixels of the input, image or crop."""
        if test_cfg.get('mode') == 'slide':
            # Set for the first image of a batch alone.
            crop = batch_img_metas[0]['img_shape']
            batch_img_metas = [dict(meta, pad_shape=crop) for meta in batch_img_metas]
        return super().predict(maps, batch_img_metas, test_cfg)
