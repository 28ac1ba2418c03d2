"""EoMT for instance and panoptic segmentation."""

from mmdet.models.detectors import MaskFormer
from mmengine.registry import MODELS
from torch import Tensor

from .queries import Prediction


@MODELS.register_module()
class EoMTDetector(MaskFormer):
    """mmdet's ``MaskFormer`` with the queries in the last blocks of the backbone.

    Takes the arguments of ``MaskFormer``; ``panoptic_head`` is an ``EoMTHead``, and there is no
    neck.
    """

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.panoptic_head.eomt.join(self.backbone)

    def extract_feat(self, batch_inputs: Tensor) -> list[Prediction]:
        """The predictions that the head takes, see ``EoMT.forward``."""
        return self.panoptic_head.eomt(self.backbone, batch_inputs)
