"""Multiply-adds against products counted by hand."""

import math

import mmengine
import pytest
import torch
from mmengine.analysis import get_model_complexity_info
from mmengine.registry import MODELS
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from helpers.grid import CONFIGS, Leaf
from research.classifier import RoPEClassifier
from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.measure.benchmark import count_products, measured_size
from rope_dense.project.model import build_model


class Predictor(nn.Module):
    """A backbone and one layer of each other kind, called as a detector or segmentor is."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        arch = dict(
            embed_dims=32,
            depth=2,
            num_heads=2,
        )
        windows = dict(window_block_indexes=(0,), window_size=2)
        self.backbone = RoPEViT(
            arch,
            in_channels=channels,
            with_cls_token=False,
            **windows,
        )
        self.up = nn.ConvTranspose2d(32, 8, 2, stride=2)
        self.conv = nn.Conv2d(8, 4, 3, padding=1, groups=2)

    def forward(self, image: Tensor, samples: list, mode: str) -> Tensor:
        assert mode == 'predict'
        assert samples[0].img_shape == tuple(image.shape[2:])
        assert not torch.is_grad_enabled()
        assert not self.training
        return self.conv(self.up(self.backbone(image)[0]))


@pytest.mark.parametrize('channels', [3, 5])
def test_products_of_a_small_model(channels: int) -> None:
    height, width = 48, 64
    tokens = (height // 16) * (width // 16)
    c = 32
    patches = tokens * channels * 16**2 * c
    padded = 4 * 4  # the window block sees 3 x 4 tokens padded to windows of 2 x 2
    layers = 2 * tokens * (8 + 4) * c**2  # padding is in none of them
    scores = 2 * padded * 4 * c + 2 * tokens * tokens * c
    up = tokens * c * 8 * 2 * 2
    conv = 4 * tokens * 8 // 2 * 3**2 * 4
    actual = count_products(Predictor(channels), height=height, width=width)
    assert actual.multiply_adds == patches + layers + scores + up + conv
    # Two blocks; queries and keys; pairs.
    assert actual.rotations == 2 * 2 * tokens * c / 2


def test_rotation_costs_what_the_paper_says() -> None:
    """Heo et al., section 3.3: 1.8 M of ViT-B's 17.6 G, and about 0.01 % of its parameters."""
    vit = dict(
        type='RoPEViT',
        arch='base',
        final_norm=True,
    )
    with torch.device('meta'):
        mixed = RoPEClassifier(dict(vit, rope=dict(type='MixedRoPE')), num_classes=1000)
        baseline = RoPEClassifier(dict(vit, rope=None, use_ape=True), num_classes=1000)
    products = count_products(mixed, height=224, width=224)
    assert products.rotations == 1_806_336 == 196 * 12 * 768  # tokens, blocks, channels
    assert products.multiply_adds / 1e9 == pytest.approx(17.6, abs=0.05)
    share = 100 * products.rotations / products.multiply_adds
    assert share == pytest.approx(0.0103, abs=5e-5)
    learned = sum(p.numel() for name, p in mixed.named_parameters() if 'freqs' in name)
    parameters = sum(p.numel() for p in baseline.parameters())
    assert learned == 9216
    assert 100 * learned / parameters == pytest.approx(0.0106, abs=5e-5)


@pytest.mark.parametrize(
    'rope, pairs',
    [(dict(k_rope=2), 4), (dict(k_rope=4), 2), (None, 0)],
)
def test_rotations_of_a_part_of_the_channels(rope: dict | None, pairs: int) -> None:
    """In windows with padding too, which rotates nothing."""
    settings = rope and dict(rope, type='LogAxialRoPE')
    arch = dict(
        embed_dims=32,
        depths=(2,),
        num_heads=(2,),
    )
    backbone = dict(
        type='RoPESwin',
        arch=arch,
        rope=settings,
        out_indices=(0,),
    )
    products = count_products(RoPEClassifier(backbone, 3), height=72, width=100)
    # Blocks; queries and keys; tokens; heads.
    assert products.rotations == 2 * 2 * 18 * 25 * 2 * pairs


def test_products_of_shifted_windows() -> None:
    """Windows are counted with their padding, and where shifted with what the mask takes away."""
    height = 72
    width = 100
    c = 16
    depths = (2, 2)
    backbone = RoPESwin(
        dict(
            embed_dims=c,
            depths=depths,
            num_heads=(1, 2),
        ),
        out_indices=(0, 1),
    )
    with (
        FlopCounterMode(display=False) as counter,
        torch.no_grad(),
        sdpa_kernel(SDPBackend.MATH),
    ):
        backbone.eval()(torch.rand(1, 3, height, width))
    rows = height // 4
    columns = width // 4
    expected = rows * columns * 3 * 4**2 * c
    for stage, depth in enumerate(depths):
        padded = math.ceil(rows / 7) * 7 * math.ceil(columns / 7) * 7
        channels = c * 2**stage
        layers = rows * columns * 12 * channels**2
        expected += depth * (layers + 2 * padded * 7**2 * channels)
        if stage == 0:
            rows = math.ceil(rows / 2)
            columns = math.ceil(columns / 2)
            expected += rows * columns * 4 * c * 2 * c
    assert counter.get_total_flops() == 2 * expected


@pytest.mark.parametrize(
    'backbone',
    [
        dict(type='RoPEViT', arch='tiny'),
        pytest.param(dict(type='RoPESwin'), marks=pytest.mark.slow),
    ],
)
def test_mmengine_can_analyse_a_backbone(backbone: dict) -> None:
    """By tracing; it leaves attention out and counts norms."""
    model = MODELS.build(backbone).eval()
    image = torch.rand(1, 3, 96, 128)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(image)
    report = get_model_complexity_info(
        model,
        inputs=(image,),
        show_table=False,
        show_arch=False,
    )
    assert report['params'] == sum(param.numel() for param in model.parameters())
    assert report['flops'] == pytest.approx(counter.get_total_flops() // 2, rel=0.1)


@pytest.mark.slow
def test_the_recorded_value_of_a_whole_model() -> None:
    """The smallest of the grid; the others are recorded by the same command."""
    leaf = Leaf('mask2former_swin', 's', 'rope-axial')
    cfg = leaf.load()
    models = mmengine.load(CONFIGS / 'mask2former_swin' / 'metafile.yml')['Models']
    (recorded,) = (model for model in models if model['Name'] == leaf.name)
    size = measured_size(cfg)
    assert recorded['Metadata']['FLOPs Size'] == list(size) == [512, 512]
    actual = count_products(build_model(cfg), height=size[0], width=size[1])
    assert actual.multiply_adds == recorded['Metadata']['FLOPs']


def test_sizes_of_configs() -> None:
    assert measured_size(Leaf('dino_swin', 't', 'rope-mixed').load()) == (800, 1333)
    assert measured_size(Leaf('upernet_vit', 'l', 'ape').load()) == (512, 512)
    assert measured_size(Leaf('mask2former_swin', 'b', 'rpb').load()) == (640, 640)
    cfg = Leaf('dino_swin', 't', 'rope-mixed').load()
    cfg.test_dataloader.dataset.pipeline = [dict(type='LoadImageFromFile')]
    with pytest.raises(ValueError, match=r'no step has a `scale`'):
        measured_size(cfg)
