"""Time and memory of a whole model, and what its time goes into."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from torch import nn
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from ..rope import RotaryEmbedding

TABLES = 'rotary tables'
# The first kind whose words are in the name of an operation, or of one that it is part of.
KINDS = {
    'rotation': ('RotateInPlace', 'RotateIntoWindows', TABLES),
    'deformable attention': ('MultiScaleDeform', 'grid_sample'),
    'attention': ('scaled_dot_product', 'ScaledDotProduct', 'softmax', 'Softmax', 'bmm', 'Bmm'),
    'convolution': ('convolution', 'Convolution'),
    'linear': ('aten::linear', 'aten::addmm', 'aten::mm', 'AddmmBackward', 'MmBackward'),
    'norm': ('layer_norm', 'LayerNorm', 'batch_norm', 'BatchNorm', 'group_norm', 'GroupNorm'),
    'activation': ('gelu', 'Gelu', 'relu', 'Relu', 'silu', 'Silu'),
}
REST = 'rest'
BOXES = 10  # of an image in training


@dataclass(frozen=True)
class Speed:
    """A model at one image size, in one mode.

    Attributes:
        mode: 'forward', a prediction, or 'training', the losses and their gradients.
        median_ms, p20_ms, p80_ms: of a batch.
        memory_mb: largest sum of the tensors that a call makes; weights are not among them.
        share: of the time that each kind of operation takes; the sum is 1.
    """

    mode: str
    height: int
    width: int
    batch: int
    median_ms: float
    p20_ms: float
    p80_ms: float
    memory_mb: float
    share: dict[str, float]


def measure_speed(
    model: nn.Module,
    scope: str,
    mode: str,
    *,
    height: int,
    width: int,
    batch: int,
    rounds: int,
) -> Speed:
    """Run a detector or a segmentor on random images of one size.

    In training, an image has ``BOXES`` boxes or a label map of two classes, all random. The times
    are those of ``rounds`` calls after one to warm up; shares and memory come from one more, under
    PyTorch's profiler, which is slower where operations are many and small.

    Args:
        scope: 'mmdet' for a detector, 'mmseg' for a segmentor.
        mode: 'forward' or 'training'.
    """
    run = prepare(model, scope, mode, height=height, width=width, batch=batch)
    seconds = [timed(run) for _ in range(rounds + 1)][1:]
    shares = torch.tensor([0.2, 0.8], dtype=torch.float64)
    quantiles = torch.tensor(seconds, dtype=torch.float64).quantile(shares).tolist()
    share, memory = look_into(model, run)
    return Speed(
        mode,
        height,
        width,
        batch,
        1000 * statistics.median(seconds),
        *(1000 * value for value in quantiles),
        memory / 2**20,
        share,
    )


def prepare(
    model: nn.Module, scope: str, mode: str, *, height: int, width: int, batch: int
) -> Callable[[], None]:
    """What is timed: a prediction, or losses and their gradients."""
    device = next(model.parameters()).device
    images = torch.randn(batch, 3, height, width, device=device)
    samples = [random_sample(scope, height, width, device) for _ in range(batch)]

    @torch.no_grad()
    def forward() -> None:
        model(images, copy.deepcopy(samples), mode='predict')

    def training() -> None:
        model.zero_grad()
        losses = model(images, copy.deepcopy(samples), mode='loss')
        model.parse_losses(losses)[0].backward()

    model.train(mode == 'training')
    return training if mode == 'training' else forward


def random_sample(scope: str, height: int, width: int, device: torch.device) -> BaseDataElement:
    """What a model is to find in an image of noise."""
    size = (height, width)
    meta = dict(img_shape=size, ori_shape=size, pad_shape=size, batch_input_shape=size)
    meta['scale_factor'] = (1.0, 1.0)
    if scope == 'mmseg':
        from mmseg.structures import SegDataSample

        labels = torch.randint(2, (1, height, width), device=device)
        return SegDataSample(gt_sem_seg=PixelData(data=labels), metainfo=meta)
    from mmdet.structures import DetDataSample

    corners = torch.rand(BOXES, 2, 2, device=device).sort(1).values  # top left, bottom right
    boxes = (0.05 + 0.9 * corners).flatten(1) * torch.tensor([width, height] * 2, device=device)
    labels = torch.zeros(BOXES, dtype=torch.long, device=device)
    return DetDataSample(gt_instances=InstanceData(bboxes=boxes, labels=labels), metainfo=meta)


def timed(run: Callable[[], None]) -> float:
    synchronize()
    started = time.perf_counter()
    run()
    synchronize()
    return time.perf_counter() - started


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def look_into(model: nn.Module, run: Callable[[], None]) -> tuple[dict[str, float], int]:
    """Share of the time of each kind of operation, and bytes of the tensors that the call makes."""
    on_gpu = next(model.parameters()).is_cuda
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu
    if on_gpu:
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    with TableRecords(model), profile(activities=activities, profile_memory=True) as profiler:
        run()
        synchronize()
    times = dict.fromkeys([*KINDS, REST], 0.0)
    for event in profiler.events():
        own = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        times[kind_of(event)] += own
    if on_gpu:
        memory = torch.cuda.max_memory_allocated() - before
    else:
        memory = peak_of(profiler)
    total = sum(times.values())
    return {kind: time / total for kind, time in times.items()}, memory


def kind_of(event: FunctionEvent | None) -> str:
    """The kind of an operation, or of the nearest one that it is part of."""
    while event is not None:
        for kind, words in KINDS.items():
            if any(word in event.name for word in words):
                return kind
        event = event.cpu_parent
    return REST


def peak_of(profiler: profile) -> int:
    """Largest sum of the tensors made on a CPU while the profiler looked on."""
    events = profiler.profiler.kineto_results.events()
    changes = [(event.start_ns(), event.nbytes()) for event in events if event.name() == '[memory]']
    held = peak = 0
    for _, change in sorted(changes):
        held += change
        peak = max(peak, held)
    return peak


class TableRecords:
    """Within this context, the work of rotary embeddings is recorded under ``TABLES``."""

    def __init__(self, model: nn.Module) -> None:
        self.embeddings = [m for m in model.modules() if isinstance(m, RotaryEmbedding)]

    def __enter__(self) -> None:
        self.handles = []
        for embedding in self.embeddings:
            record = record_function(TABLES)
            before = embedding.register_forward_pre_hook(lambda *_, record=record: start(record))
            after = embedding.register_forward_hook(lambda *_, record=record: stop(record))
            self.handles += [before, after]

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()


def start(record: record_function) -> None:
    record.__enter__()


def stop(record: record_function) -> None:
    record.__exit__(None, None, None)
