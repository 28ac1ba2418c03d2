"""Metafiles and READMEs of the folders of configs, against the configs; levels of bases."""

import ast
import copy
import re
from pathlib import Path

import mmengine
import pytest
import torch
from mmengine.registry import MODELS, init_default_scope

from helpers.grid import CONFIGS, FLAGSHIPS, read

ROOT = CONFIGS.parent
FOLDERS = ('foundation', 'stock_heads', 'nat', 'eomt', 'deim')  # the others: test_grid_documents.py
RESEARCH = ('research/ablation', 'research/pretraining', 'research/study')
WITHOUT_METAFILE = ('detectron2', 'demo', *RESEARCH)
every_folder = pytest.mark.parametrize('folder', FOLDERS)


def models(folder: str) -> dict[str, dict]:
    entries = mmengine.load(CONFIGS / folder / 'metafile.yml')['Models']
    return {entry['Name']: entry for entry in entries}


def test_the_index_imports_every_metafile() -> None:
    imported = mmengine.load(ROOT / 'model-index.yml')['Import']
    assert imported == [f'configs/{folder}/metafile.yml' for folder in (*FLAGSHIPS, *FOLDERS)]


def test_the_readme_lists_every_folder_and_counts_its_configs() -> None:
    text = (CONFIGS / 'README.md').read_text()
    counts = {}
    for names, numbers in re.findall(r'^\| (\[.+?) \| .+ \| ([\d, ]+) \|$', text, re.MULTILINE):
        folders = re.findall(r'\]\(([\w/]+)\)', names)
        counts |= dict(zip(folders, map(int, numbers.split(', ')), strict=True))
    own = {path.name for path in CONFIGS.iterdir() if path.is_dir()} - {'_base_', 'own', 'research'}
    own |= {*RESEARCH}
    assert counts.keys() - {'own'} == own
    for folder in own:
        suffix = '*.yml' if folder.endswith('pretraining') else '*.py'
        assert counts[folder] == len(list((CONFIGS / folder).glob(suffix))), folder
        assert folder in WITHOUT_METAFILE or (CONFIGS / folder / 'README.md').is_file()


@every_folder
def test_entries_are_the_configs(folder: str) -> None:
    files = {path.stem for path in (CONFIGS / folder).glob('*.py')}
    readme = (CONFIGS / folder / 'README.md').read_text()
    assert models(folder).keys() == files
    (collection,) = mmengine.load(CONFIGS / folder / 'metafile.yml')['Collections']
    assert (ROOT / collection['README']).is_file()
    if folder != 'eomt':  # docs/eomt.md lists them
        assert all(f'({name}.py)' in readme for name in files)
    for name, entry in models(folder).items():
        cfg, about = read(ROOT / entry['Config']), entry['Metadata']
        assert entry['In Collection'] == collection['Name'] and Path(entry['Config']).stem == name
        assert about.get('Iterations') == cfg.train_cfg.get('max_iters')
        assert about.get('Epochs') == cfg.train_cfg.get('max_epochs')
        assert about['Batch Size'] == cfg.auto_scale_lr.base_batch_size
        init_cfg = cfg.model.backbone.get('init_cfg')
        assert about['Initial Weights'] == (init_cfg.checkpoint if init_cfg else 'none')
        header = (ROOT / entry['Config']).read_text().partition('_base_')[0]
        for result in entry.get('Results', []):
            assert all(str(number) in header for number in result['Metrics'].values())


@every_folder
def test_parameters_are_counted(folder: str) -> None:
    """Of one config in five; those of the tables of configs/nat have a test of their own."""
    for name, entry in list(models(folder).items())[::5]:
        cfg = copy.deepcopy(read(ROOT / entry['Config']))
        init_default_scope(cfg.default_scope)
        with torch.device('meta'):
            model = MODELS.build(cfg.model)
        count = sum(p.numel() for p in model.parameters())
        assert entry['Metadata']['Parameters'] == count, name
        text = (CONFIGS / folder / 'README.md').read_text()
        row = re.search(rf'^\| \[[^\]]+\]\({name}\.py\) \|.*', text, re.MULTILINE)
        assert row is None or f' {count:,} ' in row[0]


def bases(path: Path) -> list[Path]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], 'id', '') == '_base_':
            value = ast.literal_eval(node.value)
            names = [value] if isinstance(value, str) else value
            return [(path.parent / name).resolve() for name in names if '::' not in name]
    return []


def depth(path: Path) -> int:
    """Levels of bases above a config; all of ``_base_`` is one."""
    if '_base_' in path.parts or not bases(path):
        return 0
    return 1 + max(map(depth, bases(path)))


def test_configs_build_on_recipes_in_at_most_three_levels() -> None:
    aliases = {path.resolve() for path in CONFIGS.glob('*.py')}
    for path in CONFIGS.rglob('*.py'):
        assert not aliases & set(bases(path)), f'{path} has a short name as its base'
        own = {'demo', 'study'} & {path.parent.name}
        assert path.resolve() in aliases or depth(path) <= (4 if own else 3), path
