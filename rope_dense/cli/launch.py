"""Build the Runner and run it, on any machine."""

import logging
import os
import sys

import torch
from mmengine.config import Config, ConfigDict
from mmengine.registry import RUNNERS
from mmengine.runner import Runner, find_latest_checkpoint

from ..utils.atomic_write import is_interrupt
from .building import building
from .checkpoints import read_safely
from .config import nodes
from .data_checks import name_files
from .errors import UsageError

# A variable that each launcher sets for its processes.
STARTED_BY = {
    'pytorch': 'RANK',
    'slurm': 'SLURM_PROCID',
    'mpi': 'OMPI_COMM_WORLD_LOCAL_RANK',
}


def build_runner(cfg: Config, launcher: str) -> Runner:
    """Build the config's Runner, distributed unless the launcher is 'none'.

    Raises:
        UsageError: the launcher did not start this process, or a part cannot be built.
    """
    cfg.launcher = launcher
    if launcher != 'none' and STARTED_BY[launcher] not in os.environ:
        raise UsageError(
            f'--launcher {launcher}: this process was not started by it ({STARTED_BY[launcher]} is '
            'not set); use tools/dist_train.sh, dist_test.sh, slurm_train.sh or slurm_test.sh'
        )
    if launcher == 'pytorch' and not torch.cuda.is_available():
        use_gloo(cfg)
    read_safely()
    name_files()
    logging.raiseExceptions = False  # a log on a full disk: what is written next says so
    with building(cfg):
        return RUNNERS.build(cfg)


def use_gloo(cfg: Config) -> None:
    """Distribute over processes on the CPU; mmengine would give each a GPU first.

    Batch norm is then each process's own: PyTorch has a synchronised one for GPUs only.
    """
    torch.distributed.init_process_group('gloo')
    for _, node in nodes(cfg.model):
        if node.get('type') == 'SyncBN':
            node.type = 'BN'
    default = ConfigDict(
        type='MMDistributedDataParallel',
        broadcast_buffers=False,
        find_unused_parameters=cfg.get('find_unused_parameters', False),
    )
    cfg.model_wrapper_cfg = ConfigDict(cfg.get('model_wrapper_cfg') or default, device_ids=None)


def test(runner: Runner) -> None:
    """Test.

    Raises:
        UsageError, CheckpointError: weights cannot be read, or a part cannot be built.
    """
    with building(runner.cfg):
        runner.test()


def train(runner: Runner) -> None:
    """Train; on Ctrl-C say how to go on.

    Raises:
        UsageError, CheckpointError: pre-trained weights cannot be downloaded or do not fit, or a
            part cannot be built.
        KeyboardInterrupt: after the message.
    """
    try:
        with building(runner.cfg):
            runner.train()
    except (KeyboardInterrupt, Exception) as error:
        if not is_interrupt(error):
            raise
        if runner.rank == 0:
            latest = find_latest_checkpoint(runner.work_dir)
            advice = (
                f'no checkpoint in {runner.work_dir} yet: the same command starts again'
                if latest is None
                else f'the last checkpoint is {latest}: the same command with --resume goes on'
            )
            print(f'\nstopped at iteration {runner.iter}; {advice}', file=sys.stderr)
        raise KeyboardInterrupt from error
