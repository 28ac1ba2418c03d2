"""The tables of the grid (README.md, metafile.yml, model-index.yml) against configs and paper."""

import re
from pathlib import Path

import mmengine
import pytest

from helpers.grid import CONFIGS, FLAGSHIPS, GRID, Leaf, build_offline
from rope_dense.commands.complexity import measured_size

ROOT = CONFIGS.parent
every_folder = pytest.mark.parametrize('experiment', FLAGSHIPS)
LINK = re.compile(r'\[[^\]]+\]\(([^)#]+)\)')


def leaves(experiment: str) -> dict[str, Leaf]:
    return {leaf.name: leaf for leaf in GRID if leaf.experiment == experiment}


def parameters(leaf: Leaf) -> int:
    return sum(param.numel() for param in build_offline(leaf).parameters())


def rows(experiment: str) -> dict[str, list[str]]:
    """Cells after the first in the README's table, by the name of the config that is linked there.

    The last three are: what it starts from, parameters, GFLOPs.
    """
    text = (CONFIGS / experiment / 'README.md').read_text()
    actual = re.findall(r'^\| \[[^\]]+\]\((\S+)\.py\) \| (.+) \|$', text, re.MULTILINE)
    return {name: cells.split(' | ') for name, cells in actual}


def models(experiment: str) -> dict[str, dict]:
    entries = mmengine.load(CONFIGS / experiment / 'metafile.yml')['Models']
    actual = {model['Name']: model for model in entries}
    assert len(actual) == len(entries)
    return actual


@every_folder
def test_metafile_entries_are_the_leaves(experiment: str) -> None:
    actual, expected = models(experiment), leaves(experiment)
    assert actual.keys() == expected.keys()
    (collection,) = mmengine.load(CONFIGS / experiment / 'metafile.yml')['Collections']
    assert (ROOT / collection['README']).is_file()
    for name, model in actual.items():
        leaf, about = expected[name], model['Metadata']
        assert model['In Collection'] == collection['Name']
        assert ROOT / model['Config'] == leaf.path and leaf.path.is_file()
        assert about['Parameters'] == parameters(leaf)
        assert tuple(about['FLOPs Size']) == measured_size(leaf.load())
        assert about['Initial Weights'] == (leaf.weights or 'none')
        cfg = leaf.load()
        assert about['Iterations'] == cfg.train_cfg.max_iters
        assert about['Batch Size'] == cfg.auto_scale_lr.base_batch_size


@every_folder
def test_results_are_the_paper_s_and_say_so(experiment: str) -> None:
    table = dict(dino_vitdet=1, dino_swin=2, upernet_vit=3, mask2former_swin=4)[experiment]
    for name, model in models(experiment).items():
        expected = leaves(experiment)[name].results
        assert ('Results' in model) == bool(expected)
        for result in model.get('Results', []):
            assert list(result['Metrics'].values()) == expected
            assert result['Source'] == f'the paper, Table {table}'
    text = (CONFIGS / experiment / 'README.md').read_text()
    assert "the paper's results.**" in text and 'measured' in text


@every_folder
def test_readme_table_agrees(experiment: str) -> None:
    actual, recorded = rows(experiment), models(experiment)
    assert actual.keys() == leaves(experiment).keys()
    for name, leaf in leaves(experiment).items():
        *results, start, count, gflops = actual[name]
        assert [result for result in results if result != '-'] == [str(r) for r in leaf.results]
        assert int(count.replace(',', '')) == parameters(leaf)
        assert gflops == f'{recorded[name]["Metadata"]["FLOPs"] / 1e9:.1f}'
        assert (leaf.weights or 'none').removeprefix('hf-hub:').split('/')[-1] in start


@every_folder
def test_links_and_commands_of_the_readme_exist(experiment: str) -> None:
    folder: Path = CONFIGS / experiment
    text = (folder / 'README.md').read_text()
    local = [link for link in LINK.findall(text) if '://' not in link]
    assert len(local) >= len(leaves(experiment))
    assert all((folder / link).exists() for link in local)
    commands = re.findall(r'^python (\S+) (\S+) --flops$', text, re.MULTILINE)
    assert commands and all((ROOT / path).is_file() for pair in commands for path in pair)
