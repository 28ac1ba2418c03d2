"""Training and prediction of all models where no GPU is: devices, precisions, waits of the host."""

import contextlib
import copy
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from mmdet.structures.mask import BitmapMasks
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.structures import PixelData
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from helpers import deim, eomt, shared_backbone
from helpers.pretended_gpu import (
    CUDA,
    Pretended,
    cuda_autocast,
    pretended_cuda,
    pretended_gpu,
    to_gpu,
)
from rope_dense.backbones import RoPENAT, RoPESwin, RoPEViT
from rope_dense.measure.speed import noise
from rope_dense.project.model import random_model

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / 'benchmarks'))
from flagships import TINY  # noqa: E402

MIXED = dict(type='MixedRoPE', theta=10.0)
VIT = dict(embed_dims=32, depth=2, num_heads=2)
SWIN = dict(embed_dims=16, depths=(2, 2), num_heads=(1, 2))
BACKBONES: dict[str, Callable[[], nn.Module]] = {
    'windows, recomputed': lambda: RoPEViT(
        VIT,
        patch_size=8,
        rope=MIXED,
        window_size=4,
        window_block_indexes=[0],
        drop_path_rate=0.5,
        with_cp=True,
    ),
    'global prefix': lambda: RoPEViT(
        dict(VIT, num_registers=2),
        patch_size=8,
        window_size=4,
        window_block_indexes=[0],
        window_prefix='global',
    ),
    'dinov3 with adapters': lambda: RoPEViT(
        dict(RoPEViT.ARCHS['dinov3_tiny'], **VIT), lora=dict(rank=4)
    ),
    'swin with bias, recomputed': lambda: RoPESwin(
        SWIN,
        rope=MIXED,
        attention=dict(type='TableBias'),
        window_size=4,
        out_indices=(0, 1),
        with_cp=True,
    ),
    'nat with bias': lambda: RoPENAT(
        SWIN,
        attention=dict(type='TableBias'),
        kernel_size=3,
        dilations=((1, 2), (1,)),
        out_indices=(0, 1),
    ),
}
PRECISIONS = [None, torch.float16]
# Waits in a training step and in a prediction of two images. What is above DEIM's is mmdet's,
# mmseg's and mmcv's: matching, sampling of masks, shapes of maps as tensors, accuracy.
WAITS = {
    'dino_vitdet_rope_mixed': (122, 48),
    'upernet_vit_rope_mixed': (4, 1),
    'mask2former_swin_rope_mixed': (66, 22),
    'deim': (1, 0),
    'deim with masks': (1, 0),
    'deim oriented': (1, 2),  # mmrotate's boxes are rescaled by tensors from the host
    'eomt': (64, 0),
    'pmt': (64, 0),
    'depth': (0, 0),
}


def autocast(dtype: torch.dtype | None) -> contextlib.AbstractContextManager:
    return cuda_autocast(dtype) if dtype else contextlib.nullcontext()


@pytest.mark.parametrize('name', BACKBONES)
def test_a_backbone_mixes_no_devices_and_never_waits(name: str) -> None:
    torch.manual_seed(0)
    model = to_gpu(BACKBONES[name]())
    with pretended_gpu() as waits:
        image = torch.randn(2, 3, 64, 104, device='cuda')
        for dtype in PRECISIONS:
            for training in (True, False):
                model.train(training)
                with autocast(dtype):
                    for _ in range(2):
                        outs = model(image)
                    if training:  # blocks may be computed again
                        sum(out.float().square().mean() for out in outs).backward()
                assert all(out.device == CUDA for out in outs)
    trained = [p for p in model.parameters() if p.requires_grad]
    assert all(isinstance(p.grad, Pretended) for p in trained if p.grad is not None)
    assert sum(p.grad is not None for p in trained) > len(trained) / 2
    assert not waits, waits


def flagship(name: str) -> tuple[nn.Module, str]:
    cfg = Config.fromfile(ROOT / 'configs' / f'{name}.py')
    cfg.merge_from_dict(TINY[name])
    return random_model(cfg), cfg.default_scope


def build(name: str) -> tuple[nn.Module, str]:
    if name.startswith('deim'):
        head = dict(masks={}) if 'masks' in name else {}
        if 'oriented' in name:
            head = dict(type='OrientedDEIMHead')
        return deim.ours('s', head=head), 'mmdet'
    if name == 'depth':
        return shared_backbone.build(Config(shared_backbone.depth())), 'mmseg'
    if name in ('eomt', 'pmt'):
        return eomt.build_model('semantic', name), 'mmseg'
    return flagship(name)


@pytest.mark.parametrize(
    'name',
    [  # those of other libraries, and the first of each kind of ours
        pytest.param(
            name, marks=() if name in ('deim', 'pmt', 'depth') else pytest.mark.slow
        )
        for name in WAITS
    ],
)
def test_a_model_mixes_no_devices_and_waits_as_often_as_before(name: str) -> None:
    torch.manual_seed(0)
    model, scope = build(name)
    to_gpu(model)
    with pretended_gpu() as waits, DefaultScope.overwrite_default_scope(scope):
        images, samples = noise(model, scope, 2, 64, 96)
        for sample in samples if 'masks' in name else ():
            truth = (np.random.rand(len(sample.gt_instances), 64, 96) > 0.5).astype(
                np.uint8
            )
            sample.gt_instances.masks = BitmapMasks(truth, 64, 96)
        for sample in samples if 'oriented' in name else ():
            boxes = sample.gt_instances.bboxes
            sample.gt_instances.bboxes = torch.cat(
                [boxes, torch.zeros_like(boxes[:, :1])], 1
            )
        for sample in samples if name == 'depth' else ():
            sample.gt_depth_map = PixelData(data=torch.rand(1, 64, 96, device='cuda'))
        for dtype in PRECISIONS:
            for mode, most in zip(('loss', 'predict'), WAITS[name], strict=True):
                model.train(mode == 'loss')
                given = copy.deepcopy(samples)
                waits.clear()
                with autocast(dtype), torch.set_grad_enabled(mode == 'loss'):
                    out = model(images, given, mode=mode)
                    if mode == 'loss':
                        total(out).backward()
                assert waits.total() <= most, '\n'.join(
                    f'{n} {x}' for x, n in waits.items()
                )


@pytest.mark.parametrize('name', ['deim', 'deim with masks', 'eomt', 'depth'])
def test_a_prediction_is_captured_as_a_cuda_graph(name: str) -> None:
    model, _ = build(name)
    to_gpu(model).eval()
    with pretended_cuda(), pretended_gpu(), torch.no_grad():
        image = torch.randn(2, 3, 64, 96, device='cuda')
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = model(image)
        image.copy_(
            torch.randn(2, 3, 64, 96, device='cuda')
        )  # not the image of the capture
        graph.replay()
        for ours, eager in zip(
            tree_leaves(captured), tree_leaves(model(image)), strict=True
        ):
            torch.testing.assert_close(ours.value, eager.value)


def test_what_waits_is_not_captured() -> None:
    with pretended_cuda(), pretended_gpu():
        x = torch.ones(4, device='cuda')
        says = 'not permitted when stream is capturing'
        with (
            pytest.raises(RuntimeError, match=says),
            torch.cuda.graph(torch.cuda.CUDAGraph()),
        ):
            x.sum().item()


@pytest.mark.slow
def test_waits_of_deimv2_in_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures beside ours in docs/evidence.md, of the version in the test requirements."""
    model = to_gpu(deim.theirs('s'))
    loss = pytest.importorskip('transformers.loss.loss_deimv2').Deimv2Loss
    monkeypatch.setattr(loss, 'to', lambda self, _: to_gpu(self))
    with pretended_gpu() as waits:
        images = torch.randn(2, 3, 64, 96, device='cuda')
        boxes = torch.full((3, 4), 0.4, device='cuda')
        labels = [
            dict(class_labels=torch.zeros_like(boxes[:, 0]).long(), boxes=boxes)
        ] * 2
        for _ in range(2):  # the first time has more
            waits.clear()
            model.train()(pixel_values=images, labels=labels).loss.backward()
        assert 100 < waits.total() < 140, waits
        for _ in range(2):
            waits.clear()
            with torch.no_grad():
                model.eval()(pixel_values=images)
        assert waits.total() == 2, waits


def total(losses: dict) -> Tensor:
    parts = [part for name, part in losses.items() if 'loss' in name]
    return sum(
        x.sum() for part in parts for x in (part if isinstance(part, list) else [part])
    )


@pytest.mark.parametrize(
    'defect, says',
    [
        (lambda x: x + torch.zeros(4), 'on one device, found cuda:0 and cpu'),
        (lambda x: torch.cat([x, torch.arange(4.0)]), 'on one device'),
        (lambda x: x.numpy(), "can't convert cuda:0"),
    ],
)
def test_tensors_of_two_devices_are_refused(defect: Callable, says: str) -> None:
    with pretended_gpu(), pytest.raises((RuntimeError, TypeError), match=says):
        defect(torch.ones(4, device='cuda'))


@pytest.mark.parametrize(
    'defect',
    [
        *(
            lambda x: x.sum().item(),
            lambda x: x.tolist(),
            lambda x: bool(x.all()),
            Tensor.nonzero,
        ),
        *(
            lambda x: x[x > 0],
            lambda x: x.cpu(),
            lambda x: x.new_tensor([1.0]),
            Tensor.unique,
        ),
        *(lambda x: torch.tensor([1.0], device=x.device), lambda x: float(x[0]) + x),
        lambda x: torch.zeros(4).to(x.device),
    ],
)
def test_what_waits_is_counted_with_its_line(defect: Callable) -> None:
    with pretended_gpu() as waits:
        x = torch.ones(4, device='cuda')
        assert not waits
        defect(x)
        assert waits.total() == 1 and Path(__file__).name in str(waits)


@pytest.mark.parametrize(
    'run, dtype',
    [
        (lambda x: x @ x, torch.float16),
        (lambda x: nn.functional.linear(x, x), torch.float16),
        (lambda x: (x @ x).softmax(-1), torch.float32),
        (lambda x: nn.functional.layer_norm(x @ x, (4,)), torch.float32),
        (lambda x: (x @ x).exp(), torch.float32),
        (lambda x: (x @ x).relu(), torch.float16),
        (lambda x: torch.addcmul(x @ x, x, x), torch.float32),
        (lambda x: nn.functional.gelu(x @ x), torch.float16),
    ],
)
def test_autocast_is_that_of_cuda(
    run: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    """By PyTorch's list of operations; on CPUs layer_norm and exp keep their precision."""
    x = torch.rand(4, 4)
    with cuda_autocast(torch.float16):
        assert run(x).dtype == dtype
    assert run(x).dtype == torch.float32


@pytest.mark.parametrize(
    'defect, says',
    [
        (
            lambda x: nn.functional.binary_cross_entropy(x.sigmoid(), x),
            'unsafe to autocast',
        ),
        (lambda x: torch.linalg.inv(x @ x), 'Half|half'),
        (lambda x: torch.zeros(4, 4).index_copy_(0, torch.arange(4), x @ x), 'dtype'),
    ],
)
def test_what_needs_float32_is_refused_under_autocast(
    defect: Callable, says: str
) -> None:
    x = torch.eye(4)
    defect(x)
    with (
        cuda_autocast(torch.float16),
        pytest.raises((RuntimeError, ValueError), match=says),
    ):
        defect(x)


def test_autocast_of_the_cpu_is_as_before() -> None:
    x = torch.rand(4, 4)
    with torch.autocast('cpu', torch.bfloat16):
        before = nn.functional.layer_norm(x @ x, (4,)).dtype
    with cuda_autocast(torch.bfloat16):
        pass
    with torch.autocast('cpu', torch.bfloat16):
        assert nn.functional.layer_norm(x @ x, (4,)).dtype == before == torch.bfloat16
