"""Training in bfloat16 on the CPU: what is computed in it and what is not."""

from collections.abc import Callable
from copy import deepcopy

import mmcv.ops.multi_scale_deform_attn as deformable
import pytest
import torch
from mmengine.optim import build_optim_wrapper
from torch import Tensor, nn

from helpers.distributed_cases import (
    Batch,
    detection_batch,
    detector,
    segmentation_batch,
    swin_upernet,
)
from rope_dense.engine import BFloat16OptimWrapper


def wrapper_for(model: nn.Module) -> BFloat16OptimWrapper:
    optimizer = dict(type='SGD', lr=1e-3)
    return build_optim_wrapper(
        model, dict(type='BFloat16OptimWrapper', optimizer=optimizer)
    )


def test_products_are_in_bfloat16_and_weights_in_float32() -> None:
    layer = nn.Linear(3, 2)
    before = layer.weight.detach().clone()
    wrapper = wrapper_for(layer)
    with wrapper.optim_context(layer):
        out = layer(torch.randn(4, 3))
    assert out.dtype == torch.bfloat16
    wrapper.backward(out.float().sum())
    assert layer.weight.dtype == layer.weight.grad.dtype == torch.float32
    wrapper.step()
    torch.testing.assert_close(layer.weight, before - 1e-3 * layer.weight.grad)


def test_a_second_wrapper_leaves_autocast_on() -> None:
    attention = deformable.MultiScaleDeformableAttention(8, 1, 1, 1, batch_first=True)
    model = nn.ModuleDict(dict(attention=attention, linear=nn.Linear(8, 8)))
    shapes, start = torch.tensor([[2, 2]]), torch.tensor([0])
    for part in (model, model, deepcopy(model)):
        with wrapper_for(part).optim_context(part):
            points = torch.rand(1, 4, 1, 2)
            x = part['attention'](
                torch.rand(1, 4, 8),
                reference_points=points,
                spatial_shapes=shapes,
                level_start_index=start,
            )
            assert x.dtype == torch.float32
            assert part['linear'](x).dtype == torch.bfloat16


@pytest.mark.parametrize(
    'make_model, make_batch',
    [(detector, detection_batch), (swin_upernet, segmentation_batch)],
)
def test_loss_and_gradients_are_near_those_of_float32(
    make_model: Callable[[], nn.Module], make_batch: Callable[[], Batch]
) -> None:
    losses, directions = [], []
    for wrapper_type in ('OptimWrapper', 'BFloat16OptimWrapper'):
        model = make_model()
        optimizer = dict(type='SGD', lr=0.0)
        wrapper = build_optim_wrapper(
            model, dict(type=wrapper_type, optimizer=optimizer)
        )
        with wrapper.optim_context(model):
            loss, _ = model.parse_losses(model(*make_batch(), mode='loss'))
        loss.backward()
        losses.append(loss.item())
        directions.append(
            torch.cat([param.grad.flatten() for param in model.parameters()])
        )
    assert losses[1] == pytest.approx(losses[0], rel=0.02) and losses[1] != losses[0]
    assert torch.cosine_similarity(*directions, dim=0) > 0.98


def test_deformable_attention_and_detection_losses_are_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """mmcv has no bfloat16 kernel for either on a GPU."""
    dtypes: list[torch.dtype] = []
    sample = deformable.multi_scale_deformable_attn_pytorch

    def recording(
        value: Tensor, shapes: Tensor, places: Tensor, weights: Tensor
    ) -> Tensor:
        dtypes.extend((value.dtype, places.dtype, weights.dtype))
        return sample(value, shapes, places, weights)

    monkeypatch.setattr(deformable, 'multi_scale_deformable_attn_pytorch', recording)
    model = detector()
    names = list(model.state_dict())
    focal = model.bbox_head.loss_cls
    focal.register_forward_pre_hook(lambda module, args: dtypes.append(args[0].dtype))
    with wrapper_for(model).optim_context(model):
        losses = model(*detection_batch(), mode='loss')
    attentions, classifications = (
        3 * (1 + 2),
        2 + 1 + 2,
    )  # layers; decoder, encoder, denoising
    assert len(dtypes) == attentions + classifications and set(dtypes) == {
        torch.float32
    }
    assert all(loss.dtype == torch.float32 for loss in losses.values())
    assert (
        list(deepcopy(model).state_dict()) == names
    )  # a moving average copies the model
