"""Print the recipe of a config with the options of a training, without training."""

from collections.abc import Iterable, Mapping
from typing import Unpack

from ..project.building import building
from ..project.checks.summary import paragraph_text, recipe_text
from ..project.checks.training import check_schedule, warn_of_random_weights
from ..project.load import load_config
from ..project.model import build_shapes
from ..project.options import TrainingOptions, apply_training_options
from ..project.parts import used_loaders


def print_recipe(
    config: str,
    *,
    cfg_options: Iterable[str] | Mapping[str, object] = (),
    work_dir: str | None = None,
    data_root: str | None = None,
    launcher: str = 'none',
    **options: Unpack[TrainingOptions],
) -> None:
    """Print the recipe of a config; the model is built without memory for its weights.

    Args:
        config, cfg_options, work_dir, data_root: see ``load_config``.
        launcher, options: see ``apply_training_options``.

    Raises:
        UsageError, CheckpointError: the config or an option cannot be used.
    """
    cfg = load_config(config, cfg_options, work_dir, data_root, derives=True)
    with building('the config'):
        used_loaders(cfg, 'train', 'val')
        used_loaders(cfg, 'test')
        apply_training_options(cfg, launcher, **options)
        check_schedule(cfg)
        model = build_shapes(cfg)
        warn_of_random_weights(cfg, model)
        recipe = recipe_text(cfg, model)
    print(paragraph_text('config', config))
    print(recipe)
