"""The published DINO decoder on both families of mmdet."""

import math
from pathlib import Path

import pytest
import torch
from mmdet.models.layers import MLP, coordinate_to_encoding
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import InstanceData
from torch import Tensor

import rope_dense  # noqa: F401
from rope_dense.models.dino import ReferencePointHead

CONFIGS = Path(__file__).parents[2] / 'configs'


def sines(boxes: Tensor, channels: int) -> Tensor:
    """The published encoding written out: (x, y, w, h) -> sine-cosine pairs of y, x, w, h."""
    coordinates = []
    for index in (1, 0, 2, 3):
        angle = 2 * math.pi * boxes[..., index]
        for pair in range(channels // 2):
            turn = angle / 10000 ** (2 * pair / channels)
            coordinates += [turn.sin(), turn.cos()]
    return torch.stack(coordinates, -1)


@pytest.mark.parametrize(
    'embed_dims, given',
    [(256, 128), (256, 256), (256, 512), (128, 64), (128, 128), (64, 128), (48, 72)],
)
def test_head_uses_the_published_encoding(embed_dims: int, given: int) -> None:
    torch.manual_seed(0)
    head = ReferencePointHead(embed_dims)
    plain = MLP(2 * embed_dims, embed_dims, embed_dims, 2)
    plain.load_state_dict(head.state_dict())
    boxes = torch.rand(2, 7, 4)
    out = head(coordinate_to_encoding(boxes, num_feats=given))
    narrow = coordinate_to_encoding(boxes, num_feats=embed_dims // 2)
    torch.testing.assert_close(out, plain(narrow), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        out, plain(sines(boxes, embed_dims // 2)), rtol=1e-4, atol=1e-5
    )


def test_head_rejects_encodings_without_the_published_one() -> None:
    boxes = torch.rand(1, 1, 4)
    for given in (64, 96, 192):
        with pytest.raises(
            ValueError, match=f'{given} sine channels.*128 of embed_dims=256'
        ):
            ReferencePointHead(256)(coordinate_to_encoding(boxes, num_feats=given))
    with pytest.raises(ValueError, match='multiple of 4, got 130'):
        ReferencePointHead(130)


def small_dino() -> torch.nn.Module:
    """DINO of 64 channels on a two-block ViT."""
    cfg = Config.fromfile(CONFIGS / '_base_' / 'models' / 'dino.py').model
    encoder, decoder = cfg.encoder.layer_cfg, cfg.decoder.layer_cfg
    for part in (encoder.self_attn_cfg, decoder.self_attn_cfg, decoder.cross_attn_cfg):
        part.embed_dims = 64
    for part in (encoder.ffn_cfg, decoder.ffn_cfg):
        part.update(embed_dims=64, feedforward_channels=128)
    cfg.bbox_head.embed_dims = 64
    cfg.update(
        num_queries=100,
        backbone=dict(
            type='RoPEViT',
            arch=dict(embed_dims=32, depth=2, num_heads=2),
            rope=dict(type='MixedRoPE', theta=10.0),
            with_cls_token=False,
        ),
        neck=[dict(type='PlainViTFPN', in_channels=32, out_channels=64)],
    )
    cfg.encoder.num_layers, cfg.decoder.num_layers = 1, 2
    cfg.positional_encoding.num_feats = 32
    init_default_scope('mmdet')
    return MODELS.build(cfg)


def test_decoder_has_the_published_shapes() -> None:
    model = small_dino()
    shapes = {
        name: tuple(param.shape)
        for name, param in model.named_parameters()
        if name.startswith('decoder.ref_point_head')
    }
    assert shapes == {
        'decoder.ref_point_head.layers.0.weight': (64, 128),
        'decoder.ref_point_head.layers.0.bias': (64,),
        'decoder.ref_point_head.layers.1.weight': (64, 64),
        'decoder.ref_point_head.layers.1.bias': (64,),
    }


@pytest.mark.parametrize(
    'height, width', [(64, 96), (32, 32)], ids=['usual', 'tokens < queries']
)
def test_small_detector_trains_and_predicts(height: int, width: int) -> None:
    torch.manual_seed(0)
    model = small_dino()
    model.init_weights()
    size = height, width
    boxes = torch.tensor([[0.1, 0.1, 0.4, 0.5], [0.5, 0.3, 0.9, 0.9]])
    boxes = boxes * torch.tensor([width, height, width, height])
    sample = DetDataSample(
        metainfo=dict(img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0)),
        gt_instances=InstanceData(bboxes=boxes, labels=torch.tensor([3, 7])),
    )
    data = dict(inputs=[torch.randint(0, 256, (3, *size), dtype=torch.uint8)])
    data = model.data_preprocessor(dict(data, data_samples=[sample]), training=True)
    losses = model(**data, mode='loss')
    total = sum(value for name, value in losses.items() if 'loss' in name)
    total.backward()
    assert torch.isfinite(total)
    assert model.decoder.ref_point_head.layers[0].weight.grad.abs().sum() > 0
    for block in model.backbone.blocks:
        assert block.attn.rope.freqs.grad.abs().sum() > 0
    with torch.no_grad():
        (prediction,) = model.eval()(**data, mode='predict')
    actual = prediction.pred_instances
    assert len(actual) == 300 and actual.bboxes.shape == (300, 4)
    assert (actual.scores[:-1] >= actual.scores[1:]).all()
