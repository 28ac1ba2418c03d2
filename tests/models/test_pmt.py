"""PMT against its source and against EoMT, its checkpoints, and what it saves and refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from helpers.eomt import ARCH, CLASSES, QUERIES, SIZES, close, image, randomise
from helpers.eomt import build as build_eomt
from helpers.grid import CONFIGS, read
from helpers.pmt import BLOCKS, LATERALS, build, published, theirs
from helpers.small_checkpoints import saved
from rope_dense.backbones import RoPEViT
from rope_dense.checkpoints import CheckpointError
from rope_dense.models.eomt.annealing import find_eomt, load_eomt
from rope_dense.models.eomt.pmt import PMT
from rope_dense_command import command


def loaded(model: nn.Module, folder: Path, **settings: object) -> tuple[RoPEViT, PMT]:
    """Ours with the weights of the source's model, from files as they are published."""
    backbone, pmt = build(**settings)
    (folder / 'base').mkdir(parents=True)
    base = saved(model.encoder.hub_weights(), folder / 'base')
    load_eomt(backbone, pmt, saved(published(model), folder), base)
    return backbone, pmt


@pytest.mark.parametrize('training', [False, True])
def test_predictions_are_those_of_the_source(tmp_path: Path, training: bool) -> None:
    """In training with all queries masked, as at its beginning; gradients of the sum too."""
    model = theirs()
    backbone, pmt = loaded(model, tmp_path, frozen_stages='all')
    model.attn_mask_probs.fill_(float(training))
    model.decoder.train(training), model.bn.train(training), model.encoder.eval()
    backbone.train(training), pmt.train(training)
    masks, classes = model(image())
    predictions = pmt(backbone, image())
    assert (
        len(predictions) == (1 + BLOCKS if training else 1) and len(masks) == 1 + BLOCKS
    )
    for (our_classes, our_masks), wanted_masks, wanted_classes in zip(
        predictions[::-1], masks[::-1], classes[::-1], strict=False
    ):
        assert 0.01 < (our_masks > 0).float().mean() < 0.99
        assert close(our_masks, wanted_masks) and close(our_classes, wanted_classes)
    masks[-1].square().sum().backward(), predictions[-1][1].square().sum().backward()
    assert close(pmt.query.weight.grad, model.decoder.q.weight.grad, 1e-4)
    assert close(pmt.laterals[0].scale.grad, model.decoder.scalers[0].grad, 1e-4)
    assert close(pmt.laterals[0].norm.running_mean, model.bn[0].running_mean)


def unchanged(lateral: nn.Module) -> None:
    """A lateral that returns its input, in evaluation."""
    lateral.norm.eps = 0.0
    nn.init.zeros_(lateral.mlp[2].weight), nn.init.zeros_(lateral.mlp[2].bias)


@torch.no_grad()
def test_eomt_is_a_pmt_whose_blocks_are_the_last_of_the_backbone() -> None:
    """Of one map, not normalised, with the weights of the blocks and of the norm after them."""
    backbone, eomt = build_eomt(arch=ARCH | dict(final_norm=False))
    randomise(backbone, eomt)
    encoder = RoPEViT(arch=ARCH | dict(final_norm=False, depth=2))
    encoder.load_state_dict(backbone.state_dict(), strict=False)
    blocks = dict(num_heads=2, mlp_ratio=4.0, norm_cfg=dict(type='LN', eps=1e-6))
    pmt = PMT(32, CLASSES, QUERIES, BLOCKS, num_laterals=1, blocks=blocks)
    pmt.join(encoder)
    unchanged(pmt.laterals[0])
    pmt.load_state_dict(eomt.state_dict(), strict=False)
    for block, expected in zip(pmt.blocks, backbone.blocks[2:], strict=True):
        block.load_state_dict(expected.state_dict())
        for norm in (block.norm1, block.norm2):
            norm.eps = 1e-5
    for training in (False, True):
        for part in (backbone, eomt, encoder, pmt):
            part.train(training)
        pmt.laterals.eval()
        for actual, expected in zip(
            pmt(encoder, image(48, 80)), eomt(backbone, image(48, 80)), strict=True
        ):
            assert all(map(close, actual, expected))


def saved_bytes(run: Callable[[], object]) -> int:
    """Bytes of the tensors that autograd saves during a call, weights included."""
    count = [0]

    def pack(x: Tensor) -> Tensor:
        count[0] += x.nbytes
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        run()
    return count[0]


def test_a_frozen_encoder_keeps_no_activation() -> None:
    for frozen, settings in ((True, dict(frozen_stages='all')), (False, {})):
        backbone, pmt = build(**settings)
        count = saved_bytes(partial(backbone.forward_tokens, image()))
        assert (count == 0) == frozen
        sum(
            x.sum() for prediction in pmt(backbone, image()) for x in prediction
        ).backward()
        assert all((param.grad is None) == frozen for param in backbone.parameters())
        assert all(param.grad is not None for param in pmt.parameters())


@pytest.mark.parametrize(
    'settings',
    [
        dict(arch=SIZES),  # RoPE-Mixed of the paper, without a norm of its own
        dict(arch=RoPEViT.ARCHS['eva02_base'] | SIZES),
        dict(arch=RoPEViT.ARCHS['pe_spatial_base'] | SIZES, out_indices=(1, 3)),
        dict(arch=ARCH, window_size=2, window_block_indexes=(0, 1, 3)),
        dict(arch=ARCH, with_cp=True),
        dict(arch=ARCH, lora=dict(rank=2)),
    ],
    ids=['mixed', 'eva02', 'pe', 'windows', 'recomputed', 'lora'],
)
def test_any_family_trains_at_any_size(settings: dict) -> None:
    backbone, pmt = build(**settings)
    randomise(backbone, pmt)
    patch = backbone.arch.patch_size
    predictions = pmt(backbone, image(5 * patch, 3 * patch))
    scale = 4 if patch == 16 else 2
    for classes, masks in predictions:
        assert classes.shape == (2, QUERIES, CLASSES + 1)
        assert masks.shape == (2, QUERIES, 5 * scale, 3 * scale)
    sum(x.square().mean() for prediction in predictions for x in prediction).backward()
    trained = [
        p for part in (backbone, pmt) for p in part.parameters() if p.requires_grad
    ]
    assert trained and all(p.grad is not None and p.grad.any() for p in trained)


@pytest.mark.parametrize(
    'change, message',
    [
        (lambda w: w.pop('network.decoder.scalers.2'), 'missing: laterals.2.scale'),
        (
            lambda w: w.pop('network.bn.1.running_var'),
            'missing: laterals.1.norm.running_var',
        ),
        (
            lambda w: w.update({'network.decoder.pe': torch.ones(1)}),
            'not known: network.decoder.pe',
        ),
        (
            lambda w: w.update({'network.decoder.q.weight': torch.ones(9, 32)}),
            r'query.weight \[9, 32\] instead of \[5, 32\]',
        ),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, change: Callable, message: str
) -> None:
    model = theirs()
    weights, (backbone, pmt) = published(model), build()
    change(weights)
    before = [x.clone() for part in (backbone, pmt) for x in part.state_dict().values()]
    (tmp_path / 'base').mkdir()
    base = saved(model.encoder.hub_weights(), tmp_path / 'base')
    with pytest.raises(CheckpointError, match=message):
        load_eomt(backbone, pmt, saved(weights, tmp_path), base)
    after = [x for part in (backbone, pmt) for x in part.state_dict().values()]
    assert all(map(torch.equal, before, after))


def test_a_decoder_needs_the_weights_of_its_encoder(tmp_path: Path) -> None:
    backbone, pmt = build()
    names = {
        'query.weight': 'decoder.q.weight',
        'class_head.weight': 'decoder.class_head.weight',
    }
    weights = {f'network.{name}': pmt.state_dict()[key] for key, name in names.items()}
    with pytest.raises(CheckpointError, match='has no backbone: name its weights'):
        load_eomt(backbone, pmt, saved(weights, tmp_path))


def test_convert_eomt_writes_a_decoder_with_its_encoder(tmp_path: Path) -> None:
    model = theirs()
    cfg = copy.deepcopy(
        read(CONFIGS / 'pmt' / 'pmt_dinov3-s_8xb2-89k_coco-panoptic-640x640.py')
    )
    cfg.model.backbone = dict(type='RoPEViT', arch=ARCH, out_indices=LATERALS)
    settings = dict(in_channels=32, num_queries=QUERIES, num_blocks=BLOCKS)
    cfg.model.panoptic_head.update(
        settings,
        num_things_classes=CLASSES,
        num_stuff_classes=0,
        pmt=dict(blocks=dict(num_heads=2)),
    )
    cfg.dump(tmp_path / 'config.py')
    (tmp_path / 'base').mkdir()
    base = saved(model.encoder.hub_weights(), tmp_path / 'base')
    convert = command('convert_checkpoint')
    files = [saved(published(model), tmp_path), str(tmp_path / 'ours.pth')]
    assert not convert(
        [*files, '--config', str(tmp_path / 'config.py'), '--base', base]
    )
    weights = torch.load(tmp_path / 'ours.pth', weights_only=True)['state_dict']
    backbone, pmt = loaded(model, tmp_path / 'again')
    expected = {f'backbone.{key}': x for key, x in backbone.state_dict().items()}
    expected |= {f'panoptic_head.eomt.{key}': x for key, x in pmt.state_dict().items()}
    assert expected.keys() <= weights.keys()
    assert all(torch.equal(weights[key], x) for key, x in expected.items())


def test_other_maps_are_refused() -> None:
    backbone, pmt = RoPEViT(arch=ARCH, out_indices=(1, 3)), PMT(32, CLASSES, QUERIES)
    with pytest.raises(ValueError, match=r'num_laterals=4.*out_indices=\[1, 3\]'):
        pmt.join(backbone)
    with pytest.raises(ValueError, match="'in_channels': 32"):
        PMT(64, CLASSES, QUERIES).join(backbone)
    assert find_eomt(nn.Sequential(pmt)) is pmt and len(LATERALS) == 4
