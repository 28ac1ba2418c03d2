"""README.md: its code runs, its configs fit data, its commands parse. The links of all pages."""

import json
import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
import pytest
import torch
from mmengine.config import Config

from rope_dense.cli.config import load_config, used_loaders
from rope_dense.cli.data_checks import check_data
from rope_dense.cli.flags import with_data_root

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / 'README.md').read_text()
DETECTION, SEGMENTATION, EXAMPLE = re.findall(r'```python\n(.*?)```', TEXT, re.DOTALL)
BASH = '\n'.join(re.findall(r'```bash\n(.*?)```', TEXT, re.DOTALL))
PROSE = ' '.join(re.sub(r'```.*?```', '', TEXT, flags=re.DOTALL).split())
INLINE = re.findall(r'`(python tools/[^`]+)`', PROSE)
COMMANDS = [line for line in [*BASH.splitlines(), *INLINE] if line.startswith('python tools/')]
PAGES = sorted(
    path
    for pattern in ('*.md', 'docs/**/*.md', 'configs/**/*.md', 'benchmarks/**/*.md')
    for path in ROOT.glob(pattern)
)


def links(page: Path) -> list[str]:
    """Targets of the links of a page, those to the web left out."""
    text = re.sub(r'```.*?```|`[^`\n]*`', '', page.read_text(), flags=re.DOTALL)
    targets = re.findall(r'\]\(([^)\s]+)\)', text)
    return [target for target in targets if not re.match('[a-z]+:', target)]


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    text = re.sub(r'```.*?```', '', page.read_text(), flags=re.DOTALL)
    headings = re.findall(r'^#+ (.+)$', text, re.MULTILINE)
    return {re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-') for heading in headings}


@pytest.mark.parametrize('page', PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_exist(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition('#')
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_guide_is_linked() -> None:
    index = ROOT / 'docs' / 'README.md'
    linked = {(index.parent / link.partition('#')[0]).resolve() for link in links(index)}
    guides = {*ROOT.glob('docs/*.md'), *ROOT.glob('docs/*/README.md')} - {index}
    assert guides <= linked


def test_the_code_runs() -> None:
    names: dict[str, Any] = {}
    exec(EXAMPLE, names)
    assert len(names['maps']) == 4
    assert {feature_map.shape for feature_map in names['maps']} == {torch.Size([1, 384, 30, 40])}


def own_config(code: str, folder: Path) -> Config:
    """The config `code` of the README, on data in `folder`."""
    path = folder / 'mine.py'
    path.write_text(code.replace("'configs/", f"'{ROOT}/configs/"))
    return with_data_root(load_config(str(path)), folder)


def test_boxes_in_the_layout_of_coco_fit_the_config(tmp_path: Path) -> None:
    content = dict(
        images=[dict(id=1, file_name='1.jpg', height=48, width=64)],
        annotations=[
            dict(id=1, image_id=1, category_id=7, bbox=[0, 0, 40, 40], area=1600, iscrowd=0)
        ],
        categories=[dict(id=5, name='cat'), dict(id=7, name='dog')],
    )
    for split in ('train', 'val'):
        mmcv.imwrite(np.zeros((48, 64, 3), np.uint8), str(tmp_path / f'{split}2017' / '1.jpg'))
        file = tmp_path / 'annotations' / f'instances_{split}2017.json'
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(content))
    cfg = own_config(DETECTION, tmp_path)
    check_data(cfg, used_loaders(cfg, 'train', 'val', 'test'))
    assert cfg.test_evaluator.ann_file == str(file)


def test_masks_in_the_layout_of_ade20k_fit_the_config(tmp_path: Path) -> None:
    mask = np.array([[0, 1], [2, 255]], np.uint8).repeat(24, 0).repeat(32, 1)
    for split in ('training', 'validation'):
        image = tmp_path / 'images' / split / '1.jpg'
        mmcv.imwrite(np.zeros((48, 64, 3), np.uint8), str(image))
        mmcv.imwrite(mask, str(tmp_path / 'annotations' / split / '1.png'))
    cfg = own_config(SEGMENTATION, tmp_path)
    check_data(cfg, used_loaders(cfg, 'train', 'val', 'test'))
    assert cfg.model.auxiliary_head.num_classes == cfg.model.decode_head.num_classes == 3


def test_every_command_parses() -> None:
    assert len(INLINE) == 1 and len(COMMANDS) > len(INLINE)
    for command in COMMANDS:
        _, tool, *arguments = shlex.split(command, comments=True)
        runpy.run_path(str(ROOT / tool))['parse_args'](arguments)


def test_every_flag_exists() -> None:
    flags = set(re.findall(r'[`;] ?(--[a-z-]+)', TEXT)) - {'--help'}
    files = [*(ROOT / 'tools').glob('*.py'), ROOT / 'rope_dense' / 'cli' / 'arguments.py']
    sources = ''.join(path.read_text() for path in files)
    assert {flag for flag in flags if f"'{flag}'" not in sources} == set()
