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
from helpers.published_results import RESULTS
from rope_dense.measure.benchmark import measured_size

ROOT = CONFIGS.parent
FOLDERS = (
    *FLAGSHIPS,
    'foundation',
    'stock_heads',
    'nat',
    'eomt',
    'pmt',
    'deim',
    'depth',
)
RESEARCH = ('research/ablation', 'research/pretraining', 'research/study')
# mmrotate's configs are the bases of 'oriented', and mmrotate is an extra.
WITHOUT_METAFILE = ('own', 'detectron2', 'demo', 'oriented', *RESEARCH)
every_folder = pytest.mark.parametrize('folder', FOLDERS)


def models(folder: str) -> dict[str, dict]:
    entries = mmengine.load(CONFIGS / folder / 'metafile.yml')['Models']
    return {entry['Name']: entry for entry in entries}


def test_the_index_imports_every_metafile() -> None:
    imported = mmengine.load(ROOT / 'model-index.yml')['Import']
    assert imported == [f'configs/{folder}/metafile.yml' for folder in FOLDERS]


def test_the_readme_lists_every_folder_and_counts_its_configs() -> None:
    text = (CONFIGS / 'README.md').read_text()
    counts = {}
    for names, numbers in re.findall(
        r'^\| (\[.+?) \| .+ \| ([\d, ]+) \|$', text, re.MULTILINE
    ):
        folders = re.findall(r'\]\(([\w/]+)\)', names)
        counts |= dict(zip(folders, map(int, numbers.split(', ')), strict=True))
    own = {path.name for path in CONFIGS.iterdir() if path.is_dir()} - {
        '_base_',
        'research',
    }
    own |= {*RESEARCH}
    assert counts.keys() == own
    for folder in own:
        suffix = '*.yml' if folder.endswith('pretraining') else '*.py'
        files = {path.name for path in (CONFIGS / folder).glob(suffix)} - {
            'backbones.py'
        }
        assert counts[folder] == len(files), folder
        assert folder in WITHOUT_METAFILE or (CONFIGS / folder / 'README.md').is_file()


def row_of(folder: str, name: str) -> str:
    """The row of a config in the table of its folder or of its guide."""
    page = (
        ROOT / 'docs' / 'eomt.md'
        if folder == 'eomt'
        else CONFIGS / folder / 'README.md'
    )
    link = rf'\[[^\]]+\]\((?:../configs/{folder}/)?{name}\.py\)'
    (row,) = re.findall(rf'^\| {link} \|(.*)\|$', page.read_text(), re.MULTILINE)
    return row


@every_folder
def test_entries_are_the_configs(folder: str) -> None:
    assert models(folder).keys() == {
        path.stem for path in (CONFIGS / folder).glob('*.py')
    }
    (collection,) = mmengine.load(CONFIGS / folder / 'metafile.yml')['Collections']
    assert (ROOT / collection['README']).is_file()
    for name, entry in models(folder).items():
        cfg, about = read(ROOT / entry['Config']), entry['Metadata']
        assert (
            entry['In Collection'] == collection['Name']
            and Path(entry['Config']).stem == name
        )
        assert about.get('Iterations') == cfg.train_cfg.get('max_iters')
        assert about.get('Epochs') == cfg.train_cfg.get('max_epochs')
        assert about['Batch Size'] == cfg.auto_scale_lr.base_batch_size
        init_cfg = cfg.model.backbone.init_cfg
        weights = init_cfg.checkpoint if init_cfg else 'none'
        assert about['Initial Weights'] == weights
        if folder in FLAGSHIPS:
            assert tuple(about['FLOPs Size']) == measured_size(cfg)
            row = row_of(folder, name)
            assert (
                f'{about["FLOPs"] / 1e9:.1f} ' in row and weights.split('/')[-1] in row
            )


@every_folder
def test_results_are_published_and_equal_everywhere(folder: str) -> None:
    """Those of the source, in the metafile, in the header of the config and in the guide."""
    for name, entry in models(folder).items():
        results, expected = entry.get('Results', []), RESULTS.get(name, [])
        assert [
            x for result in results for x in result['Metrics'].values()
        ] == expected, name
        header = (ROOT / entry['Config']).read_text().partition('_base_')[0]
        row = re.split(r' \| |; |: | ', row_of(folder, name))
        assert all(
            str(number) in header and str(number) in row for number in expected
        ), name
        sources = {result['Source'] for result in results}
        if folder in FLAGSHIPS and results:
            assert sources == {f'the paper, Table {list(FLAGSHIPS).index(folder) + 1}'}


@every_folder
def test_parameters_are_in_the_tables(folder: str) -> None:
    for name, entry in models(folder).items():
        count = entry['Metadata']['Parameters']
        assert folder == 'eomt' or f' {count:,} ' in row_of(folder, name)


@pytest.mark.slow
@every_folder
def test_parameters_are_counted(folder: str) -> None:
    """Of one config in three, by the models that they build."""
    for name, entry in list(models(folder).items())[::3]:
        cfg = copy.deepcopy(read(ROOT / entry['Config']))
        init_default_scope(cfg.default_scope)
        with torch.device('meta'):
            model = MODELS.build(cfg.model)
        count = sum(p.numel() for p in model.parameters())
        assert entry['Metadata']['Parameters'] == count, name


def bases(path: Path) -> list[Path]:
    for node in ast.parse(path.read_text()).body:
        if (
            isinstance(node, ast.Assign)
            and getattr(node.targets[0], 'id', '') == '_base_'
        ):
            value = ast.literal_eval(node.value)
            names = [value] if isinstance(value, str) else value
            return [
                (path.parent / name).resolve() for name in names if '::' not in name
            ]
    return []


def depth(path: Path) -> int:
    """Levels of bases above a config; all of ``_base_`` is one."""
    if '_base_' in path.parts or not bases(path):
        return 0
    return 1 + max(map(depth, bases(path)))


def test_configs_build_on_recipes_in_at_most_four_levels() -> None:
    aliases = {path.resolve() for path in CONFIGS.glob('*.py')}
    for path in CONFIGS.rglob('*.py'):
        assert not aliases & set(bases(path)), f'{path} has a short name as its base'
        assert path.resolve() in aliases or depth(path) <= 4, path
