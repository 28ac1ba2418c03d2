"""Two processes with half of a batch each against one with the whole batch, on the CPU."""

import math
import socket
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from distributed_cases import CASES, OPTIM_WRAPPER, gradients, run_process, step
from mmengine.optim import build_optim_wrapper
from torch import multiprocessing


@pytest.fixture(scope='module')
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes found, for each case: `<case>_<rank>.pt`."""
    folder = tmp_path_factory.mktemp('distributed')
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        port = probe.getsockname()[1]
    multiprocessing.spawn(run_process, args=(port, str(folder)), nprocs=2)
    return folder


@pytest.mark.parametrize('name', CASES)
def test_two_processes_are_one_with_the_joined_batch(results: Path, name: str) -> None:
    make_model, make_batch = CASES[name]
    model = make_model()
    loss = step(model, make_batch())
    found = [torch.load(results / f'{name}_{rank}.pt') for rank in (0, 1)]
    assert sum(each['loss'] for each in found) / 2 == pytest.approx(loss, rel=1e-4)
    assert found[0]['loss'] != pytest.approx(found[1]['loss'], rel=1e-3)  # halves do differ
    expected = gradients(model)
    largest = max(grad.abs().max().item() for grad in expected.values())
    for each in found:
        for key, grad in expected.items():
            scale = max(grad.abs().max().item(), 1e-3 * largest)
            torch.testing.assert_close(each['gradients'][key], grad, rtol=1e-4, atol=1e-4 * scale)
    frequencies = [key for key in expected if key.endswith('freqs')]
    assert frequencies and all(expected[key].abs().max() > 0 for key in frequencies)


def test_process_without_boxes_trains_along(results: Path) -> None:
    """Denoising has no queries there, and DDP still waits for the label embedding's gradient."""
    first, second = (torch.load(results / f'no_boxes_{rank}.pt') for rank in (0, 1))
    assert all(math.isfinite(loss) for each in (first, second) for loss in each['loss'])
    for key, grad in first['gradients'].items():
        assert torch.isfinite(grad).all() and torch.equal(grad, second['gradients'][key]), key


def test_shards_train_as_whole_copies_do(results: Path) -> None:
    """Losses, decay by role, layer-wise rates and clipping, and going on from a checkpoint."""
    whole, shards = (torch.load(results / f'{name}_0.pt') for name in ('whole', 'shards'))
    assert shards['losses'] == pytest.approx(whole['losses'], rel=1e-4)
    assert len(set(whole['losses'])) == 3
    assert shards['weights'].keys() == whole['weights'].keys()
    for key, value in whole['weights'].items():
        torch.testing.assert_close(shards['weights'][key], value, rtol=1e-4, atol=1e-4)
    assert shards['units'] == 1 + 4  # the model and each of its blocks


def test_groups_of_shards_are_those_of_the_whole_model(results: Path) -> None:
    model = CASES['vit_upernet'][0]()
    wrapper = build_optim_wrapper(model, deepcopy(OPTIM_WRAPPER))
    expected = {group['name']: len(group['params']) for group in wrapper.optimizer.param_groups}
    for rank in (0, 1):
        assert torch.load(results / f'shards_{rank}.pt')['groups'] == expected
    assert {'(rest)/decay', 'backbone/layer_03/decay', 'backbone/layer_03/one_dim'} < set(expected)
