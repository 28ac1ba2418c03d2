"""ECDet's encoder, decoder and losses against its source, where a checkout is at hand."""

from __future__ import annotations

from typing import Any

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from helpers.deim import CLASSES, attention_keys, close, conv_keys, mlp_keys, randomise
from helpers.edgecrafter import edgecrafter
from rope_dense.checkpoints.keys import KeyTable, renamed
from rope_dense.models.deim.targets import Targets

HIDDEN, COUNTS, LAYERS = 32, [3, 0, 4], 3
COSTS = dict(cost_class=2, cost_bbox=5, cost_giou=2)
WEIGHTS = dict(loss_mal=1, loss_bbox=5, loss_giou=2, loss_fgl=0.15, loss_ddf=1.5)
LOSSES = {'mal': 'mal', 'bbox': 'bbox', 'giou': 'giou', 'fgl': 'fgl', 'ddf': 'ddf'}


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


def renamed_blocks(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    names = {'fpn.': 'top_down.', 'pan.': 'bottom_up.'}
    return {names.get(key[:4], key[:4]) + key[4:]: tensor for key, tensor in weights.items()}


def models(**settings: Any) -> tuple[nn.Module, nn.Module, nn.Module, nn.Module]:
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
    )
    randomise(encoder)
    randomise(decoder)
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
    ours = MODELS.build(config), MODELS.build(head | settings)
    ours[0].load_state_dict(renamed_blocks(renamed(encoder.state_dict(), encoder_keys())))
    ours[1].load_state_dict(renamed(decoder.state_dict(), head_keys()))
    return encoder, decoder, *ours


def maps() -> list[Tensor]:
    """Of a square image: the source orders the positions of others by columns."""
    return [torch.randn(3, HIDDEN, side, side) for side in (12, 6, 3)]


def names_of_ours(name: str) -> str:
    """Ours of a loss that is called loss_mal_aux_0, loss_mal_dn_pre and so on there."""
    _, loss, *place = name.split('_')
    prefixes = {('pre',): 'pre.', ('enc', '0'): 'enc.', ('dn', 'pre'): 'dn_pre.', (): ''}
    prefix = prefixes.get(tuple(place))
    if prefix is None:
        prefix = ('d' if place[0] == 'aux' else 'dn_d') + place[1] + '.'
    return f'{prefix}loss_{LOSSES[loss]}'


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


def test_losses_and_gradients_are_those_of_the_source() -> None:
    """All, with the same noise: also those whose way transformers' copy has lost."""
    their_encoder, decoder, encoder, head = models()
    matcher = edgecrafter('matcher').HungarianMatcher(COSTS, use_focal_loss=True)
    criterion = edgecrafter('criterion').ECCriterion(
        matcher, WEIGHTS, ['mal', 'boxes', 'local'], gamma=1.5, num_classes=CLASSES
    )
    number = sum(COUNTS)
    boxes = torch.cat([torch.rand(number, 2), 0.1 + 0.3 * torch.rand(number, 2)], -1)
    targets = Targets(torch.randint(0, CLASSES, (number,)), boxes, COUNTS)
    given = maps()
    torch.manual_seed(3)
    encoded = encoder(given)
    losses = head.criterion(head.forward_training(encoded, targets), targets)
    torch.manual_seed(3)
    labels = [dict(labels=label, boxes=box) for label, box in targets.per_image]
    outputs = decoder(their_encoder(list(given)), labels)
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
