import json
from pathlib import Path

import pytest
import torch
from mmengine.dataset import BaseDataset
from mmengine.model import BaseModel
from mmengine.registry import DATASETS
from mmengine.runner import Runner
from torch import Tensor, nn

from research.subset_loss import SubsetLossHook


@DATASETS.register_module()
class Halves(BaseDataset):
    """Samples 0.5, 1.5, 2.5, ..."""

    def load_data_list(self) -> list[dict]:
        return [dict(inputs=torch.tensor([index + 0.5])) for index in range(4)]


class Distance(BaseModel):
    """Loss: squared distance of one weight to the input, plus a random number below 0.01."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(
        self, inputs: list[Tensor], mode: str, **_: object
    ) -> dict[str, Tensor]:
        assert mode == 'loss' and self.training
        noise = 0.01 * torch.rand(())
        return dict(loss=(self.weight - torch.stack(inputs)).square().mean() + noise)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    subset = dict(type='Halves', indices=2, serialize_data=False)
    return Runner(
        Distance(),
        work_dir=str(tmp_path),
        train_dataloader=dict(
            batch_size=2,
            sampler=dict(type='InfiniteSampler'),
            dataset=dict(type='Halves', serialize_data=False),
        ),
        train_cfg=dict(by_epoch=False, max_iters=5),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
        custom_hooks=[dict(type='SubsetLossHook', dataset=subset)],
        experiment_name=tmp_path.name,
    )


def test_reports_the_same_images_before_and_after(runner: Runner, tmp_path: Path):
    runner.train()
    report = json.loads((tmp_path / 'subset_loss.json').read_text())
    weight = runner.model.weight.item()
    # images 0.5 and 1.5; the mean of two random numbers below 0.01 comes on top
    assert 0 <= report['loss_start'] - (0.5**2 + 1.5**2) / 2 < 0.01
    assert (
        0 <= report['loss_end'] - ((weight - 0.5) ** 2 + (weight - 1.5) ** 2) / 2 < 0.01
    )
    assert weight > 0.5 and report['loss_end'] < report['loss_start']
    assert report['iterations'] == 5
    assert report['seconds_per_iteration'] > 0 and 0.05 < report['peak_memory_gb'] < 100


def test_measuring_changes_nothing(runner: Runner):
    hook = next(hook for hook in runner.hooks if isinstance(hook, SubsetLossHook))
    runner.model.eval()
    torch.manual_seed(3)
    first, second = hook.subset_loss(runner), hook.subset_loss(runner)
    assert first == second
    after = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(after, torch.rand(3))
    assert not runner.model.training and runner.model.weight.grad is None
