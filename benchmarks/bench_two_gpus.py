"""A training step of a backbone on two GPUs, DDP with a static graph and FSDP, against one GPU.

Processes share no memory, so that the step of each can be measured as in ``compare``.
"""

from __future__ import annotations

import copy
import os
import socket
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bench_backbone import outputs
from measure import Case, Row, compare
from peers import Builder
from rope_dense.project.launch import leave_group

WAYS = ('one', 'DDP', 'FSDP')


def bench_two_gpus(
    device: torch.device,
    build: Builder,
    *,
    size: tuple[int, int],
    batch: int,
    rounds: int,
) -> list[Row]:
    """ms of a step of ``batch`` images on each of two devices; on CPUs where ``device`` is one.

    ok: after the steps, both processes have the same weights.
    """
    common = dict(
        bench='two GPUs', height=size[0], width=size[1], batch=batch, dtype='bfloat16'
    )
    if device.type == 'cuda' and torch.cuda.device_count() < 2:
        return [common | dict(left_out=f'{torch.cuda.device_count()} GPU')]
    with TemporaryDirectory() as folder:
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        arguments = device.type, build, size, batch, rounds, port, folder
        mp.spawn(process, arguments, nprocs=2)
        rows = torch.load(Path(folder) / 'rows.pt')
    return [common | row for row in rows]


def process(
    rank: int,
    kind: str,
    build: Builder,
    size: tuple[int, int],
    batch: int,
    rounds: int,
    port: int,
    folder: str,
) -> None:
    """One of the two; the first one writes the rows."""
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    device = torch.device(kind, rank) if kind == 'cuda' else torch.device(kind)
    if kind == 'cuda':
        torch.cuda.set_device(device)
    dist.init_process_group(
        'nccl' if kind == 'cuda' else 'gloo', rank=rank, world_size=2
    )
    rows = measured(build, size, batch, rounds, device)
    if rank == 0:
        torch.save(rows, Path(folder) / 'rows.pt')
    leave_group()  # no model holds it any more: gloo would abort at exit


def measured(
    build: Builder, size: tuple[int, int], batch: int, rounds: int, device: torch.device
) -> list[Row]:
    """A row for each way, in each of the two processes."""
    torch.manual_seed(0)
    model = build().to(device)
    rows = []
    for way in WAYS:
        trained = wrapped(copy.deepcopy(model), way)
        step = training_step(trained, torch.randn(batch, 3, *size, device=device))
        dist.barrier()
        (row,) = compare(
            [Case(way, lambda step=step: step)], device, rounds=rounds, warmup=3
        )
        rows.append(row | dict(ok=way == 'one' or same_everywhere(trained)))
    return rows


def wrapped(model: nn.Module, way: str) -> nn.Module:
    if way == 'DDP':
        on_gpu = next(model.parameters()).is_cuda
        ids = [torch.cuda.current_device()] if on_gpu else None
        return DistributedDataParallel(model, device_ids=ids, static_graph=True)
    if way == 'FSDP':
        from torch.distributed.fsdp import fully_shard

        for block in model.ordered_blocks:
            fully_shard(block)
        return fully_shard(model)
    return model


def training_step(model: nn.Module, image: torch.Tensor):
    """Forward, backward and update on one batch of noise."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step() -> None:
        with torch.autocast(image.device.type, torch.bfloat16):
            maps = outputs(model(image))
        sum(x.float().square().mean() for x in maps).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def same_everywhere(model: nn.Module) -> bool:
    """Return whether the processes have the same weights, whole ones."""
    full = [getattr(p.detach(), 'full_tensor', p.detach)() for p in model.parameters()]
    flat = torch.cat([x.flatten() for x in full])
    other = flat.clone()
    dist.broadcast(other, 0)
    return torch.equal(flat, other)
