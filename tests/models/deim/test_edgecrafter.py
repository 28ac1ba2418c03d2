"""ECDet's encoder, decoder and losses against its source, where a checkout is at hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from helpers.deim import CLASSES, attention_keys, close, conv_keys, mlp_keys, randomise
from helpers.edgecrafter import edgecrafter
from rope_dense.checkpoints.keys import KeyTable, renamed
from rope_dense.models.deim.predictions import Targets

HIDDEN, COUNTS, LAYERS = 32, [3, 0, 4], 3
COSTS = dict(cost_class=2, cost_bbox=5, cost_giou=2)
WEIGHTS = dict(loss_mal=1, loss_bbox=5, loss_giou=2, loss_fgl=0.15, loss_ddf=1.5)
MASK_COSTS = dict(cost_class=2, cost_bbox=1, cost_giou=1, cost_mask_ce=5, cost_mask_dice=5)
MASK_WEIGHTS = WEIGHTS | dict(loss_mask_ce=5, loss_mask_dice=5)
SIDE = 96


def encoder_keys() -> KeyTable:
    block = r'(fpn|pan)_blocks\.(\d)'
    attention = r'encoder\.0\.layers\.0'
    table: KeyTable = {
        **attention_keys(attention + r'\.self_attn', 'attention.self_attn'),
        attention + r'\.self_attn\.in_proj_(.+)': r'attention.self_attn.in_proj.\1',
        attention + r'\.self_attn\.(out_proj.+)': r'attention.self_attn.\1',
        attention + r'\.((norm|linear)[12].+)': r'attention.\1',
        **conv_keys(r'lateral_convs\.(\d)', r'laterals.\1'),
        **conv_keys(r'downsample_convs\.(\d)\.0\.cv1', r'downs.\1.0'),
        **conv_keys(r'downsample_convs\.(\d)\.0\.cv2', r'downs.\1.1'),
        **conv_keys(block + r'\.cv1', r'\1.\2.split'),
        **conv_keys(block + r'\.cv4', r'\1.\2.merge'),
    }
    for i in range(2):
        csp = rf'{block}\.cv{i + 2}\.0'
        table |= conv_keys(csp + r'\.conv1', rf'\1.\2.csp.{i}.split')
        for j, kind in enumerate(('conv3x3', 'conv1x1')):
            theirs = rf'{csp}\.bottlenecks\.(\d)\.conv{j + 1}'
            table |= conv_keys(theirs, rf'\1.\2.csp.{i}.blocks.\3.{kind}')
    return table


def head_keys() -> KeyTable:
    layer, ours = r'decoder\.layers\.(\d)', r'decoder.layers.\1'
    return {
        r'(decoder\.)?(up|reg_scale)': None,
        r'.+num_points_scale': None,
        'anchors|valid_mask': None,
        **mask_keys(),
        r'denoising_class_embed\.(.+)': r'denoising.labels.\1',
        r'enc_score_head\.(.+)': r'selection.cls.\1',
        **mlp_keys('enc_bbox_head', 'selection.reg'),
        **mlp_keys('query_pos_head', 'decoder.query_pos'),
        **mlp_keys('pre_bbox_head', 'decoder.pre_bbox'),
        **mlp_keys(r'dec_bbox_head\.(\d)', r'decoder.reg_branches.\1'),
        **mlp_keys(r'decoder\.lqe_layers\.(\d)\.reg_conf', r'decoder.quality.\1', 2),
        r'dec_score_head\.(.+)': r'decoder.cls_branches.\1',
        layer + r'\.self_attn\.in_proj_(.+)': ours + r'.self_attn.in_proj.\2',
        layer + r'\.linear1\.(.+)': ours + r'.ffn.in_proj.\2',
        layer + r'\.linear2\.(.+)': ours + r'.ffn.out_proj.\2',
    }


def mask_keys() -> KeyTable:
    theirs, ours = r'decoder\.segmentation_head\.', 'mask_head.'
    return {
        theirs + r'blocks\.(\d)\.dwconv\.(.+)': ours + r'blocks.\1.conv.\2',
        theirs + r'blocks\.(\d)\.norm\.(.+)': ours + r'blocks.\1.norm.\2',
        theirs + r'blocks\.(\d)\.pwconv1\.(.+)': ours + r'blocks.\1.linear.\2',
        theirs + r'spatial_features_proj\.(.+)': ours + r'project.\1',
        theirs + r'query_features_block\.norm_in\.(.+)': ours + r'query_norm.\1',
        theirs + r'query_features_block\.layers\.(.+)': ours + r'query_mlp.\1',
        theirs + r'query_features_proj\.(.+)': ours + r'query_project.\1',
        theirs + 'bias': ours + 'bias',
    }


def renamed_blocks(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    names = {'fpn.': 'top_down.', 'pan.': 'bottom_up.'}
    return {names.get(key[:4], key[:4]) + key[4:]: tensor for key, tensor in weights.items()}


def models(
    *, masks: bool = False, random: bool = True, **settings: Any
) -> tuple[nn.Module, nn.Module, nn.Module, nn.Module]:
    """Their encoder and decoder, and our encoder and head with the same weights."""
    encoder = edgecrafter('hybrid_encoder').HybridEncoder(
        [HIDDEN] * 3,
        hidden_dim=HIDDEN,
        nhead=4,
        dim_feedforward=48,
        dropout=0.0,
        expansion=0.75,
        depth_mult=0.67,
        csp_type='csp2',
        fuse_op='sum',
    )
    decoder = edgecrafter('decoder').ECTransformer(
        num_classes=CLASSES,
        hidden_dim=HIDDEN,
        num_queries=20,
        feat_channels=[HIDDEN] * 3,
        num_points=[3, 6, 3],
        nhead=4,
        num_layers=LAYERS,
        dim_feedforward=64,
        num_denoising=20,
        **(dict(mask_downsample_ratio=4, eval_spatial_size=[SIDE, SIDE]) if masks else {}),
    )
    config = dict(
        type='DEIMEncoder',
        in_channels=(HIDDEN,) * 3,
        embed_dims=HIDDEN,
        feedforward_channels=48,
        num_blocks=2,
        expansion=0.75,
        num_heads=4,
        act='SiLU',
    )
    layers = dict(num_layers=LAYERS, feedforward_channels=64, num_heads=4)
    head = dict(
        type='DEIMHead',
        num_classes=CLASSES,
        embed_dims=HIDDEN,
        num_queries=20,
        decoder=layers | dict(norm='layer', ffn='mlp'),
        denoising=dict(num_queries=20),
    )
    if masks:
        head['masks'] = dict(eval_blocks=settings.pop('eval_blocks', None))
    ours = MODELS.build(config), MODELS.build(head | settings)
    if not random:
        return encoder, decoder, *ours
    randomise(encoder)
    randomise(decoder)
    ours[0].load_state_dict(renamed_blocks(renamed(encoder.state_dict(), encoder_keys())))
    ours[1].load_state_dict(renamed(decoder.state_dict(), head_keys()))
    return encoder, decoder, *ours


def maps() -> list[Tensor]:
    """Of a square image: the source orders the positions of others by columns."""
    return [torch.randn(3, HIDDEN, SIDE // stride, SIDE // stride) for stride in (8, 16, 32)]


def names_of_ours(name: str) -> str:
    """Ours of a loss that is called loss_mal_aux_0, loss_mal_dn_pre and so on there."""
    name = name.replace('mask_ce', 'mask').replace('mask_dice', 'dice')
    _, loss, *place = name.split('_')
    prefixes = {('pre',): 'pre.', ('enc', '0'): 'enc.', ('dn', 'pre'): 'dn_pre.', (): ''}
    prefix = prefixes.get(tuple(place))
    if prefix is None:
        prefix = ('d' if place[0] == 'aux' else 'dn_d') + place[1] + '.'
    return f'{prefix}loss_{loss}'


def test_evaluation_is_that_of_the_source() -> None:
    their_encoder, decoder, encoder, head = (part.eval() for part in models())
    given = maps()
    with torch.no_grad():
        encoded = encoder(given)
        for x, expected in zip(encoded, their_encoder(list(given)), strict=True):
            assert close(x, expected)
        prediction, expected = head(encoded), decoder(list(encoded))
    assert close(prediction.logits, expected['pred_logits'])
    assert close(prediction.boxes, expected['pred_boxes'])


def test_masks_in_evaluation_are_those_of_the_source() -> None:
    """Which has the first block alone there."""
    _, decoder, _, head = (part.eval() for part in models(masks=True, eval_blocks=1))
    given = maps()
    with torch.no_grad():
        prediction, expected = head(given), decoder(list(given), spatial_feat=given[0])
    every = torch.arange(20).expand(3, -1)
    assert close(prediction.masks.logits(every), expected['pred_masks'])


def test_weights_begin_as_those_of_the_source() -> None:
    """Constants are the same, and other weights as large."""
    their_encoder, decoder, encoder, head = models(masks=True, random=False)
    expected = renamed_blocks(renamed(their_encoder.state_dict(), encoder_keys()))
    pairs = [(encoder.state_dict(), expected)]
    pairs.append((head.state_dict(), renamed(decoder.state_dict(), head_keys())))
    for ours, theirs in pairs:
        assert set(ours) == set(theirs)
        for name, tensor in ours.items():
            other = theirs[name]
            if other.float().unique().numel() <= 2 or 'sampling_offsets' in name:
                assert torch.equal(tensor, other), name
            elif tensor.numel() >= 500:
                assert (tensor.std() / other.std() - 1).abs() < 0.15, name


def same_points(patch: pytest.MonkeyPatch) -> None:
    """Let the points of masks depend on nothing but their number."""
    rand = torch.rand

    def fixed(*size: Any, **settings: Any) -> Tensor:
        if len(size) < 2 or size[-1] != 2:
            return rand(*size, **settings)
        generator = torch.Generator().manual_seed(math.prod(size))
        return rand(*size, generator=generator, **settings)

    patch.setattr(torch, 'rand', fixed)


@pytest.mark.parametrize('masks', [False, True], ids=['boxes', 'masks'])
def test_losses_and_gradients_are_those_of_the_source(
    masks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, with the same noise; transformers' caller computes some otherwise."""
    costs = dict(class_cost=2.0, bbox_cost=1.0, giou_cost=1.0, mask_cost=5.0, dice_cost=5.0)
    settings = dict(matching=costs) if masks else {}
    their_encoder, decoder, encoder, head = models(masks=masks, **settings)
    matcher = edgecrafter('matcher').HungarianMatcher(
        MASK_COSTS if masks else COSTS,
        use_focal_loss=True,
        mask_point_sample_ratio=16 if masks else None,
    )
    criterion = edgecrafter('criterion').ECCriterion(
        matcher,
        MASK_WEIGHTS if masks else WEIGHTS,
        ['mal', 'boxes', 'local', 'masks'][: 3 + masks],
        gamma=1.5,
        num_classes=CLASSES,
    )
    same_points(monkeypatch)
    number = sum(COUNTS)
    boxes = torch.cat([torch.rand(number, 2), 0.1 + 0.3 * torch.rand(number, 2)], -1)
    truth = (torch.rand(number, SIDE, SIDE) < 0.4).to(torch.uint8) if masks else None
    targets = Targets(torch.randint(0, CLASSES, (number,)), boxes, COUNTS, truth)
    given = maps()
    torch.manual_seed(3)
    encoded = encoder(given)
    losses = head.criterion(head.forward_training(encoded, targets), targets)
    torch.manual_seed(3)
    labels = [dict(labels=label, boxes=box) for label, box in targets.per_image]
    encoded = their_encoder(list(given))
    if truth is not None:
        for label, part in zip(labels, truth.split(COUNTS), strict=True):
            label['masks'] = part
    outputs = decoder(encoded, labels, encoded[0] if masks else None)
    expected = {names_of_ours(name): x for name, x in criterion(outputs, labels).items()}
    own = expected.pop(f'dn_d{LAYERS - 1}.loss_ddf')  # what the last layer learns from itself
    assert own == 0
    assert set(losses) == set(expected)
    for name, loss in losses.items():
        assert abs(loss - expected[name]) <= 1e-5 * max(1, abs(expected[name])), name
    sum(losses.values()).backward()
    sum(expected.values()).backward()
    for ours, theirs, table in (
        (encoder, their_encoder, encoder_keys()),
        (head, decoder, head_keys()),
    ):
        gradients = {
            name: torch.zeros_like(param) if param.grad is None else param.grad
            for name, param in theirs.named_parameters()
        }
        expected = renamed_blocks(renamed(gradients, table))
        largest = max(gradient.abs().max() for gradient in expected.values())
        for name, param in ours.named_parameters():
            assert (param.grad - expected[name]).abs().max() <= 5e-5 * largest, name
