"""Weights of RGB images in backbones for any number of channels."""

from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from torch import Tensor, nn

from helpers.small_checkpoints import VIT, randomize, refusal, saved, vit
from helpers.timm_import import import_timm
from rope_dense.backbones import RoPENAT, RoPESwin, RoPEViT
from rope_dense.checkpoints import CheckpointError, load_pretrained
from rope_dense.project.weights import (
    check_fetched_weights,
    check_initial_weights,
    load_from_source,
)
from rope_dense.utils.errors import UsageError

SWIN = dict(
    arch=dict(embed_dims=32, depths=(1, 1), num_heads=(1, 2)),
    out_indices=(0, 1),
    window_size=4,
)
NAT = dict(
    arch=dict(embed_dims=32, depths=(1, 1), num_heads=(1, 2)),
    out_indices=(0, 1),
    kernel_size=3,
)
ECVIT = dict(arch=dict(RoPEViT.ARCHS['ecvit_tiny'], depth=2), out_indices=(0, 1))
BACKBONES = {'ViT': (RoPEViT, VIT), 'Swin': (RoPESwin, SWIN), 'NAT': (RoPENAT, NAT)}
BACKBONES['conv stem'] = (RoPEViT, ECVIT)


@pytest.fixture(params=list(BACKBONES))
def case(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[type, dict, nn.Module, str]:
    """A backbone, its settings, a model for RGB with random weights, and their file."""
    torch.manual_seed(0)
    kind, settings = BACKBONES[request.param]
    model = kind(**settings).eval()
    randomize(model)
    return kind, settings, model, saved(dict(state_dict=model.state_dict()), tmp_path)


def adapted(
    case: tuple[type, dict, nn.Module, str], number: int, channels: object
) -> nn.Module:
    kind, settings, _, path = case
    model = kind(**settings, in_channels=number).eval()
    load_pretrained(model, path, channels=channels)
    return model


@torch.no_grad()
def assert_same_maps(
    model: nn.Module, other: nn.Module, image: Tensor, rgb: Tensor
) -> None:
    for ours, expected in zip(model(image), other(rgb), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


def test_channels_without_a_source_change_nothing(case):
    model = adapted(case, 5, ['red', 0, 'green', 'blue', 0])
    image = torch.randn(1, 5, 48, 80)
    assert_same_maps(model, case[2], image, image[:, [0, 2, 3]])


@pytest.mark.parametrize('number', [1, 2, 7])
def test_equal_channels_are_a_grey_image(case, number):
    grey = torch.randn(1, 1, 48, 80)
    image = grey.expand(-1, number, -1, -1)
    assert_same_maps(
        adapted(case, number, 'mean'), case[2], image, grey.expand(-1, 3, -1, -1)
    )


def test_adapted_weights_load_without_and_with_channels(case, tmp_path):
    model = adapted(case, 4, ['red', 'green', 'blue', 'mean'])
    path = saved(model.state_dict(), tmp_path)
    for channels in (None, 'mean'):
        again = adapted((*case[:3], path), 4, channels)
        weights = again.state_dict()
        assert all(
            torch.equal(x, weights[key]) for key, x in model.state_dict().items()
        )


def test_published_weights_of_as_many_channels_are_mixed_once(tmp_path, monkeypatch):
    """A training starts from the backbone of the one before it: its first layer is not RGB's."""
    lines: list[str] = []
    monkeypatch.setattr(
        'rope_dense.checkpoints.load.print_log', lambda x, **_: lines.append(x)
    )
    published = vit()
    channels = ['red', 'green', 'mean']
    model, again = RoPEViT(**VIT), RoPEViT(**VIT)
    load_pretrained(
        model, saved(published, tmp_path), channels=['blue', 'green', 'red']
    )
    flipped = model.patch_embed.proj.weight
    assert torch.equal(flipped, published['patch_embed.proj.weight'].flip(1))
    load_pretrained(model, saved(published, tmp_path), channels=channels)
    path = saved(model.state_dict(), tmp_path)
    for settings in (dict(channels=channels), dict()):
        load_pretrained(again, path, **settings)
        assert torch.equal(again.patch_embed.proj.weight, model.patch_embed.proj.weight)
    assert 'adapted patch_embed.proj.weight' in lines[1]
    assert 'assumed patch_embed.proj.weight, saved by this package' in lines[2]
    assert 'assumed' not in lines[3]


def test_mean_agrees_with_timm(tmp_path):
    import_timm()
    from timm.models import adapt_input_conv

    model = RoPEViT(**VIT)
    path, weight = (
        saved(model.state_dict(), tmp_path),
        model.patch_embed.proj.weight.detach(),
    )
    for number in (1, 3, 6):  # timm's keeps the response to grey for these only
        ours = RoPEViT(**VIT, in_channels=number)
        load_pretrained(ours, path, channels='mean')
        theirs = adapt_input_conv(number, weight)
        torch.testing.assert_close(ours.patch_embed.proj.weight.sum(1), theirs.sum(1))
    assert adapt_input_conv(1, weight).equal(weight.sum(1, keepdim=True))


def test_channels_are_loaded_by_init_cfg_and_logged(case, monkeypatch):
    kind, settings, _, path = case
    lines: list[str] = []
    monkeypatch.setattr(
        'rope_dense.checkpoints.load.print_log', lambda x, **_: lines.append(x)
    )
    channels = ['red', 'green', 'blue', 0]
    init_cfg = dict(type='Pretrained', checkpoint=path, channels=channels)
    model = kind(**settings, in_channels=4, init_cfg=init_cfg).eval()
    model.init_weights()
    expected = adapted(case, 4, channels).state_dict()
    assert all(torch.equal(x, expected[key]) for key, x in model.state_dict().items())
    assert 'weight to channels red, green, blue, 0' in lines[0]


def test_weights_are_refused_without_channels(case):
    kind, settings, _, path = case
    message = refusal(kind, path, **settings, in_channels=4)
    assert '\n' not in message
    assert path in message
    assert "channels='mean'" in message
    assert "['red', 'green', 'blue', 0]" in message


@pytest.mark.parametrize(
    'channels, said',
    [
        ('grey', "'grey'"),
        (['red', 'nir', 'blue', 0], "'nir'"),
        (['red', 'green', 'blue'], '3 sources, and the model has 4'),
        (1, '1'),
    ],
)
def test_wrong_channels_are_refused(channels, said, tmp_path):
    path = saved(RoPEViT(**VIT).state_dict(), tmp_path)
    with pytest.raises(CheckpointError) as caught:
        load_pretrained(RoPEViT(**VIT, in_channels=4), path, channels=channels)
    assert said in str(caught.value)
    assert path in str(caught.value)


def test_a_whole_detector_starts_from_rgb_weights(tmp_path, capsys):
    """Those of its neck, too; a head of other classes starts anew as for three channels."""
    settings = small_detector()
    rgb = MODELS.build(settings)
    path = saved(dict(state_dict=rgb.state_dict()), tmp_path)
    settings['backbone']['in_channels'] = settings['neck']['image_channels'] = 4
    model = MODELS.build(settings)
    cfg = Config(dict(model=settings, load_from=path))
    with pytest.raises(UsageError, match='load_channels'):
        check_initial_weights(cfg, model)
    cfg.load_channels = ['red', 'green', 'blue', 0]
    check_initial_weights(cfg, model)
    assert 'neck.stem.conv.weight adapted to channels' in capsys.readouterr().out
    model.load_state_dict(
        load_from_source(path)['state_dict']
    )  # as mmengine's Runner does next
    image = torch.randn(1, 4, 64, 64)
    with torch.no_grad():
        for ours, expected in zip(
            model.eval().extract_feat(image),
            rgb.eval().extract_feat(image[:, :3]),
            strict=True,
        ):
            torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    'address', ['https://example.org/rgb.pth', 'hf-hub:somebody/rgb']
)
def test_fetched_weights_are_adapted_as_files(address, tmp_path, monkeypatch):
    """They are fetched after the processes of a training are connected."""
    settings = small_detector()
    rgb = MODELS.build(settings)
    path = saved(dict(state_dict=rgb.state_dict()), tmp_path)
    monkeypatch.setattr('rope_dense.project.weights.fetch', lambda source: path)
    settings['backbone']['in_channels'] = settings['neck']['image_channels'] = 2
    model = MODELS.build(settings)
    cfg = Config(dict(model=settings, load_from=address, load_channels='mean'))
    check_initial_weights(cfg, model)  # not yet
    check_fetched_weights(cfg, model)
    left = load_from_source(address)['state_dict']
    model.load_state_dict(left)
    colours = rgb.state_dict()['backbone.patch_embed.proj.weight']
    torch.testing.assert_close(
        left['backbone.patch_embed.proj.weight'],
        colours.sum(1, keepdim=True).expand(-1, 2, -1, -1) / 2,
    )
    cfg.load_channels = None
    with pytest.raises(UsageError, match='load_channels') as caught:
        check_fetched_weights(cfg, model)
    assert address in str(caught.value)


def small_detector() -> dict:
    arch = dict(embed_dims=64, depth=3, num_heads=2)
    encoder = dict(in_channels=(32, 32, 32), embed_dims=32, feedforward_channels=64)
    decoder = dict(
        num_layers=1, feedforward_channels=64, num_heads=4, num_points=(2, 2, 2)
    )
    return dict(
        type='DEIM',
        backbone=dict(type='RoPEViT', arch=arch, out_indices=(0, 1, 2)),
        neck=dict(
            type='SpatialTuningAdapter',
            in_channels=64,
            stem_channels=8,
            out_channels=32,
        ),
        encoder=dict(
            type='DEIMEncoder', num_blocks=1, expansion=0.34, num_heads=4, **encoder
        ),
        bbox_head=dict(
            type='DEIMHead',
            num_classes=2,
            embed_dims=32,
            num_queries=4,
            decoder=decoder,
        ),
    )
