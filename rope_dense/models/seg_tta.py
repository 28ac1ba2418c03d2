"""Test-time augmentation for heads whose output is not a logit: scores, depth."""

from mmengine.model import BaseTTAModel
from mmengine.registry import MODELS
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample


@MODELS.register_module()
class MeanScoreTTAModel(BaseTTAModel):
    """Averages the scores of all views of an image as they are.

    mmseg's ``SegTTAModel`` applies a softmax to each view first. Mask2Former's class maps are sums
    of query probabilities: a softmax would flatten them, so that many unsure views outweigh a sure
    one. Mask2Former's own test-time augmentation takes the plain mean.
    Checked on hand-computed scores in tests/models/test_tta.py.
    """

    def merge_preds(
        self, data_samples_list: list[list[SegDataSample]]
    ) -> list[SegDataSample]:
        """Per image, views with ``seg_logits`` [classes, H, W] -> one sample with their mean."""
        return list(map(self._merge_views, data_samples_list))

    def _merge_views(self, views: list[SegDataSample]) -> SegDataSample:
        scores = [view.seg_logits.data for view in views]
        mean = sum(scores) / len(scores)  # [classes, H, W]
        merged = views[0]
        merged.set_data(
            {
                'seg_logits': PixelData(data=mean),
                'pred_sem_seg': PixelData(data=mean.argmax(dim=0, keepdim=True)),
            }
        )
        return merged


@MODELS.register_module()
class MeanDepthTTAModel(BaseTTAModel):
    """Averages the depth of all views of an image, as DINOv3 does for an image and its mirror.

    mmseg's ``DepthEstimator`` has flipped each view back and resized it. Checked on hand-computed
    depths in tests/models/test_tta.py.
    """

    def merge_preds(
        self, data_samples_list: list[list[SegDataSample]]
    ) -> list[SegDataSample]:
        """Per image, views with ``pred_depth_map`` [1, H, W] -> one sample with their mean."""
        merged = []
        for views in data_samples_list:
            depths = [view.pred_depth_map.data for view in views]
            mean = PixelData(data=sum(depths) / len(depths))
            views[0].set_data({'pred_depth_map': mean})
            merged.append(views[0])
        return merged
