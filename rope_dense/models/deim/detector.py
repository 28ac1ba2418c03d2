"""The real-time detector, DEIM: its parts in their order, and the smaller model for inference."""

from __future__ import annotations

from mmcv.cnn import ConvModule, fuse_conv_bn
from mmdet.models.detectors import BaseDetector
from mmdet.registry import MODELS as MMDET_MODELS
from mmdet.structures import OptSampleList, SampleList
from mmengine.registry import MODELS
from torch import Tensor

from ..maps import size_of
from .encoder import SpatialTuningAdapter
from .layers import RepConv
from .predictions import Losses


@MODELS.register_module()
class DEIM(BaseDetector):
    """DEIMv2 and ECDet: real-time DETRs, on any backbone and for images of any size.

    Backbone, neck, hybrid encoder, and a decoder whose queries are selected among the encoder's
    tokens. A ViT needs a neck that makes strides 8, 16 and 32 of its maps (``SpatialTuningAdapter``
    or ``MeanMapPyramid``), a hierarchical backbone has them. Boxes are relative to the padded batch
    in training and testing, so images may be stretched to one size as in the published recipes, or
    keep their aspect ratio. Huang et al., "Real-Time Object Detection Meets DINOv3", 2025; Liu et
    al., "EdgeCrafter", 2026. Checked against transformers' ``Deimv2ForObjectDetection`` with the
    same random weights in tests/models/deim/test_detector.py.

    Args:
        backbone: in mmdet's form.
        encoder: see ``DEIMEncoder``.
        bbox_head: see ``DEIMHead``.
        neck: in mmdet's form, or None.
        train_cfg, test_cfg: of the head.
        data_preprocessor, init_cfg: see mmdet's ``BaseDetector``.
    """

    is_deployed = False

    def __init__(
        self,
        backbone: dict,
        encoder: dict,
        bbox_head: dict,
        neck: dict | None = None,
        train_cfg: dict | None = None,
        test_cfg: dict | None = None,
        data_preprocessor: dict | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(data_preprocessor, init_cfg)
        self.backbone = MMDET_MODELS.build(backbone)
        if neck is not None:
            self.neck = MMDET_MODELS.build(neck)
        self.encoder = MMDET_MODELS.build(encoder)
        head = dict(bbox_head, train_cfg=train_cfg, test_cfg=test_cfg)
        self.bbox_head = MMDET_MODELS.build(head)
        self.train_cfg = train_cfg
        self.test_cfg = test_cfg

    def extract_feat(self, batch_inputs: Tensor) -> tuple[Tensor, ...]:
        """Maps of the encoder for images [B, 3, height, width]."""
        maps = self.backbone(batch_inputs)
        if self.with_neck:
            adapts = isinstance(self.neck, SpatialTuningAdapter)
            maps = self.neck(maps, batch_inputs) if adapts else self.neck(maps)
        return self.encoder(maps)

    def deploy(self) -> DEIM:
        """Turn this model into a smaller one of the same results, up to rounding, for inference.

        Batch norms are fused with their convolutions, parallel convolutions are added, and what
        training alone needs is dropped: layers after ``eval_idx``, what earlier ones predict, and
        denoising. It cannot be trained or load a checkpoint after that.
        """
        self.is_deployed = True
        self.eval()
        for kind, change in ((ConvModule, fuse_conv_bn), (RepConv, RepConv.merge)):
            for part in list(self.modules()):
                if isinstance(part, kind):
                    change(part)
        self.bbox_head.drop_unused()
        return self

    def loss(self, batch_inputs: Tensor, batch_data_samples: SampleList) -> Losses:
        """Losses by name, see ``Criterion``; RuntimeError if the model was deployed."""
        if self.is_deployed:
            raise RuntimeError(
                'a deployed model only predicts: build another one to train'
            )
        maps = self.extract_feat(batch_inputs)
        return self.bbox_head.loss(maps, batch_data_samples, size_of(batch_inputs))

    def predict(
        self,
        batch_inputs: Tensor,
        batch_data_samples: SampleList,
        rescale: bool = True,
    ) -> SampleList:
        """The samples with ``pred_instances``: scores, labels, bboxes, or also masks."""
        maps = self.extract_feat(batch_inputs)
        size = size_of(batch_inputs)
        results = self.bbox_head.predict(maps, batch_data_samples, size, rescale)
        return self.add_pred_to_datasample(batch_data_samples, results)

    def _forward(
        self, batch_inputs: Tensor, batch_data_samples: OptSampleList = None
    ) -> tuple[Tensor, ...]:
        """The best detections as tensors, see ``DEIMHead.predict_tensors``."""
        maps = self.extract_feat(batch_inputs)
        return self.bbox_head.predict_tensors(maps, size_of(batch_inputs))
