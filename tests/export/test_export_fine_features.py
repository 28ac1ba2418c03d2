from pathlib import Path

import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.registry import MODELS

from helpers.exported import assert_plain, assert_segmented, pixels, run, session, strong
from rope_dense.export import export


@pytest.mark.slow
@pytest.mark.parametrize('scale_factor, size', [(4, 'dynamic'), (2.5, (40, 163))])
def test_a_segmentor_with_fine_features(
    scale_factor: float, size: str | tuple[int, int], tmp_path: Path
) -> None:
    """Also images with fewer than 9 patches a side, and with pixels beyond the last patch."""
    config = dict(
        type='EncoderDecoder',
        data_preprocessor=dict(type='SegDataPreProcessor', mean=[127.5] * 3, std=[60.0] * 3),
        backbone=dict(
            type='RoPEViTWithImage', arch=dict(embed_dims=16, depth=1, num_heads=1), patch_size=8
        ),
        neck=dict(type='FineFeatures', scale_factor=scale_factor),
        decode_head=dict(
            type='FCNHead',
            in_channels=16,
            channels=16,
            num_convs=0,
            concat_input=False,
            dropout_ratio=0.0,
            num_classes=3,
            align_corners=False,
        ),
        test_cfg=dict(mode='whole'),
    )
    with MODELS.switch_scope_and_registry('mmseg') as models:
        model = strong(models.build(ConfigDict(config)))
    path = tmp_path / 'model.onnx'
    export(model, path, size=size)
    assert_plain(path)
    exported = session(path)
    for height, width in [(99, 120), (40, 163)] if size == 'dynamic' else [size]:
        image = pixels(2, 3, height, width)
        with torch.no_grad():
            assert_segmented(model, run(exported, image), image)
