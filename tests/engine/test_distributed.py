"""Two processes with half of a batch each against one with the whole batch, on the CPU."""

import math
import socket
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from mmengine.optim import build_optim_wrapper
from torch import multiprocessing

from helpers.distributed_cases import (
    BACKBONES,
    CASES,
    FROZEN,
    OPTIM_WRAPPER,
    gradients,
    run_process,
    segmentation_batch,
    step,
)

pytestmark = pytest.mark.slow  # the two processes take 25 s


@pytest.fixture(scope='module')
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two processes for each case: `<case>_<rank>.pt`."""
    folder = tmp_path_factory.mktemp('distributed')
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        port = probe.getsockname()[1]
    multiprocessing.spawn(run_process, args=(port, str(folder)), nprocs=2)
    return folder


@pytest.mark.parametrize('kind', ['', '_sharded'], ids=['ddp', 'fsdp'])
@pytest.mark.parametrize('name', CASES)
def test_two_processes_are_one_with_the_joined_batch(
    results: Path, name: str, kind: str
) -> None:
    make_model, make_batch = CASES[name]
    model = make_model()
    loss = step(model, make_batch())
    actual = [torch.load(results / f'{name}{kind}_{rank}.pt') for rank in (0, 1)]
    assert sum(each['loss'] for each in actual) / 2 == pytest.approx(loss, rel=1e-4)
    assert actual[0]['loss'] != pytest.approx(
        actual[1]['loss'], rel=1e-3
    )  # halves do differ
    expected = gradients(model)
    largest = max(grad.abs().max().item() for grad in expected.values())
    for each in actual:
        for key, grad in expected.items():
            scale = max(grad.abs().max().item(), 1e-3 * largest)
            torch.testing.assert_close(
                each['gradients'][key], grad, rtol=1e-4, atol=1e-4 * scale
            )
    frequencies = [key for key in expected if key.endswith('freqs')]
    assert frequencies and all(expected[key].abs().max() > 0 for key in frequencies)


def test_process_without_boxes_trains_along(results: Path) -> None:
    """Denoising has no queries there, and DDP still waits for the label embedding's gradient."""
    first, second = (torch.load(results / f'no_boxes_{rank}.pt') for rank in (0, 1))
    assert all(math.isfinite(loss) for each in (first, second) for loss in each['loss'])
    for key, grad in first['gradients'].items():
        assert torch.isfinite(grad).all() and torch.equal(
            grad, second['gradients'][key]
        ), key


@pytest.mark.parametrize('frozen_stages', FROZEN)
def test_frozen_blocks_take_no_part(results: Path, frozen_stages: int | str) -> None:
    """Their frequencies neither; DDP waits for nothing that gets no gradient."""
    first, second = (
        torch.load(results / f'frozen_{frozen_stages}_{rank}.pt') for rank in (0, 1)
    )
    without = {name for name, grad in first.items() if grad is None}
    number = 4 if frozen_stages == 'all' else frozen_stages
    frozen = [f'blocks.{index}.' for index in range(number)]
    frozen += ['cls_token', 'patch_embed.', *(['norm.'] if number == 4 else [])]
    starts = tuple(f'backbone.{name}' for name in frozen)
    assert without == {name for name in first if name.startswith(starts)}
    assert f'backbone.blocks.{number - 1}.attn.rope.freqs' in without
    for name in first.keys() - without:
        assert torch.equal(first[name], second[name]), name


def test_adapters_alone_take_part(results: Path) -> None:
    first, second = (torch.load(results / f'lora_{rank}.pt') for rank in (0, 1))
    trained = {name for name, grad in first.items() if grad is not None}
    backbone = {name for name in trained if name.startswith('backbone.')}
    assert (
        backbone == {name for name in first if '.lora.' in name} and trained - backbone
    )
    assert all(torch.equal(first[name], second[name]) for name in trained)


@pytest.mark.parametrize('name', BACKBONES)
def test_sharded_frequencies_stay_in_float32(results: Path, name: str) -> None:
    """As in one process whose other parameters are in bfloat16, and so near to float32."""
    actual = torch.load(results / f'{name}_bf16_0.pt')
    grads = (actual[key] for key in ('sharded', 'mixed', 'float32'))
    for sharded, mixed, exact in zip(*grads, strict=True):
        assert sharded.dtype == torch.float32 and sharded.abs().max() > 0
        torch.testing.assert_close(
            sharded, mixed, rtol=1e-5, atol=1e-5 * mixed.abs().max().item()
        )
        assert (sharded - exact).norm() < 0.1 * exact.norm()  # of bfloat16's 8 bits


@pytest.mark.parametrize('name', BACKBONES)
def test_blocks_can_be_sharded_as_any_module(results: Path, name: str) -> None:
    for rank in (0, 1):
        losses = torch.load(results / f'{name}_bf16_{rank}.pt')['plain_losses']
        assert all(math.isfinite(loss) for loss in losses)
        assert losses[-1] < losses[0]


def test_shards_train_as_whole_copies_do(results: Path) -> None:
    """Losses, decay by role, layer-wise rates and clipping, and going on from a checkpoint."""
    copies, shards = (
        torch.load(results / f'{name}_0.pt') for name in ('copies', 'shards')
    )
    assert shards['losses'] == pytest.approx(
        [*copies['losses'], copies['losses'][-1]], rel=1e-4
    )
    assert len(set(copies['losses'])) == 3
    for weights in shards['weights']:
        assert weights.keys() == copies['weights'].keys()
        for key, value in copies['weights'].items():
            torch.testing.assert_close(weights[key], value, rtol=1e-4, atol=1e-4)
    assert (
        shards['units'] == 1 + 4 + 4
    )  # the model, each of its blocks and their frequencies


def test_one_process_goes_on_from_a_checkpoint_of_shards(results: Path) -> None:
    checkpoint = torch.load(results / 'shards.pth', weights_only=False)
    model = CASES['vit_upernet'][0]()
    wrapper = build_optim_wrapper(model, deepcopy(OPTIM_WRAPPER))
    model.load_state_dict(checkpoint['state_dict'])
    wrapper.load_state_dict(checkpoint['optimizer'])
    loss, _ = model.parse_losses(model(*segmentation_batch(), mode='loss'))
    wrapper.update_params(loss)
    copies = [torch.load(results / f'copies_{rank}.pt') for rank in (0, 1)]
    expected = sum(each['losses'][2] for each in copies) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    for key, value in copies[0]['weights'].items():
        torch.testing.assert_close(model.state_dict()[key], value, rtol=1e-4, atol=1e-4)


def test_groups_of_shards_are_those_of_the_whole_model(results: Path) -> None:
    model = CASES['vit_upernet'][0]()
    wrapper = build_optim_wrapper(model, deepcopy(OPTIM_WRAPPER))
    expected = {
        group['name']: len(group['params']) for group in wrapper.optimizer.param_groups
    }
    for rank in (0, 1):
        assert torch.load(results / f'shards_{rank}.pt')['groups'] == expected
    assert {
        '(rest)/decay',
        'backbone/layer_03/decay',
        'backbone/layer_03/one_dim',
    } < set(expected)
