"""The published head: epsilon, normaliser of the denoising losses, and first weights."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from mmdet.models.dense_heads import DINOHead
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import InstanceData
from torch import Tensor, nn

import rope_dense  # noqa: F401
from rope_dense.models.dino import PublishedDINOHead

CONFIGS = Path(__file__).parents[2] / 'configs'
CLASSES, HEIGHT, WIDTH = 5, 64, 96


def head_of(head_class: type[DINOHead]) -> DINOHead:
    """Two decoder layers and the encoder's proposals; 5 classes, 16 channels."""
    init_default_scope('mmdet')
    cfg = Config.fromfile(CONFIGS / '_base_' / 'models' / 'dino.py').model
    more = dict(num_classes=CLASSES, embed_dims=16, num_pred_layer=3, as_two_stage=True)
    settings = {
        key: value for key, value in cfg.bbox_head.items() if key != 'type'
    } | more
    head = head_class(share_pred_layer=False, train_cfg=cfg.train_cfg, **settings)
    head.init_weights()
    return head


def test_boxes_start_from_references_that_end_at_one_thousandth() -> None:
    """First weights add nothing, so a box is its reference, kept off the border."""
    references = torch.tensor([[[0.0, 1.0, 1e-4, 0.9999], [1e-3, 0.999, 0.25, 0.5]]])
    queries = torch.rand(2, 1, 2, 16)
    low, high = references.clamp(min=1e-3), (1 - references).clamp(min=1e-3)
    expected = low / (low + high)  # sigmoid of log(low / high)
    logits, boxes = head_of(PublishedDINOHead)(queries, [references] * 3)
    assert logits.shape == (2, 1, 2, CLASSES)
    torch.testing.assert_close(boxes, expected.expand(2, 1, 2, 4), rtol=1e-5, atol=1e-7)
    _, of_mmdet = head_of(DINOHead)(queries, [references] * 3)
    ratio = (boxes / of_mmdet)[
        0, 0, 0
    ].tolist()  # of a border coordinate: 1e-3 in place of 1e-5
    assert ratio[0] == pytest.approx(100, rel=2e-3) and ratio[2] == pytest.approx(
        10, rel=2e-3
    )
    torch.testing.assert_close(
        boxes[:, :, 1], of_mmdet[:, :, 1]
    )  # inside, both are the same


def random_boxes(count: int) -> Tensor:
    """[N, 4] of cx, cy, w, h inside the image, in 0..1."""
    sizes = 0.1 + 0.2 * torch.rand(count, 2)
    return torch.cat([0.2 + 0.6 * torch.rand(count, 2), sizes], dim=1)


def corners(boxes: Tensor) -> Tensor:
    return torch.cat(
        [boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], dim=1
    )


def focal_loss(logits: Tensor, labels: Tensor) -> float:
    """Sum over queries and classes; label CLASSES is background."""
    total = 0.0
    for row, label in zip(logits.double(), labels, strict=True):
        for class_index, logit in enumerate(row):
            probability = logit.sigmoid().item()
            if class_index == label:
                total -= 0.25 * (1 - probability) ** 2 * math.log(probability)
            else:
                total -= 0.75 * probability**2 * math.log(1 - probability)
    return total


def generalized_iou(a: Tensor, b: Tensor) -> float:
    """Of two boxes x0, y0, x1, y1."""
    overlap = (
        (torch.minimum(a[2:], b[2:]) - torch.maximum(a[:2], b[:2])).clamp(min=0).prod()
    )
    union = (a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - overlap
    hull = (torch.maximum(a[2:], b[2:]) - torch.minimum(a[:2], b[:2])).prod()
    return (overlap / union - (hull - union) / hull).item()


class Denoising:
    """Two images with 3 and 1 boxes, in 2 groups of 3 positive and 3 negative queries."""

    groups, most = 2, 3

    def __init__(self) -> None:
        self.boxes = [random_boxes(3), random_boxes(1)]
        self.labels = [torch.tensor([0, 4, 2]), torch.tensor([1])]
        self.scores = torch.randn(1, 2, self.groups * 2 * self.most, CLASSES)
        self.predicted = torch.stack([random_boxes(12), random_boxes(12)])[None]

    def arguments(self) -> tuple:
        size = torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT])
        truth = [
            InstanceData(bboxes=corners(boxes) * size, labels=labels)
            for boxes, labels in zip(self.boxes, self.labels, strict=True)
        ]
        meta = dict(num_denoising_queries=12, num_denoising_groups=self.groups)
        return (
            self.scores,
            self.predicted,
            truth,
            [dict(img_shape=(HEIGHT, WIDTH))] * 2,
            meta,
        )

    def sums(self) -> tuple[float, float, float]:
        """Class, L1 and GIoU losses summed over the queries, before any division."""
        labels = torch.full((2, 12), CLASSES)
        distance = overlap = 0.0
        for image, boxes in enumerate(self.boxes):
            for group in range(self.groups):
                for index, box in enumerate(boxes):
                    query = group * 2 * self.most + index
                    labels[image, query] = self.labels[image][index]
                    actual = self.predicted[0, image, query]
                    distance += (actual - box).abs().sum().item()
                    overlap += 1 - generalized_iou(
                        corners(actual[None])[0], corners(box[None])[0]
                    )
        class_loss = focal_loss(self.scores.flatten(0, 2), labels.flatten())
        return class_loss, 5 * distance, 2 * overlap


@pytest.mark.parametrize(
    'elsewhere, divisor',
    [(None, 2 * 4), (10, 2 * 7), (0, 2 * 2), (-4, 2 * 1)],
    ids=['one process', 'more boxes elsewhere', 'fewer', 'at least one'],
)
def test_denoising_losses_are_divided_by_mean_boxes_times_own_groups(
    monkeypatch: pytest.MonkeyPatch, elsewhere: int | None, divisor: int
) -> None:
    """`elsewhere`: the boxes of a second process; the average is that of (4, elsewhere)."""
    if elsewhere is not None:
        mean = lambda count: (count + elsewhere) / 2  # noqa: E731
        monkeypatch.setattr('mmdet.models.dense_heads.dino_head.reduce_mean', mean)
    case = Denoising()
    *given, meta = case.arguments()
    losses = head_of(PublishedDINOHead).loss_dn(*given, dn_meta=meta)
    for (loss,), total in zip(losses, case.sums(), strict=True):
        assert loss.item() == pytest.approx(total / divisor, rel=1e-5)


def test_denoising_without_boxes_is_zero_and_finite() -> None:
    case = Denoising()
    case.boxes, case.labels = (
        [torch.zeros(0, 4)] * 2,
        [torch.zeros(0, dtype=torch.long)] * 2,
    )
    _, _, truth, metas, _ = case.arguments()
    meta = dict(num_denoising_queries=0, num_denoising_groups=1)
    empty = torch.zeros(1, 2, 0, CLASSES), torch.zeros(1, 2, 0, 4)
    losses = head_of(PublishedDINOHead).loss_dn(*empty, truth, metas, dn_meta=meta)
    assert [float(loss) for of_layers in losses for loss in of_layers] == [0.0] * 3


@pytest.fixture(scope='module')
def model() -> nn.Module:
    """A DINO of 64 channels, a level per map of a 4-map neck, with its first weights."""
    torch.manual_seed(0)
    cfg = Config.fromfile(CONFIGS / 'dino_vitdet_rope_mixed.py').model
    cfg.backbone.update(
        arch=dict(embed_dims=32, depth=2, num_heads=2),
        window_size=2,
        window_block_indexes=(0,),
        init_cfg=None,
    )
    cfg.neck[0].update(in_channels=32, out_channels=64)
    cfg.neck[1].update(in_channels=[64] * 4, out_channels=64)
    encoder, decoder = cfg.encoder.layer_cfg, cfg.decoder.layer_cfg
    for part in (encoder.self_attn_cfg, decoder.self_attn_cfg, decoder.cross_attn_cfg):
        part.embed_dims = 64
    for part in (encoder.ffn_cfg, decoder.ffn_cfg):
        part.update(embed_dims=64, feedforward_channels=128)
    cfg.bbox_head.embed_dims = 64
    cfg.encoder.num_layers, cfg.decoder.num_layers = 1, 2
    cfg.positional_encoding.num_feats = 32
    cfg.num_queries = 50
    init_default_scope('mmdet')
    model = MODELS.build(cfg)
    model.init_weights()
    return model


def test_no_box_in_the_batch_still_gives_every_parameter_a_gradient(
    model: nn.Module,
) -> None:
    """A crop can lose all boxes; DDP waits for the gradient of each parameter."""
    sample = DetDataSample(
        metainfo=dict(img_shape=(HEIGHT, WIDTH), batch_input_shape=(HEIGHT, WIDTH)),
        gt_instances=InstanceData(
            bboxes=torch.zeros(0, 4), labels=torch.zeros(0).long()
        ),
    )
    losses = model.train()(torch.randn(1, 3, HEIGHT, WIDTH), [sample], mode='loss')
    total, _ = model.parse_losses(losses)
    total.backward()
    assert torch.isfinite(total)
    assert [
        name for name, param in model.named_parameters() if param.grad is None
    ] == []


# The first weights of detrex, by name: uniform in +-sqrt(6 / (rows + columns)), and what differs.
XAVIER = (
    'encoder.layers.0.self_attn.value_proj',
    'encoder.layers.0.self_attn.output_proj',
    'encoder.layers.0.ffn.layers.0.0',
    'encoder.layers.0.ffn.layers.1',
    'decoder.layers.1.self_attn.attn.in_proj_weight',
    'decoder.layers.1.self_attn.attn.out_proj',
    'decoder.layers.1.cross_attn.value_proj',
    'decoder.layers.1.ffn.layers.0.0',
    'decoder.ref_point_head.layers.0',
    'decoder.ref_point_head.layers.1',
    'memory_trans_fc',
    'query_embedding',
    *(f'neck.1.convs.{level}.conv' for level in range(4)),
)


@pytest.mark.parametrize('name', XAVIER)
def test_matrices_start_as_in_detrex(model: nn.Module, name: str) -> None:
    params = dict(model.named_parameters())
    weight = params.get(name, params.get(f'{name}.weight')).detach().flatten(1)
    bound = math.sqrt(6 / sum(weight.shape))
    assert 0.97 * bound < weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert abs(weight.mean().item()) < 0.05 * bound


def test_the_rest_starts_as_in_detrex(model: nn.Module) -> None:
    head = model.bbox_head
    for branch in head.cls_branches:
        torch.testing.assert_close(branch.bias, torch.full((80,), -math.log(99)))
    for branch in head.reg_branches:
        assert not branch[-1].weight.any() and not branch[-1].bias.any()
    for name, embedding in (
        ('level_embed', model.level_embed),
        ('label_embedding', model.dn_query_generator.label_embedding.weight),
    ):
        assert embedding.std().item() == pytest.approx(1, rel=0.1), name
        assert abs(embedding.mean().item()) < 0.1, name
    for conv in model.neck[1].convs:
        assert not conv.conv.bias.any()
    for attention in (
        model.encoder.layers[0].self_attn,
        model.decoder.layers[0].cross_attn,
    ):
        assert not attention.sampling_offsets.weight.any()
        assert not attention.attention_weights.weight.any()
        assert (
            not attention.value_proj.bias.any() and not attention.output_proj.bias.any()
        )
        torch.testing.assert_close(attention.sampling_offsets.bias, first_offsets())


def first_offsets() -> Tensor:
    """[head, level, point, xy]: heads look in 8 directions, point k at distance k (in max norm)."""
    offsets = torch.zeros(8, 4, 4, 2)
    for index in range(8):
        direction = torch.tensor(
            [math.cos(math.pi * index / 4), math.sin(math.pi * index / 4)]
        )
        direction /= direction.abs().max()
        for point in range(4):
            offsets[index, :, point] = direction * (point + 1)
    return offsets.flatten()


def test_encoding_of_positions_is_the_published_one(model: nn.Module) -> None:
    """Cell centres over the valid size, times 2 pi, temperature 10000: sines of y, then of x."""
    mask = torch.zeros(1, 3, 5, dtype=torch.bool)
    mask[:, :, 4:] = True  # one column of padding
    actual = model.positional_encoding(mask)[0]  # [2 * 32, 3, 5]
    for row, column in ((0, 0), (2, 3), (1, 2)):
        for axis, angle in ((0, (row + 0.5) / 3), (1, (column + 0.5) / 4)):
            turns = 2 * math.pi * angle / 10000 ** (torch.arange(16) * 2 / 32)
            pairs = torch.stack([turns.sin(), turns.cos()], -1).flatten()
            torch.testing.assert_close(
                actual[32 * axis : 32 * axis + 32, row, column],
                pairs,
                rtol=1e-4,
                atol=1e-4,
            )


def test_cross_check_of_the_focal_loss_above() -> None:
    """The reference itself, against binary cross entropy."""
    logits, labels = torch.randn(6, CLASSES), torch.tensor([0, 1, 5, 5, 3, 2])
    target = F.one_hot(labels, CLASSES + 1)[:, :CLASSES].float()
    entropy = F.binary_cross_entropy_with_logits(logits, target, reduction='none')
    weight = torch.where(target > 0, 0.25, 0.75) * (1 - (-entropy).exp()) ** 2
    assert focal_loss(logits, labels) == pytest.approx(
        (weight * entropy).sum().item(), rel=1e-5
    )


def test_ignored_objects_are_no_background(monkeypatch: pytest.MonkeyPatch) -> None:
    head = head_of(PublishedDINOHead)
    boxes = torch.tensor(
        [[0.2, 0.2, 0.1, 0.1], [0.7, 0.7, 0.2, 0.2], [0.75, 0.7, 0.1, 0.1]]
    )
    truth = InstanceData(
        bboxes=torch.tensor([[70.0, 39.0, 80.0, 45.0]]), labels=torch.tensor([1])
    )
    given = torch.zeros(3, head.cls_out_channels), boxes, truth
    plain = dict(img_shape=(60, 100), batch_input_shape=(60, 100))
    weights, positive = head._get_targets_single(*given, plain)[1::3]
    assert weights.tolist() == [1, 1, 1] and positive.tolist() == [2]
    monkeypatch.setattr(head, 'skip_ignored', True)
    weights, positive = head._get_targets_single(*given, plain)[1::3]
    assert (weights == 1).all() and positive.tolist() == [2]
    place = torch.tensor([[60.0, 30.0, 90.0, 50.0]])
    ignored = dict(plain, ignored=(place, torch.tensor([2])))
    weights, positive = head._get_targets_single(*given, ignored)[1::3]
    assert weights[:, 2].tolist() == [1, 0, 1] and positive.tolist() == [2]
    weights[:, 2] = 1
    assert (weights == 1).all()  # of its class alone


def test_denoising_has_no_background_of_a_class_ignored_in_the_whole_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside mmdet's weights; a smaller ignored object changes none."""
    head = head_of(PublishedDINOHead)
    truth = InstanceData(
        bboxes=torch.tensor([[10.0, 10.0, 30.0, 40.0]]), labels=torch.tensor([1])
    )
    meta = dict(num_denoising_queries=4, num_denoising_groups=2)
    places = torch.tensor([[0.0, 0.0, 100.0, 60.0], [50.0, 30.0, 100.0, 60.0]])
    image = dict(img_shape=(60, 100), ignored=(places, torch.tensor([2, 0])))
    weights, negatives = head._get_dn_targets_single(truth, image, meta)[1::4]
    assert weights.tolist() == [1] * 4
    monkeypatch.setattr(head, 'skip_ignored', True)
    weights, negatives = head._get_dn_targets_single(truth, image, meta)[1::4]
    assert negatives.tolist() == [1, 3]
    assert weights[:, 2].tolist() == [1, 0, 1, 0]
    weights[:, 2] = 1
    assert (weights == 1).all()


def test_ignored_objects_of_samples_reach_the_targets(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[list]()
    monkeypatch.setattr(
        DINOHead,
        'loss',
        lambda self, **given: seen.append(given['batch_data_samples']) or {},
    )
    ignored = InstanceData(bboxes=torch.ones(2, 4), labels=torch.ones(2))
    sample = DetDataSample(ignored_instances=ignored)
    given = dict(hidden_states=None, batch_data_samples=[sample, DetDataSample()])
    model.bbox_head.loss(**given)
    assert not seen.pop()[0].metainfo
    monkeypatch.setattr(model.bbox_head, 'skip_ignored', True)
    model.bbox_head.loss(**given)
    assert seen[0][0].metainfo['ignored'][0].shape == (2, 4)
    assert not seen[0][1].metainfo
