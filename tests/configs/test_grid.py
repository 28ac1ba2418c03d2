"""Every config of the paper's grid against the paper and the recipes (recipes.py)."""

import json
import re
from collections.abc import Iterator

import pytest
import torch
from mmengine.config import Config, ConfigDict
from mmengine.optim import build_optim_wrapper
from mmengine.registry import PARAM_SCHEDULERS
from torch import nn

from helpers.grid import CONFIGS, FLAGSHIPS, GRID, Leaf, build_offline, value
from helpers.recipe_groups import group_rows
from helpers.recipes import RECIPES, SCHEDULES

KEYS = {
    *(
        'auto_scale_lr',
        'custom_imports',
        'default_hooks',
        'default_scope',
        'env_cfg',
        'load_from',
    ),
    *(
        'log_level',
        'log_processor',
        'model',
        'optim_wrapper',
        'param_scheduler',
        'randomness',
    ),
    *(
        'resume',
        'test_cfg',
        'test_dataloader',
        'test_evaluator',
        'train_cfg',
        'train_dataloader',
    ),
    *(
        'tta_model',
        'tta_pipeline',
        'val_cfg',
        'val_dataloader',
        'val_evaluator',
        'visualizer',
    ),
}
every_leaf = pytest.mark.parametrize('leaf', GRID, ids=lambda leaf: leaf.name)


def test_the_grid_is_complete() -> None:
    counts = {experiment: 0 for experiment in FLAGSHIPS}
    for leaf in GRID:
        counts[leaf.experiment] += 1
    expected = dict(dino_vitdet=11, dino_swin=15, upernet_vit=11, mask2former_swin=10)
    assert counts == expected and sum(counts.values()) == 47
    for experiment in FLAGSHIPS:
        files = {path for path in (CONFIGS / experiment).glob('*.py')}
        assert files == {leaf.path for leaf in GRID if leaf.experiment == experiment}


@pytest.mark.parametrize('experiment, size', FLAGSHIPS.items())
def test_flagships_are_mixed_leaves(experiment: str, size: str) -> None:
    leaf = Leaf(experiment, size, 'rope-mixed')
    flagship = Config.fromfile(CONFIGS / f'{experiment}_rope_mixed.py')
    assert flagship.to_dict() == Config.fromfile(leaf.path).to_dict()
    header = leaf.path.read_text()
    assert re.match(r'# .*\n(# .*\n)*# Where no source settles it', header)


@every_leaf
def test_settings_are_those_of_the_recipe(leaf: Leaf) -> None:
    cfg = leaf.load()
    recipe = RECIPES[leaf.recipe]
    actual = {path: value(cfg, path) for path in recipe}
    assert actual == recipe
    backbone = cfg.model.backbone
    switches = dict(rope=None, use_ape=False, attention=None)
    expected = switches | leaf.settings
    if (leaf.experiment, leaf.variant) == ('dino_vitdet', 'ape'):
        expected['attention'] = dict(type='DecomposedBias')  # detrex's model as it is
    assert {
        name: backbone.get(name, default) for name, default in switches.items()
    } == expected
    # Trained at 32 x 32 tokens in UperNet; resized from the pre-training's for each image in DINO.
    in_upernet = leaf.experiment == 'upernet_vit' and 'use_ape' in leaf.settings
    assert backbone.get('img_size', 224) == (512 if in_upernet else 224)


@every_leaf
def test_weights_are_the_published_ones(leaf: Leaf) -> None:
    init_cfg = leaf.load().model.backbone.init_cfg
    expected = leaf.weights and dict(type='Pretrained', checkpoint=leaf.weights)
    assert init_cfg == expected
    header = leaf.path.read_text().partition('_base_')[0]
    assert ('Such weights are not published' in header) == (leaf.weights is None)
    assert ("these are Microsoft's" in header) == (leaf.variant == 'rpb')


@every_leaf
def test_config_says_what_differs_and_no_more(leaf: Leaf) -> None:
    text = leaf.path.read_text()
    if leaf.variant != 'rope-mixed':  # of each size, the reference
        assert len(text.splitlines()) <= 10
    header = re.match(r'(# .*\n)+', text).group()
    assert all(str(result) in header for result in leaf.results)
    cfg = leaf.load()
    assert set(cfg) == KEYS
    assert (
        'save_best' not in cfg.default_hooks.checkpoint
    )  # the recipes report the last


@pytest.mark.parametrize(
    'leaf',
    [  # every size in one variant, and every variant in one size
        pytest.param(leaf, marks=[pytest.mark.slow] * (leaf.variant != 'rope-mixed'))
        for leaf in GRID
        if leaf.variant == 'rope-mixed' or leaf.size == FLAGSHIPS[leaf.experiment]
    ],
    ids=lambda leaf: leaf.name,
)
def test_every_parameter_has_its_learning_rate_and_decay(leaf: Leaf) -> None:
    cfg = leaf.load()
    model = build_offline(leaf)
    groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    names = {id(param): name for name, param in model.named_parameters()}
    factors, base = {}, cfg.optim_wrapper.optimizer
    for group in groups:
        for param in group['params']:
            assert names[id(param)] not in factors  # in one group only
            factors[names[id(param)]] = (
                group['lr'] / base.lr,
                group['weight_decay'] / base.weight_decay,
            )
    assert len({group['name'] for group in groups}) == len(groups)
    assert factors.keys() == set(names.values())
    rows, used = group_rows(leaf.experiment, leaf.size, leaf.variant), set()
    for name, actual in factors.items():
        row = next((pattern for pattern in rows if re.match(pattern, name)), None)
        assert row, f'{name} is in no row of the table'
        assert actual == pytest.approx(rows[row]), name
        used.add(row)
    assert used == set(rows)


def learning_rate_factors(
    schedulers: list[ConfigDict], iterations: int
) -> Iterator[float]:
    """Factor of the learning rate in every iteration, by stepping the schedulers."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    built = [
        PARAM_SCHEDULERS.build(scheduler, default_args=dict(optimizer=optimizer))
        for scheduler in schedulers
    ]
    optimizer.step()
    for _ in range(iterations):
        yield optimizer.param_groups[0]['lr']
        for scheduler in built:
            scheduler.step()


@pytest.fixture(scope='module')
def stepped() -> dict[str, list[float]]:
    """Learning rates of the schedules stepped so far: the grid has five of them."""
    return {}


@every_leaf
def test_learning_rate_follows_the_recipe(
    leaf: Leaf, stepped: dict[str, list[float]]
) -> None:
    cfg = leaf.load()
    key = json.dumps([cfg.param_scheduler, cfg.train_cfg.max_iters])
    if key not in stepped:
        stepped[key] = list(
            learning_rate_factors(cfg.param_scheduler, cfg.train_cfg.max_iters)
        )
    expected = SCHEDULES[leaf.recipe]
    assert len(expected) == 10 and max(expected) == cfg.train_cfg.max_iters - 1
    actual = {iteration: stepped[key][iteration] for iteration in expected}
    # mmengine's warm-up and polynomial end one iteration before the recipe's: 1 / 250 at most.
    assert actual == pytest.approx(expected, rel=0.005, abs=3e-5)
