"""Upload a trained model to the Hugging Face hub: config, weights, classes and a model card.

Examples:
    python tools/push_to_hub.py work_dirs/own/own.py work_dirs/own/best.pth me/street-scenes
    python tools/push_to_hub.py CONFIG CHECKPOINT me/cats --license apache-2.0 --private
    python tools/push_to_hub.py CONFIG CHECKPOINT me/cats --folder cats  # write, do not upload

Log in first: hf auth login. tools/predict.py accepts hf-hub:me/cats in place of a config and a
checkpoint; in Python, load_from_hub('hf-hub:me/cats') of rope_dense.integrations.hub loads the
model (docs/use.md).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..project.errors import UsageError
from .arguments import add_cfg_options, tool_parser


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('config', help='config file of a detector or segmentor')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('name', help='OWNER/NAME of the repository')
    parser.add_argument(
        '--license', help='licence, such as apache-2.0; initial weights may restrict the choice'
    )
    parser.add_argument(
        '--metric',
        nargs='+',
        type=metric,
        default=[],
        metavar='NAME=VALUE',
        help='results for the card, such as "box AP=0.41"',
    )
    parser.add_argument('--private', action='store_true', help='make the repository private')
    parser.add_argument('--folder', type=Path, help='write the files here, and do not upload')
    add_cfg_options(parser)
    return parser.parse_args(argv)


def metric(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition('=')
    return name, float(value)


def main(args: argparse.Namespace) -> None:
    import tempfile

    from ..checks.trained_model import load_trained
    from ..integrations.hub import push_to_hub, save_for_hub
    from ..project.load import load_config

    if args.name.count('/') != 1 or not all(args.name.split('/')):
        raise UsageError(f'{args.name}: give OWNER/NAME')
    cfg = load_config(args.config, args.cfg_options)
    model, classes, colours = load_trained(cfg, args.checkpoint)
    with tempfile.TemporaryDirectory() as temporary:
        folder = save_for_hub(
            cfg,
            model.state_dict(),
            args.folder or temporary,
            name=args.name,
            classes=classes,
            colours=colours,
            license=args.license,
            metrics=dict(args.metric),
        )
        if args.folder:
            print(f'{folder}: {", ".join(sorted(path.name for path in folder.iterdir()))}')
        else:
            print(push_to_hub(folder, args.name, private=args.private))
