"""Merging of augmented views, on scores where a softmax per view would change the answer."""

import torch
from mmengine.structures import PixelData
from mmseg.models import SegTTAModel
from mmseg.structures import SegDataSample
from torch import nn

from rope_dense.evaluation import MeanScoreTTAModel


class Segmentor(nn.Module):
    """What a test-time augmentation model asks of the model that it wraps."""

    out_channels = 3

    def test_step(self, data: dict) -> list[SegDataSample]:
        raise NotImplementedError


def view(scores: list[float], label: int) -> SegDataSample:
    """A view of one pixel."""
    sample = SegDataSample(metainfo=dict(img_path='a.jpg'))
    sample.seg_logits = PixelData(data=torch.tensor(scores).view(3, 1, 1))
    sample.gt_sem_seg = PixelData(data=torch.tensor([[[label]]]))
    return sample


def views() -> list[SegDataSample]:
    # The sums are 5.2, 4.0 and 0. A softmax per view makes them 1.2, 1.6 and 0.2: the two views
    # that lean to class 1 outvote the one that is sure of class 0.
    return [view([5.0, 0.0, 0.0], 0), view([0.1, 2.0, 0.0], 0), view([0.1, 2.0, 0.0], 0)]


def test_scores_are_averaged_as_they_are() -> None:
    (merged,) = MeanScoreTTAModel(Segmentor()).merge_preds([views()])
    expected = torch.tensor([5.2, 4.0, 0.0]).view(3, 1, 1) / 3
    torch.testing.assert_close(merged.seg_logits.data, expected)
    assert merged.pred_sem_seg.data.tolist() == [[[0]]]
    assert merged.gt_sem_seg.data.tolist() == [[[0]]]
    assert merged.img_path == 'a.jpg'


def test_a_softmax_per_view_would_answer_differently() -> None:
    by_hand = sum(v.seg_logits.data.softmax(0) for v in views())
    (merged,) = SegTTAModel(Segmentor()).merge_preds([views()])
    assert merged.pred_sem_seg.data.item() == by_hand.argmax().item() == 1


def test_each_image_is_merged_alone() -> None:
    first, second = views(), [view([0.0, 0.0, 1.0], 2)]
    merged = MeanScoreTTAModel(Segmentor()).merge_preds([first, second])
    assert [sample.pred_sem_seg.data.item() for sample in merged] == [0, 2]
