"""Depth heads against transformers' CHMv2 and, where its source is, DINOv3's own code."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from mmengine.config import ConfigDict
from mmengine.registry import MODELS, DefaultScope
from mmengine.structures import PixelData
from mmseg.models.losses import SiLogLoss
from torch import Tensor, nn

from helpers.dinov3_source import dinov3
from rope_dense.backbones import RoPEViT
from rope_dense.checkpoints import CheckpointError
from rope_dense.checkpoints.detectors import convert_detector
from rope_dense.models.depth import DepthBins, DPTDepthHead, LinearDepthHead

C, SIZES = 32, [(64, 96), (80, 112)]  # the second has odd numbers of patches
LOSS = dict(type='BatchSiLogLoss', warm_up=0)
ARCH = dict(
    RoPEViT.ARCHS['dinov3_base'], embed_dims=C, depth=4, num_heads=2, qkv_bias='qv'
)


@pytest.fixture(autouse=True)
def scope() -> Iterator[None]:
    with DefaultScope.overwrite_default_scope('mmseg'):
        yield


def estimator(arch: object = ARCH, **head: object) -> nn.Module:
    """A DepthEstimator with a DPT head on four blocks."""
    settings = dict(type='DPTDepthHead', in_channels=C, channels=16, hidden_channels=8)
    settings |= dict(
        post_process_channels=[8, 8, 16, 16], num_bins=12, loss_decode=LOSS
    )
    return MODELS.build(
        dict(
            type='DepthEstimator',
            data_preprocessor=dict(
                type='SegDataPreProcessor', size=(80, 112), seg_pad_val=0
            ),
            backbone=dict(
                type='RoPEViT', arch=arch, out_indices=(0, 1, 2, 3), output_prefix='cls'
            ),
            decode_head=settings | head,
            test_cfg=ConfigDict(mode='whole'),
        )
    )


def randomise(model: nn.Module) -> None:
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            nn.init.normal_(tensor, 1.0 if 'lambda1' in name else 0.0, 0.2)
        if 'k_proj.bias' in name:
            tensor.zero_()


@pytest.fixture(scope='module')
def chmv2(transformers: ModuleType) -> nn.Module:
    """transformers' model with random weights, all but the biases of the keys."""
    backbone = dict(
        model_type='dinov3_vit',
        hidden_size=C,
        intermediate_size=4 * C,
        num_attention_heads=2,
        num_hidden_layers=4,
        num_register_tokens=4,
        key_bias=True,
        out_indices=[1, 2, 3, 4],
        reshape_hidden_states=True,
        apply_layernorm=True,
        layer_norm_eps=1e-5,
        return_class_token=True,
    )
    config = transformers.CHMv2Config(
        backbone_config=backbone,
        post_process_channels=[8, 8, 16, 16],
        fusion_hidden_size=16,
        head_hidden_size=8,
        number_output_channels=12,
    )
    torch.manual_seed(0)
    model = transformers.CHMv2ForDepthEstimation(config).eval()
    randomise(model)
    return model


@pytest.fixture(scope='module')
def ours(chmv2: nn.Module) -> nn.Module:
    with DefaultScope.overwrite_default_scope('mmseg'):
        model = estimator(bins='mixed', max_depth=96.0).eval()
    model.load_state_dict(convert_detector(chmv2.state_dict(), 'file')['state_dict'])
    return model


@pytest.mark.parametrize('size', SIZES)
@torch.no_grad()
def test_depth_is_that_of_chmv2(chmv2: nn.Module, ours: nn.Module, size: tuple) -> None:
    """At the size of the head's output; strict loading gave every weight a place."""
    torch.manual_seed(0)
    image = torch.randn(2, 3, *size)
    expected = chmv2(image).predicted_depth[:, None]
    actual = ours.decode_head(ours.extract_feat(image))
    assert expected.std() > 1  # metres
    assert (actual - expected).abs().max() / expected.abs().max() < 1e-5
    resized = F.interpolate(expected, size, mode='bilinear', align_corners=False)
    (sample, _) = ours.predict(image)
    assert (
        sample.pred_depth_map.data - resized[0]
    ).abs().max() / resized.abs().max() < 1e-5


@pytest.mark.parametrize(
    'change, message',
    [
        (
            lambda w: w.update({'head.project.weight': torch.ones(1)}),
            'not known: head.project',
        ),
        (
            lambda w: w['backbone.model.layer.1.attention.k_proj.bias'].add_(1),
            'biases of the keys.*blocks.1',
        ),
    ],
)
def test_what_ours_has_not_is_named(
    chmv2: nn.Module, change: object, message: str
) -> None:
    weights = {key: x.clone() for key, x in chmv2.state_dict().items()}
    change(weights)
    with pytest.raises(CheckpointError, match=message):
        convert_detector(weights, 'file')


def linear_head() -> LinearDepthHead:
    settings = dict(
        norm_cfg=dict(type='BN'), num_bins=16, dropout_ratio=0.0, loss_decode=LOSS
    )
    head = LinearDepthHead(C, max_depth=10.0, **settings)
    for tensor in (*head.parameters(), head.norm.running_mean):
        nn.init.normal_(tensor)
    nn.init.uniform_(head.norm.running_var, 0.5, 2)
    return head.eval()


@torch.no_grad()
def test_linear_head_is_dinov3_s() -> None:
    models, linear = dinov3('models'), dinov3('models.linear_head')
    ours, theirs = (
        linear_head(),
        linear.LinearHead([C], 16, use_batchnorm=True, use_cls_token=False),
    )
    names = {'norm': 'batchnorm_layer', 'conv_seg': 'conv_depth'}
    weights = {
        '.'.join([names[key.split('.')[0]], key.split('.')[1]]): x
        for key, x in ours.state_dict().items()
    }
    theirs.load_state_dict(weights)
    depth = models.FeaturesToDepth(0.001, 10.0)
    for side in ((5, 7), (8, 6)):
        x = torch.randn(2, C, *side)
        expected = depth(theirs.eval()([(x, None)]))
        assert expected.std() > 0.1
        torch.testing.assert_close(ours([x]), expected, rtol=1e-5, atol=0)


@torch.no_grad()
def test_dpt_head_is_dinov3_s() -> None:
    """Under mmseg's names, which DINOv3's code has; CHMv2 by its authors' own head."""
    model = estimator(bins='mixed', max_depth=96.0).eval().decode_head
    randomise(model)
    theirs = dinov3('models.dpt_head').DPTHead(
        in_channels=[C] * 4,
        channels=16,
        post_process_channels=[8, 8, 16, 16],
        n_output_channels=12,
        n_hidden_channels=8,
        use_bias=True,
        projection_after_fusion=False,
    )
    weights = {
        key.replace('conv_depth.', 'conv_depth.head.'): x
        for key, x in model.state_dict().items()
    }
    theirs.load_state_dict(weights)
    depth = dinov3('models').FeaturesToDepth(
        0.001, 96.0, 'chmv2_mixlog', 'chmv2_mixlog'
    )
    maps = [(torch.randn(2, C, 5, 7), torch.randn(2, C)) for _ in range(4)]
    expected = depth(theirs.eval()(maps))
    torch.testing.assert_close(model(maps), expected, rtol=1e-5, atol=1e-5)


def test_bins_by_hand() -> None:
    """Depths 1, 2, 3; scores -1, 0.9, 0 have the weights 0.1, 1, 0.1: the mean is 2."""
    bins = DepthBins(3, 1.0, 3.0, 'linear')
    scores = torch.tensor([[-1.0, 0.9, 0.0], [-1.0, -1.0, 0.9]]).view(2, 3, 1, 1)
    assert bins(scores).flatten().tolist() == pytest.approx(
        [2.0, (0.1 + 0.2 + 3) / 1.2]
    )
    assert not bins.state_dict()


@pytest.mark.parametrize('kind', ['linear', 'mixed'])
def test_depths_lie_between_the_bounds(kind: str) -> None:
    bins = DepthBins(64, 0.5, 20.0, kind)
    depths = bins.depths.flatten()
    assert depths[-1].item() == pytest.approx(20.0) and (depths.diff() > 0).all()
    depth = bins(100 * torch.randn(2, 64, 8, 8, dtype=torch.bfloat16))
    assert depth.dtype == torch.float32
    assert depths[0] <= depth.min() and depth.max() <= depths[-1]


@pytest.mark.parametrize(
    'settings, message',
    [
        (dict(max_depth=0.001), 'max_depth must be a finite number, more than 0.001'),
        (dict(min_depth=0.0), 'min_depth must be a finite number, more than 0'),
        (dict(num_bins=1), 'num_bins must be an integer from 2 up'),
        (dict(bins='log'), 'bins must be one of'),
    ],
)
def test_wrong_settings_are_named(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DPTDepthHead(C, channels=16, loss_decode=LOSS, **settings)


def batch(depths: Tensor) -> dict:
    from mmseg.structures import SegDataSample

    size = tuple(depths.shape[-2:])
    samples = []
    for depth in depths:
        meta = dict(img_shape=size, ori_shape=size)
        samples.append(SegDataSample(metainfo=meta, gt_depth_map=PixelData(data=depth)))
    images = [torch.randint(0, 256, (3, *size), dtype=torch.uint8) for _ in depths]
    return dict(inputs=images, data_samples=samples)


@pytest.mark.parametrize('head', ['linear', 'dpt', "dpt, mmseg's loss"])
def test_loss_and_gradients(head: str) -> None:
    """Images that no patch divides; padding is no depth."""
    model = estimator().train()
    if head == 'linear':
        model.backbone.output_prefix = None
        model.decode_head = linear_head().train()
    if 'mmseg' in head:
        model.decode_head.loss_decode = SiLogLoss()
    data = model.data_preprocessor(
        batch(1 + 8 * torch.rand(2, 1, 75, 100)), training=True
    )
    assert not data['data_samples'][0].gt_depth_map.data[:, 75:].any()
    loss, logged = model.parse_losses(model(**data, mode='loss'))
    assert [*logged] == ['loss', 'decode.loss_silog'] and torch.isfinite(loss)
    loss.backward()
    without = [
        key
        for key, x in model.decode_head.named_parameters()
        if x.grad is None or not x.grad.any()
    ]
    assert without == []


def test_depths_above_the_bins_are_not_learned() -> None:
    """As unknown ones."""
    head = linear_head()
    depth = 9.9 * torch.ones(2, 1, 8, 8)
    depth[0, 0, 0, :2] = torch.tensor([10.0, 65.535])
    known = head._stack_batch_gt(batch(depth)['data_samples'])
    assert known.view(2, 1, 8, 8)[0, 0, 0].tolist() == [10.0, 0.0, *depth[0, 0, 0, 2:]]
    assert (known > 0).sum() == 127


@pytest.mark.parametrize(
    'depth', [torch.zeros(2, 1, 80, 112), torch.full((2, 1, 80, 112), -1.0)]
)
def test_a_batch_without_valid_pixels_changes_nothing(depth: Tensor) -> None:
    model = estimator().train()
    loss, _ = model.parse_losses(
        model(**model.data_preprocessor(batch(depth), True), mode='loss')
    )
    loss.backward()
    assert loss.item() == 0
    assert all(x.grad is None or not x.grad.any() for x in model.parameters())
