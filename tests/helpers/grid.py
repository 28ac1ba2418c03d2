"""The paper's grid of configs: which ones there are, and how the tests load and build them."""

from __future__ import annotations

import argparse
import copy
import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from mmengine.config import Config, DictAction
from mmengine.registry import MODELS, init_default_scope
from torch import nn

import rope_dense  # noqa: F401
from helpers.recipes import (
    PAPER,
    PAPER_MULTI_SCALE,
    SIZE_NAMES,
    SWIN_VARIANTS,
    SWIN_WEIGHTS,
    VIT_VARIANTS,
    VIT_WEIGHTS,
)

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
NAMES = {
    'dino_vitdet': 'dino-vitdet_vit-{size}_{variant}_8xb2-90k_coco',
    'dino_swin': 'dino_swin-{size}_{variant}_8xb2-90k_coco',
    'upernet_vit': 'upernet_vit-{size}_{variant}_8xb2-160k_ade20k-512x512',
    'mask2former_swin': 'mask2former_swin-{size}_{variant}_8xb2-160k_ade20k-{crop}x{crop}',
}
FLAGSHIPS = {
    'dino_vitdet': 'b',
    'dino_swin': 't',
    'upernet_vit': 'b',
    'mask2former_swin': 's',
}


@dataclass(frozen=True)
class Leaf:
    """One config of the grid.

    Attributes:
        experiment: its folder.
        size: of the backbone, a letter.
        variant: its position embedding, as in the file names.
    """

    experiment: str
    size: str
    variant: str

    @property
    def is_vit(self) -> bool:
        return not self.experiment.endswith('swin')

    @property
    def recipe(self) -> tuple[str, str]:
        """Key of the tables in recipes.py."""
        return self.experiment, self.size

    @property
    def crop(self) -> int:
        return 640 if self.recipe == ('mask2former_swin', 'b') else 512

    @property
    def name(self) -> str:
        form = NAMES[self.experiment]
        return form.format(size=self.size, variant=self.variant, crop=self.crop)

    @property
    def path(self) -> Path:
        return CONFIGS / self.experiment / f'{self.name}.py'

    @property
    def settings(self) -> dict:
        """The settings of the backbone that make the variant."""
        return (VIT_VARIANTS if self.is_vit else SWIN_VARIANTS)[self.variant]

    @property
    def weights(self) -> str | None:
        """The weights that it starts from."""
        form = (VIT_WEIGHTS if self.is_vit else SWIN_WEIGHTS)[self.variant]
        return form and form.format(SIZE_NAMES[self.size])

    @property
    def results(self) -> list[float]:
        """The paper's, of UperNet also at several scales; none for what the paper has not."""
        column = list(VIT_VARIANTS if self.is_vit else SWIN_VARIANTS).index(
            self.variant
        )
        tables = (PAPER[self.recipe], PAPER_MULTI_SCALE.get(self.recipe, ()))
        return [table[column] for table in tables if column < len(table)]

    def load(self) -> Config:
        """The config, in the scope that it asks for, with batches loaded in this process."""
        cfg = copy.deepcopy(read(self.path))
        init_default_scope(cfg.default_scope)
        for loader in (cfg.train_dataloader, cfg.val_dataloader):
            loader.update(num_workers=0, persistent_workers=False)
        return cfg


@cache
def read(path: Path) -> Config:
    """The config of a file, read once for all tests; not to be changed."""
    return Config.fromfile(path)


def grid() -> list[Leaf]:
    """Every size in every variant; the learned axial one for ViT-B only."""
    return [
        Leaf(experiment, size, variant)
        for experiment, size in PAPER
        for variant in (
            VIT_VARIANTS
            if experiment in ('dino_vitdet', 'upernet_vit')
            else SWIN_VARIANTS
        )
        if variant != 'rope-axial-learned' or size == 'b'
    ]


GRID = grid()


def value(cfg: Config, path: str) -> object:
    """The value at a dotted path; None if there is none."""
    for key in path.split('.'):
        cfg = cfg[int(key)] if key.isdigit() else cfg.get(key)
    return cfg


def readme_options(readme: Path, config: str) -> dict:
    """The --cfg-options of the first command of a README that names ``config`` and has any."""
    blocks = '\n'.join(readme.read_text().split('```')[1::2]).replace('\\\n', ' ')
    command = next(
        line
        for line in blocks.splitlines()
        if config in line and '--cfg-options' in line
    )
    return parse_options(command)


def parse_options(command: str) -> dict:
    """The --cfg-options of a command."""
    parser = argparse.ArgumentParser()
    parser.add_argument('--cfg-options', nargs='+', action=DictAction)
    return parser.parse_known_args(shlex.split(command))[0].cfg_options


@cache
def readme_variants(folder: str) -> list[tuple[str, dict]]:
    """(name of a config, --cfg-options) of each model that a folder's README has without a file."""
    text = (CONFIGS / folder / 'README.md').read_text()
    rows = re.findall(r'^\| [^|]+ \| (\[[^|]+) \| `([^`]+)` \|$', text, re.MULTILINE)
    return [
        (name, parse_options(f'--cfg-options {options}'))
        for links, options in rows
        for name in re.findall(r'\((\S+)\.py\)', links)
    ]


@cache
def build_offline(leaf: Leaf) -> nn.Module:
    """The whole model without storage: parameters have shapes but no values. Not to be changed."""
    cfg = leaf.load()
    with torch.device('meta'):
        return MODELS.build(cfg.model)
