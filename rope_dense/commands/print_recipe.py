"""Print the recipe of a config, to compare it with the paper.

Data, model, position embedding, windows, parameter groups, schedule, evaluation, and the result to
expect. Options are those of tools/train.py.

Examples:
    python tools/print_recipe.py configs/dino_vitdet_rope_mixed.py
    python tools/print_recipe.py configs/dino_vitdet_rope_mixed.py --flops
    python tools/print_recipe.py --list vitdet object    # the configs of the package, with results
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import (
    CONFIGS,
    add_common_arguments,
    add_training_arguments,
    parse,
    tool_parser,
)
from .errors import UsageError

if TYPE_CHECKING:
    from mmengine.config import Config


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('config', nargs='?', help='config file')
    parser.add_argument(
        '--list',
        nargs='*',
        metavar='WORD',
        help='list the configs that have all words in their method, backbone, task or result',
    )
    parser.add_argument(
        '--flops',
        action='store_true',
        help='run the model on one image and count its multiply-adds (takes up to minutes)',
    )
    parser.add_argument(
        '--size',
        nargs=2,
        type=int,
        metavar=('HEIGHT', 'WIDTH'),
        help="of that image, in pixels (the config's test size)",
    )
    add_training_arguments(parser)
    add_common_arguments(parser)
    args = parse(parser, argv)
    if (args.config is None) == (args.list is None):
        parser.error('give a config or --list')
    if args.size and not args.flops:
        parser.error('--size is for --flops')
    return args


def main(args: argparse.Namespace) -> None:
    from .complexity import count_products, measured_size
    from .config import load_config, used_loaders
    from .config_list import config_table, list_configs
    from .door import building
    from .model_checks import build_model, build_shapes
    from .options import apply_training_options, with_data_root
    from .recipe import entry, recipe_text
    from .schedule import check_schedule
    from .training_checks import warn_of_random_weights

    if args.list is not None:
        print(config_table(list_configs(CONFIGS.parent, args.list)))
        return
    cfg = load_config(args.config, args.cfg_options, args.work_dir)
    with building('the config'):
        if args.data_root:
            cfg = with_data_root(cfg, args.data_root)
        used_loaders(cfg, 'train', 'val')
        used_loaders(cfg, 'test')
        apply_training_options(cfg, args)
        check_schedule(cfg)
        model = build_model(cfg) if args.flops else build_shapes(cfg)
        warn_of_random_weights(cfg, model)
        recipe = recipe_text(cfg, model)
    print(entry('config', args.config))
    print(entry('paper', paper_result(Path(args.config).resolve(), cfg)))
    print(recipe)
    if args.flops:
        try:
            height, width = args.size or measured_size(cfg)
        except ValueError as error:
            raise UsageError(f'{error}; or give --size HEIGHT WIDTH') from error
        if min(height, width) < 1:
            raise UsageError(f'--size {height} {width}: both must be 1 or more')
        count = count_products(model, height=height, width=width)
        flops = f'{count.multiply_adds / 1e9:.1f} G multiply-adds at {height} x {width}'
        print(entry('FLOPs', flops))
        rotation = f'{count.rotations / 1e6:.1f} M complex products of queries and keys, besides'
        print(entry('rotation', rotation))


def paper_result(path: Path, cfg: Config) -> str:
    """The paper's result for `cfg`, which was read from `path`, or why there is none.

    A config that only names its base, such as the flagship configs, has the result of the base; a
    config that changes a setting has none.
    """
    from mmengine.config import Config

    while (entry := metafile_entry(path)) is None:
        bases = base_files(path)
        if len(bases) != 1:
            return 'none known'
        path = bases[0]
    original = Config.fromfile(path)
    if any(cfg.get(key) != original[key] for key in original):
        return f'none: {path.name} has one, and settings of it are changed here'
    return results_line(entry)


def base_files(path: Path) -> list[Path]:
    """The files that a config names as its `_base_`, without files of other packages."""
    from mmengine.config import Config

    bases = Config._get_base_files(str(path))  # mmengine has no public function for it
    return [(path.parent / base).resolve() for base in bases if '::' not in base]


def metafile_entry(path: Path) -> dict | None:
    """The entry for a config in the metafile of its folder, if there is one."""
    import mmengine

    metafile = path.parent / 'metafile.yml'
    models = mmengine.load(metafile)['Models'] if metafile.is_file() else []
    return next((model for model in models if model['Name'] == path.stem), None)


def results_line(entry: dict) -> str:
    """Metrics and source of the results of a metafile's entry, on one line."""
    lines = []
    for result in entry.get('Results', []):
        metrics = ', '.join(f'{value} {name}' for name, value in result['Metrics'].items())
        lines.append(f'{metrics} on {result["Dataset"]} ({result["Source"]})')
    return '; '.join(lines) or 'none: not in the paper'
