"""A backbone that engine, evaluation and cli do not know works with them by what it declares."""

from collections.abc import Sequence

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from torch import Tensor, nn

from rope_dense.backbones.attention import Attention
from rope_dense.backbones.base import Backbone
from rope_dense.backbones.block import Block, Mlp
from rope_dense.backbones.from_config import build_rope
from rope_dense.backbones.layers import PatchEmbed, to_map
from rope_dense.backbones.windows import window_plan
from rope_dense.measure.evaluator import Evaluator
from rope_dense.measure.settings import Setting
from rope_dense.project.checks.data import check_image_sizes
from rope_dense.project.checks.recipe import positions_text, windows_text
from rope_dense.utils.errors import UsageError

NORM = dict(type='LN')
Size = tuple[int, int]


class Tower(Backbone):
    """Blocks under other names; all but the last attend within windows."""

    def __init__(self, depth: int = 3, window_size: int = 2) -> None:
        super().__init__()
        self.patch_embed = PatchEmbed(3, 16, patch_size=8)
        self.floors = nn.ModuleDict()
        for index in range(depth):
            rope = build_rope(dict(type='MixedRoPE'), head_dim=8, num_heads=2)
            self.floors[f'floor{index}'] = Block(
                Attention(16, 2, rope=rope), Mlp(16, 32), NORM
            )
        self.roof = nn.LayerNorm(16)
        self.pretrain_grid, self.window_blocks = (4, 4), range(depth - 1)
        self.out_channels, self.out_strides = [16], [8]
        self.with_cp = False
        self.set_window_size(window_size)
        self.set_rope_scaling(None)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        x, grid = self.patch_embed(image)
        plan = window_plan(len(x), grid, self.window_size or grid, device=x.device)
        for index, block in enumerate(self.ordered_blocks):
            x = block(x, grid, plan if index in self.window_blocks else None)
        return (to_map(self.roof(x), grid),)

    @property
    def ordered_blocks(self) -> list[Block]:
        return list(self.floors.values())

    def map_sizes(self, height: int, width: int) -> list[Size]:
        return [self.patch_embed.grid(height, width)]

    def position_tables(self) -> dict[str, Size]:
        return {}

    def layer_of(self, name: str) -> int:
        first, *rest = name.split('.')
        return (
            int(rest[0][-1]) + 1
            if first == 'floors'
            else 0
            if first == 'patch_embed'
            else 4
        )

    def frozen_modules(self) -> Sequence[nn.Module]:
        return []


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.backbone, self.head = Tower().eval(), nn.Linear(16, 2)


def config(side: int) -> Config:
    resize = dict(type='Resize', scale=(side, side))
    loader = dict(dataset=dict(type='Any', pipeline=[resize]))
    return Config(dict(model=dict(backbone=dict(type='Tower')), test_dataloader=loader))


def test_layer_wise_decay() -> None:
    wrapper = build_optim_wrapper(
        Model(),
        dict(
            optimizer=dict(type='AdamW', lr=1.0, weight_decay=0.1),
            constructor='NamedGroupsConstructor',
            paramwise_cfg=dict(layer_decay=0.5, no_decay=['frequency', 'one_dim']),
        ),
    )
    rates = {group['name']: group['lr'] for group in wrapper.optimizer.param_groups}
    assert [rates[f'backbone/layer_0{layer}/frequency'] for layer in (1, 2, 3)] == [
        0.125, 0.25, 0.5
    ]  # fmt: skip
    assert rates['backbone/layer_00/decay'] == 0.0625 and rates['(rest)/decay'] == 1.0
    assert rates['backbone/layer_04/one_dim'] == 1.0


def test_a_sweep() -> None:
    model = Model()
    evaluator, image = Evaluator(model, config(32)), torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        (unchanged,) = model.backbone(image)
        for point in (Setting('32', 'linear:2'), Setting('32', window='3')):
            evaluator.apply(point)
            assert not torch.allclose(model.backbone(image)[0], unchanged)
        evaluator.apply(Setting('32'))
        assert torch.equal(model.backbone(image)[0], unchanged)
    with pytest.raises(
        ValueError, match='--window 5: larger than the map, 4 x 4 tokens'
    ):
        evaluator.apply(Setting('32', window='5'))
    with pytest.raises(
        ValueError, match='--sizes 7: 7 x 7 pixels leave no token of 8 x 8'
    ):
        evaluator.apply(Setting('7'))
    model.backbone.window_blocks = ()
    with pytest.raises(ValueError, match='all blocks of this Tower attend globally'):
        evaluator.apply(Setting('32', window='3'))


def test_a_recipe() -> None:
    model = Model()
    assert windows_text(model) == '2 x 2 tokens in blocks 0, 1; global attention in 2'
    assert 'in 3 blocks, 48 learned parameters' in positions_text(model)
    model.backbone.set_rope_scaling(dict(type='linear'))
    assert "scaled by {'type': 'linear'}" in positions_text(model)
    model.backbone.set_window_size(None)
    assert windows_text(model) == 'none: global attention in all 3 blocks'


def test_the_smallest_image() -> None:
    check_image_sizes(config(8), Model(), ('test_dataloader',))
    with pytest.raises(UsageError, match='patches of 8 pixels'):
        check_image_sizes(config(7), Model(), ('test_dataloader',))
