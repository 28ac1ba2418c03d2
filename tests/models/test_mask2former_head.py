"""SlideMask2FormerHead against crops cut, predicted and averaged by hand."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from mmengine.config import ConfigDict
from mmengine.registry import DefaultScope
from mmseg.structures import SegDataSample
from torch import Tensor, nn

from helpers.small_configs import make_data, small_config
from rope_dense.models.mask2former_head import SlideMask2FormerHead
from rope_dense.project.load import load_config
from rope_dense.project.model import build_model

MASK2FORMER = 'mask2former_swin_rope_mixed'
HEIGHT, WIDTH = 90, 150  # padded to multiples of 32: 96 x 160
CROP, STRIDE = 64, 48


@pytest.fixture(scope='module')
def segmentor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nn.Module]:
    folder = tmp_path_factory.mktemp('mask2former')
    with DefaultScope.overwrite_default_scope('mmengine'):
        path = small_config(MASK2FORMER, make_data(folder / 'data'), folder)
        model = build_model(load_config(str(path)))
        model.init_weights()
        yield model.eval()


@torch.no_grad()
def predict(model: nn.Module, image: Tensor, **test_cfg: object) -> SegDataSample:
    model.test_cfg = ConfigDict(test_cfg)
    size = tuple(image.shape[1:])
    sample = SegDataSample(metainfo=dict(img_shape=size, ori_shape=size))
    return model.test_step(dict(inputs=[image], data_samples=[sample]))[0]


def scores_of(model: nn.Module, image: Tensor) -> Tensor:
    """Class scores [K, H, W] of a normalised image [1, 3, H, W], from Mask2Former's formula:
    the sum over queries of class probability (without 'no object') times mask probability."""
    classes, masks = model.decode_head(model.extract_feat(image), [SegDataSample()])
    masks = F.interpolate(
        masks[-1], image.shape[2:], mode='bilinear', align_corners=False
    )
    probabilities = classes[-1].softmax(-1)[0, :, :-1]  # [Q, K]
    return torch.einsum('qk,qhw->khw', probabilities, masks[0].sigmoid())


def test_sliding_is_the_mean_of_crops(segmentor: nn.Module) -> None:
    image = torch.randint(256, (3, HEIGHT, WIDTH), dtype=torch.uint8)
    slides = dict(mode='slide', crop_size=(CROP, CROP), stride=(STRIDE, STRIDE))
    actual = predict(segmentor, image, **slides)

    padded = segmentor.data_preprocessor(
        dict(inputs=[image], data_samples=[SegDataSample()]), training=False
    )['inputs']
    assert padded.shape == (1, 3, 96, 160)
    total, times = torch.zeros(7, 96, 160), torch.zeros(96, 160)
    for top in (0, 96 - CROP):  # 0, then 48 moved up to end with the image
        for left in (0, 48, 160 - CROP):
            rows, columns = slice(top, top + CROP), slice(left, left + CROP)
            with torch.no_grad():
                total[:, rows, columns] += scores_of(
                    segmentor, padded[:, :, rows, columns]
                )
            times[rows, columns] += 1
    expected = (total / times)[:, :HEIGHT, :WIDTH]
    assert expected.std() > 0 and times.max() == 4
    torch.testing.assert_close(actual.seg_logits.data, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(actual.pred_sem_seg.data[0], actual.seg_logits.data.argmax(0))


def test_a_crop_of_the_whole_image_is_the_whole_image(segmentor: nn.Module) -> None:
    assert type(segmentor.decode_head) is SlideMask2FormerHead
    image = torch.randint(256, (3, HEIGHT, WIDTH), dtype=torch.uint8)
    whole = predict(segmentor, image, mode='whole')
    slides = dict(mode='slide', crop_size=(512, 512), stride=(341, 341))
    assert torch.equal(
        predict(segmentor, image, **slides).seg_logits.data, whole.seg_logits.data
    )
