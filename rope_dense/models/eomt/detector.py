"""EoMT and PMT with the losses of mmdet's Mask2Former: instance and panoptic segmentation.

Letters: see queries.py.
"""

from collections.abc import Sequence

from mmdet.models.dense_heads import Mask2FormerHead
from mmdet.models.dense_heads.anchor_free_head import AnchorFreeHead
from mmdet.models.detectors import MaskFormer
from mmdet.registry import MODELS as MMDET_MODELS
from mmdet.registry import TASK_UTILS
from mmengine.config import ConfigDict
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from torch import Tensor

from .pmt import PMT
from .queries import EoMT, Prediction


@MODELS.register_module()
class EoMTHead(Mask2FormerHead):
    """mmdet's ``Mask2FormerHead`` with an ``EoMT`` or ``PMT`` in place of its two decoders.

    Assignment, points and losses are mmdet's, applied to the predictions before each of the blocks
    that the queries pass (``d0.loss_cls`` and so on) and after the last. It takes these
    predictions, which ``EoMTDetector`` makes, in place of the maps of a backbone.

    Args:
        in_channels: C, channels of the backbone.
        num_queries, num_blocks, patch_size, norm_cfg: see ``EoMT``.
        pmt: None for ``EoMT``; a dict for ``PMT``, of its num_laterals and blocks, which may be
            left out. ``norm_cfg`` is not used then.
        others: see ``Mask2FormerHead``. K is the sum of things and stuff.
    """

    def __init__(
        self,
        in_channels: int,
        num_queries: int,
        *,
        num_things_classes: int,
        num_stuff_classes: int,
        loss_cls: ConfigDict,
        loss_mask: ConfigDict,
        loss_dice: ConfigDict,
        num_blocks: int = 4,
        patch_size: int = 16,
        norm_cfg: dict | None = None,
        pmt: dict | None = None,
        train_cfg: ConfigDict | None = None,
        test_cfg: ConfigDict | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        # Mask2FormerHead's own builds decoders.
        super(AnchorFreeHead, self).__init__(init_cfg)
        self.num_things_classes = num_things_classes
        self.num_stuff_classes = num_stuff_classes
        self.num_classes = num_things_classes + num_stuff_classes
        self.num_queries = num_queries
        sizes = in_channels, self.num_classes, num_queries, num_blocks, patch_size
        self.eomt = EoMT(*sizes, norm_cfg) if pmt is None else PMT(*sizes, **pmt)
        self.train_cfg = train_cfg
        self.test_cfg = test_cfg
        if train_cfg:
            self.assigner = TASK_UTILS.build(train_cfg['assigner'])
            context = dict(context=self)
            self.sampler = TASK_UTILS.build(train_cfg['sampler'], default_args=context)
            self.num_points = train_cfg['num_points']
            self.oversample_ratio = train_cfg['oversample_ratio']
            self.importance_sample_ratio = train_cfg['importance_sample_ratio']
        self.class_weight = class_weights(loss_cls['class_weight'], self.num_classes)
        loss_cls = dict(loss_cls, class_weight=self.class_weight)
        self.loss_cls = MMDET_MODELS.build(loss_cls)
        self.loss_mask = MMDET_MODELS.build(loss_mask)
        self.loss_dice = MMDET_MODELS.build(loss_dice)

    def init_weights(self) -> None:
        """As ``init_cfg`` says; without one PyTorch's weights stay, as in the source."""
        BaseModule.init_weights(self)  # Mask2FormerHead's own initialises decoders

    def forward(
        self, predictions: Sequence[Prediction], batch_data_samples: object = None
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The class logits and the mask logits of the predictions, in float32."""
        classes, masks = zip(*predictions, strict=True)
        return [x.float() for x in classes], [x.float() for x in masks]


def class_weights(given: Sequence[float], num_classes: int) -> list[float]:
    """A weight for each of K classes and, at the end, for "no object".

    Where all classes have one weight, there are as many of it as there are classes now: a config
    need not repeat their number.
    """
    *of_classes, of_none = given
    if len(set(of_classes)) == 1:
        return [of_classes[0]] * num_classes + [of_none]
    return list(given)


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
