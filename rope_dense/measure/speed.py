"""Time and memory of a whole model, and the shares of kinds of operations."""

import copy
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from mmengine.model import BaseModel
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from torch import Tensor, nn
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

from ..backbones import windows
from ..backbones.base import image_channels
from ..rope import Rotary, RotaryEmbedding, rotation

# Or the profiler prints when it starts and stops.
os.environ.setdefault('KINETO_LOG_LEVEL', '6')
EMBEDDING = 'rotary embedding'
# An operation is of the first kind whose pattern is in its name, or in the name of its parent.
# (PyTorch's own backward operations end on a number, other autograd functions' do not.)
KINDS = {
    'rotation': rf'\bRotate(Backward)?$|{EMBEDDING}',
    'windows': r'\bGather(Backward)?$',
    'deformable attention': r'MultiScaleDeform|grid_sample',
    'attention': r'scaled_dot_product|ScaledDotProduct|[sS]oftmax|[bB]mm',
    'convolution': r'[cC]onvolution',
    'linear': r'aten::(linear|addmm|mm)\b|\b(Addmm|Mm)Backward',
    'norm': r'(layer|batch|group)_norm|(Layer|Batch|Group)Norm',
    'activation': r'gelu|Gelu|relu|Relu|silu|Silu',
}
REST = 'rest'
BOXES = 10  # of an image in training


def measure_speed(
    model: BaseModel,
    scope: str,
    mode: str,
    *,
    height: int,
    width: int,
    batch: int,
    rounds: int,
    load: Callable[[], dict] | None = None,
) -> dict:
    """Run a detector or a segmentor on random images of one size.

    Times are measured in ``rounds`` calls after one to warm up (``torch.utils.benchmark`` would
    warm up before each). Shares and memory are measured in another call, under PyTorch's profiler,
    which slows down small operations.

    Args:
        scope: see ``noise``.
        mode: 'forward', a prediction; 'training', the losses and their gradients; or 'end-to-end',
            a prediction from ``load`` to results in the original image.
        load: the next batch, as from a data loader.

    Returns:
        mode, height, width and batch; median_ms and p20_ms to p99_ms of a batch; memory_mb, the
        largest sum of the tensors that a call makes, without weights; and share, from each kind of
        operation to its share of the time, 1 in all.
    """
    images, samples = noise(model, scope, batch, height, width)

    @torch.no_grad()
    def forward() -> None:
        model(images, copy.deepcopy(samples), mode='predict')

    @torch.no_grad()
    def end_to_end() -> None:
        assert load is not None
        model.test_step(load())

    def training() -> None:
        model.zero_grad()
        losses = model(images, copy.deepcopy(samples), mode='loss')
        model.parse_losses(losses)[0].backward()

    model.train(mode == 'training')
    run = {'forward': forward, 'training': training, 'end-to-end': end_to_end}[mode]
    _, *taken = [seconds_of(run) for _ in range(rounds + 1)]
    seconds = torch.tensor(taken, dtype=torch.float64)
    row: dict[str, Any] = dict(
        mode=mode,
        height=height,
        width=width,
        batch=batch,
    )
    quantiles = dict(
        median_ms=0.5,
        p20_ms=0.2,
        p80_ms=0.8,
        p90_ms=0.9,
        p99_ms=0.99,
    )
    for name, share in quantiles.items():
        row[name] = 1000 * float(seconds.quantile(share))
    shares, memory = profile_call(model, run)
    return row | dict(memory_mb=memory / 2**20, share=shares)


def noise(
    model: nn.Module,
    scope: str,
    batch: int,
    height: int,
    width: int,
) -> tuple[Tensor, list[BaseDataElement]]:
    """Random images [B, C, height, width] on the device of a model, with random annotations.

    ``BOXES`` boxes each for a detector (scope 'mmdet'), two classes for a segmentor ('mmseg').
    """
    device = next(model.parameters()).device
    images = torch.randn(batch, image_channels(model), height, width, device=device)
    return images, [random_sample(scope, height, width, device) for _ in range(batch)]


def random_sample(
    scope: str,
    height: int,
    width: int,
    device: torch.device,
) -> BaseDataElement:
    """The annotations of one image, see ``noise``."""
    size = (height, width)
    sizes = dict(
        img_shape=size,
        ori_shape=size,
        pad_shape=size,
        batch_input_shape=size,
    )
    meta = dict(sizes, scale_factor=(1.0, 1.0))
    if scope == 'mmseg':
        from mmseg.structures import SegDataSample

        labels = torch.randint(2, (1, height, width), device=device)
        return SegDataSample(gt_sem_seg=PixelData(data=labels), metainfo=meta)
    from mmdet.structures import DetDataSample

    # Top left, bottom right.
    corners = torch.rand(BOXES, 2, 2, device=device).sort(1).values
    sides = torch.tensor([width, height] * 2, device=device)
    boxes = (0.05 + 0.9 * corners).flatten(1) * sides
    labels = torch.zeros(BOXES, dtype=torch.long, device=device)
    objects = InstanceData(bboxes=boxes, labels=labels)
    return DetDataSample(gt_instances=objects, metainfo=meta)


def seconds_of(run: Callable[[], None]) -> float:
    """Seconds of a call, including the work that it starts on a GPU."""
    synchronize()
    started = time.perf_counter()
    run()
    synchronize()
    return time.perf_counter() - started


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def profile_call(
    model: nn.Module,
    run: Callable[[], None],
) -> tuple[dict[str, float], int]:
    """Share of the time of each kind of operation, and bytes of the tensors that the call makes.

    On a GPU it is the time of the kernels that an operation launches.
    """
    on_gpu = next(model.parameters()).is_cuda
    model.zero_grad()  # or the gradients of an earlier call, freed in this one, would be taken off
    with parts_recorded(model):
        profiler, memory = profiled(run, on_gpu)
    times = dict.fromkeys([*KINDS, REST], 0.0)
    for event in profiler.events():
        # Others are kernels, whose launches are here, too.
        if event.device_type == DeviceType.CPU:
            unit = 'device' if on_gpu else 'cpu'
            times[kind_of(event)] += getattr(event, f'self_{unit}_time_total')
    total = sum(times.values())
    return {kind: time / total for kind, time in times.items()}, memory


def profiled(run: Callable[[], None], on_gpu: bool) -> tuple[profile, int]:
    """PyTorch's profile of a call, and the bytes of the tensors that it makes at its peak."""
    activities = [ProfilerActivity.CPU]
    if on_gpu:
        activities.append(ProfilerActivity.CUDA)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    with profile(activities=activities, profile_memory=True) as profiler:
        run()
        synchronize()
    if on_gpu:
        return profiler, torch.cuda.max_memory_allocated() - before
    return profiler, peak_of(profiler)


def kind_of(event: FunctionEvent | None) -> str:
    """The kind of an operation, or of the nearest one that it is part of."""
    while event is not None:
        for kind, pattern in KINDS.items():
            if re.search(pattern, event.name):
                return kind
        event = event.cpu_parent
    return REST


def peak_of(profiler: profile) -> int:
    """Largest sum of the tensors made on a CPU while the profiler was active."""
    recorder: Any = profiler.profiler  # not a public part
    changes = []
    for event in recorder.kineto_results.events():
        if event.name() == '[memory]':
            changes.append((event.start_ns(), event.nbytes()))
    allocated = peak = 0
    for _, change in sorted(changes):
        allocated += change
        peak = max(peak, allocated)
    return peak


@contextmanager
def parts_recorded(model: nn.Module) -> Iterator[None]:
    """Within this context, the profiler names embeddings, rotations and gathers of windows."""
    records = dict[RotaryEmbedding, record_function]()
    for module in model.modules():
        if isinstance(module, RotaryEmbedding):
            records[module] = record_function(EMBEDDING)

    def start(embedding: RotaryEmbedding, args: tuple) -> None:
        records[embedding].__enter__()

    def stop(embedding: RotaryEmbedding, args: tuple, rotary: Rotary) -> None:
        rotary.cos_sin  # noqa: B018, a cached property that attention asks for next
        records[embedding].__exit__(None, None, None)

    def implementation(device: torch.device, dtype: torch.dtype) -> Any:
        found = find(device, dtype)
        return found and found._replace(rotate=recorded('Rotate', found.rotate))

    find, gather_rows = rotation.implementation, windows.gather_rows
    with ExitStack() as hooks:
        # Without a gradient, no autograd function has these names.
        hooks.callback(setattr, rotation, 'implementation', find)
        hooks.callback(setattr, windows, 'gather_rows', gather_rows)
        setattr(rotation, 'implementation', implementation)  # noqa: B010
        setattr(windows, 'gather_rows', recorded('Gather', gather_rows))  # noqa: B010
        for embedding in records:
            hooks.enter_context(embedding.register_forward_pre_hook(start))
            hooks.enter_context(embedding.register_forward_hook(stop))
        yield


def recorded(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function that the profiler names."""

    def call(*args: Any) -> Tensor:
        with record_function(name):
            return function(*args)

    return call


def count_operations(run: Callable[[], None]) -> int:
    """Floating-point operations of a call, two a multiply-add.

    torch's counter sees products of matrices. Attention is computed by such products, because the
    counter does not see the fused kernel of a CPU.
    """
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:
        run()
    return counter.get_total_flops()
