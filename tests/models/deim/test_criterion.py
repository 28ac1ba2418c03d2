"""Losses against transformers', alone and of whole models in training, with their gradients."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from mmdet.structures import DetDataSample
from mmdet.structures.bbox import bbox_cxcywh_to_xyxy
from mmengine.structures import InstanceData
from torch import Tensor, nn

from helpers.deim import CLASSES, close, pair, to_ours
from rope_dense.models.deim.criterion import (
    Criterion,
    Denoised,
    LossPairs,
    Outputs,
    distill,
)
from rope_dense.models.deim.matching import Matcher, box_overlaps
from rope_dense.models.deim.predictions import (
    Pairs,
    Prediction,
    Targets,
    distance_bins,
    gather_ignored,
    gather_targets,
)
from rope_dense.models.deim.queries import positive_pairs

BINS = 32
COUNTS = [3, 0, 4]
WEIGHTS = dict(mal=1.0, bbox=5.0, giou=2.0, fgl=0.15, ddf=1.5)


def boxes(*shape: int) -> Tensor:
    return torch.cat([torch.rand(*shape, 2), 0.1 + 0.3 * torch.rand(*shape, 2)], -1)


def prediction(batch: int, queries: int, reference: Tensor | None) -> Prediction:
    logits, box = torch.randn(batch, queries, CLASSES), boxes(batch, queries)
    leaves = [logits.requires_grad_(), box.requires_grad_()]
    if reference is not None:
        leaves += [
            torch.randn(batch, queries, 4 * (BINS + 1)).requires_grad_(),
            reference,
        ]
    return Prediction(*leaves)


def leaves(outputs: Outputs) -> list[Tensor]:
    sets = [*outputs.layers, outputs.pre, outputs.encoder]
    sets += [*outputs.denoised.layers, outputs.denoised.pre] if outputs.denoised else []
    return [x for part in sets for x in part if x is not None and x.requires_grad]


def theirs(outputs: Outputs, targets: Targets) -> dict[str, Tensor]:
    """transformers' losses by our names, of each set with its own distributions."""
    from transformers.loss.loss_deimv2 import Deimv2Loss

    settings = dict(
        num_labels=CLASSES,
        max_num_bins=BINS,
        reg_scale=4.0,
        up=0.5,
        use_dense_one_to_one=True,
    )
    settings |= dict(focal_loss_alpha=0.75, focal_loss_gamma=1.5, mal_alpha=None)
    settings |= {f'weight_loss_{name}': weight for name, weight in WEIGHTS.items()}
    settings |= dict(
        matcher_class_cost=2.0, matcher_bbox_cost=5.0, matcher_giou_cost=2.0
    )
    settings |= dict(matcher_alpha=0.25, matcher_gamma=2.0, use_focal_loss=True)
    settings |= dict(weight_loss_vfl=1.0, eos_coefficient=1e-4)
    criterion = Deimv2Loss(SimpleNamespace(**settings))

    def described(part: Prediction, teacher: Prediction) -> dict:
        found = dict(logits=part.logits, pred_boxes=part.boxes)
        if part.corners is not None:
            found |= dict(pred_corners=part.corners, ref_points=part.reference)
            found |= dict(
                teacher_corners=teacher.corners, teacher_logits=teacher.logits
            )
        return found

    *earlier, last = outputs.layers
    given = described(last, last)
    others = [*earlier, outputs.pre, outputs.encoder]
    given['auxiliary_outputs'] = [described(part, last) for part in others]
    names = [f'd{index}.' for index in range(len(earlier))] + ['pre.', 'enc.']
    prefixes = {f'_aux_{index}': name for index, name in enumerate(names)}
    if outputs.denoised is not None:
        layers, pre, pairs, groups = outputs.denoised
        number = pre.logits.shape[1]
        given['dn_auxiliary_outputs'] = [
            described(part, layers[-1]) for part in (*layers, pre)
        ]
        positive = [
            pairs.queries[pairs.queries // number == image] % number
            for image in range(len(targets.counts))
        ]
        given['denoising_meta_values'] = dict(
            dn_positive_idx=positive, dn_num_group=groups
        )
        names = [f'dn_d{index}.' for index in range(len(layers))] + ['dn_pre.']
        prefixes |= {f'_dn_{index}': name for index, name in enumerate(names)}
    labels = [dict(class_labels=labels, boxes=box) for labels, box in targets.per_image]
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # which of several equal counts comes first
        patch.setattr(torch, 'argsort', partial(torch.argsort, stable=True))
        found = criterion(given, labels)
    losses = {}
    for key, loss in found.items():
        name = next((part for part in prefixes if key.endswith(part)), '')
        losses[prefixes.get(name, '') + key.removesuffix(name)] = loss
    return losses


def compare(ours: dict[str, Tensor], expected: dict[str, Tensor]) -> list[str]:
    """Losses are equal; those of ours are the names. A layer learns nothing from itself."""
    for key in [key for key in expected if key not in ours]:
        assert key.endswith('ddf')
        assert expected.pop(key).item() == pytest.approx(0, abs=1e-5)
    assert set(ours) == set(expected)
    names = [key for key in ours if not (key.startswith('dn_') and key.endswith('ddf'))]
    for key in names:
        assert ours[key].item() == pytest.approx(
            expected[key].item(), rel=1e-5, abs=1e-6
        ), key
    return names


def random_outputs(
    batch: int = 3, queries: int = 11, layers: int = 3
) -> tuple[Outputs, Targets]:
    targets = Targets(
        torch.randint(0, CLASSES, (sum(COUNTS),)), boxes(sum(COUNTS)), COUNTS
    )
    groups, most = 2, max(COUNTS)
    reference, noisy = boxes(batch, queries), boxes(batch, 2 * most * groups)
    denoised = Denoised(
        [prediction(batch, 2 * most * groups, noisy) for _ in range(layers)],
        prediction(batch, 2 * most * groups, None),
        positive_pairs(COUNTS, groups, torch.device('cpu')),
        groups,
    )
    outputs = Outputs(
        [prediction(batch, queries, reference) for _ in range(layers)],
        prediction(batch, queries, None),
        prediction(batch, queries, None),
        distance_bins(BINS, 4.0, 0.5),
        denoised,
    )
    return outputs, targets


@pytest.mark.usefixtures('transformers')
def test_losses_and_gradients_are_those_of_transformers() -> None:
    outputs, targets = random_outputs()
    ours = Criterion(Matcher(), WEIGHTS, 1.5, 4.0)(outputs, targets)
    expected = theirs(outputs, targets)
    names = compare(ours, expected)
    assert len(names) == 3 * (3 + 1) + 2 + 2 * 3 + 3 * 4 + 3  # without ddf of denoising
    given = leaves(outputs)
    gradients = [
        torch.autograd.grad(sum(losses[key] for key in names), given, retain_graph=True)
        for losses in (ours, expected)
    ]
    for mine, other in zip(*gradients, strict=True):
        assert mine.abs().max() > 0
        assert close(mine / other.abs().max(), other / other.abs().max())


def test_repeated_boxes_weigh_as_much_as_single_ones() -> None:
    """Classes are a mean over pairs; those of denoising queries, which are not repeated, stay."""
    outputs, targets = random_outputs(queries=40)
    matcher = Matcher(repeats=3)
    criterion = Criterion(matcher, WEIGHTS, 1.5, 4.0)
    losses = criterion(outputs, targets)
    sets = [*outputs.layers, outputs.pre, outputs.encoder]
    each, _ = matcher(sets, targets)
    last = len(outputs.layers) - 1
    assert len(each[last]) == 3 * sum(COUNTS)
    total = criterion.class_loss(sets[last], targets, each[last])
    assert losses['loss_mal'].item() == pytest.approx(total.item() / len(each[last]))
    single = Criterion(Matcher(), WEIGHTS, 1.5, 4.0)(outputs, targets)
    assert torch.equal(losses['dn_d0.loss_mal'], single['dn_d0.loss_mal'])


@pytest.mark.usefixtures('transformers')
def test_distillation_of_denoising_queries() -> None:
    """With their own balance they are transformers'; the source has that of the other queries."""
    outputs, targets = random_outputs()
    assert outputs.denoised is not None
    layers, _, pairs, _ = outputs.denoised
    expected = theirs(outputs, targets)
    batch, number = layers[0].logits.shape[:2]
    own = (float(len(pairs)), float(batch * number - len(pairs)))
    summed = LossPairs(pairs, torch.ones(()), *map(torch.tensor, own))
    for index, layer in enumerate(layers[:-1]):
        predicted = layer.boxes.detach().flatten(0, 1)[pairs.queries]
        iou = box_overlaps(predicted, targets.boxes[pairs.targets], 'iou', aligned=True)
        loss = 1.5 * distill(layer.corners, layers[-1], summed, iou, summed)
        assert loss.item() == pytest.approx(
            expected[f'dn_d{index}.loss_ddf'].item(), rel=1e-5
        )


def samples(counts: list[int], height: int, width: int) -> list[DetDataSample]:
    """Boxes in pixels, as mmdet has them."""
    made = []
    for number in counts:
        corners = bbox_cxcywh_to_xyxy(boxes(number)) * torch.tensor([width, height] * 2)
        instances = InstanceData(
            bboxes=corners, labels=torch.randint(0, CLASSES, (number,))
        )
        made.append(DetDataSample(gt_instances=instances))
    return made


def trained(reference: nn.Module, image: Tensor, targets: Targets) -> Outputs:
    """The outputs of transformers' model in training mode, each with what belongs to it."""
    labels = [dict(class_labels=labels, boxes=box) for labels, box in targets.per_image]
    made = reference.model(image, labels=labels)
    meta = made.denoising_meta_values
    number = meta['dn_num_split'][0]
    logits, box = (
        made.intermediate_logits.unbind(1),
        made.intermediate_reference_points.unbind(1),
    )
    corners = made.intermediate_predicted_corners.unbind(1)
    starts = made.initial_reference_points.unbind(1)
    pre = Prediction(logits[0], box[0])
    layers = [
        Prediction(*part)
        for part in zip(logits[1:], box[1:], corners, starts, strict=True)
    ]
    parts = [part.split(meta['dn_num_split']) for part in (*layers, pre)]
    noisy, others = zip(*parts, strict=True)
    queries = [
        index + image * number for image, index in enumerate(meta['dn_positive_idx'])
    ]
    counts, groups = targets.counts, meta['dn_num_group']
    matched = positive_pairs(counts, groups, image.device).targets
    pairs = Pairs(torch.cat(queries), matched, [number * groups for number in counts])
    denoised = Denoised(list(noisy[:-1]), noisy[-1], pairs, groups)
    encoder = Prediction(made.enc_topk_logits, made.enc_topk_bboxes)
    bins = distance_bins(BINS, 4.0, 0.5)
    return Outputs(list(others[:-1]), others[-1], encoder, bins, denoised)


@pytest.mark.parametrize('size, height, width', [('s', 64, 96), ('x', 96, 64)])
def test_training_is_that_of_transformers(size: str, height: int, width: int) -> None:
    """Losses of images, annotations and the same noise, and the gradient of each parameter."""
    reference, model = pair(size, box_noise_scale=0.4, num_denoising=20)
    model.bbox_head.denoising.box_noise = (
        0.4  # corners do not cross, see the test of denoising
    )
    model.bbox_head.denoising.num_queries = 20
    reference.train()
    model.train()
    image, data = torch.randn(3, 3, height, width), samples(COUNTS, height, width)
    targets = gather_targets(data, (height, width))
    torch.manual_seed(3)
    ours = model(image, data, mode='loss')
    torch.manual_seed(3)

    expected = theirs(trained(reference, image, targets), targets)
    names = compare(ours, expected)
    sum(ours[key] for key in names).backward()
    sum(expected[key] for key in names).backward()
    params = dict(reference.named_parameters(remove_duplicate=False))
    for param in params.values():
        param.data = torch.zeros_like(param) if param.grad is None else param.grad
    gradients = to_ours(reference)
    largest = max(
        param.grad.abs().max() for param in model.parameters() if param.grad is not None
    )
    for name, param in model.named_parameters():
        assert param.grad is not None, name
        assert (param.grad - gradients[name]).abs().max() <= 5e-5 * largest, name


def test_ignored_objects_are_no_background() -> None:
    """Queries in an ignored object change no loss and get no gradient, unless they are paired."""
    criterion = Criterion(Matcher(), {}, 1.5, 4.0)
    predicted = torch.tensor(
        [[0.2, 0.2, 0.1, 0.1], [0.7, 0.7, 0.2, 0.2], [0.75, 0.7, 0.1, 0.1]]
    )
    logits = torch.zeros(2, 3, 4, requires_grad=True)
    one = Prediction(logits, torch.stack([predicted, predicted]))
    ignored = InstanceData(
        bboxes=torch.tensor([[60.0, 30.0, 90.0, 50.0]]), labels=torch.tensor([3])
    )
    found = [DetDataSample(), DetDataSample()]
    for sample in found:
        sample.gt_instances = InstanceData(
            bboxes=torch.tensor([[65.0, 30.0, 75.0, 40.0]]), labels=torch.tensor([1])
        )
        sample.ignored_instances = ignored[:0]
    found[1].ignored_instances = ignored
    targets = gather_targets(found, (60, 100))
    targets = targets._replace(ignored=gather_ignored(found, (60, 100)))
    pairs = Pairs(torch.tensor([2, 5]), torch.tensor([0, 1]), [1, 1])
    of_class = targets.are_ignored(one.boxes, 4)
    assert of_class[:, 3].tolist() == [False] * 4 + [True, True]
    assert not of_class[:, :3].any()
    criterion.class_loss(one, targets, pairs).backward()
    silent = logits.grad[..., 3] == 0
    assert silent.tolist() == [[False, False, False], [False, True, False]]
    assert (logits.grad[..., :3] != 0).all()  # other classes are not ignored
    for sample in found:
        del sample.ignored_instances
    assert gather_ignored(found, (60, 100)) is None
    assert not targets._replace(ignored=None).are_ignored(one.boxes, 4).any()


def test_ignored_rotated_objects() -> None:
    box = torch.tensor([[50, 30, 40, 0, torch.pi / 4]])
    ignored = InstanceData(bboxes=box, labels=torch.tensor([2]))
    sample = DetDataSample(ignored_instances=ignored)
    around = gather_ignored([DetDataSample(), sample], (60, 100))
    half = 20 * 0.5**0.5
    expected = [
        1,
        2,
        (50 - half) / 100,
        (30 - half) / 60,
        (50 + half) / 100,
        (30 + half) / 60,
    ]
    assert around.tolist() == [pytest.approx(expected, abs=1e-6)]
