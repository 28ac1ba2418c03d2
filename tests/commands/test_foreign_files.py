"""No command replaces, removes or changes a file of the user's, whatever its name and place."""

import hashlib
import os
import re
import shutil
from pathlib import Path
from random import Random

import pytest
import torch
from mmengine.config import Config

from helpers.seeds import seed_of_the_week
from rope_dense.project.model import random_model
from rope_dense_command import command

# The arguments of each command that writes. Words in capitals are files; OUT is an empty folder.
COMMANDS = {
    'predict boxes': 'DETECTOR WEIGHTS PICTURES --out OUT --write coco yolo voc crops --score 0.01',
    'predict labels': 'SEGMENTOR LABELLER PICTURES --out OUT --scores',
    'predict-large boxes': 'DETECTOR WEIGHTS PICTURE --out OUT/boxes.json --picture OUT/drawn.png',
    'predict-large labels': 'SEGMENTOR LABELLER PICTURE --out OUT/a.tif --picture OUT/drawn.jpg',
    'test boxes': 'DETECTOR WEIGHTS --out OUT/boxes.pkl --work-dir WORK',
    'test labels': 'SEGMENTOR LABELLER --out OUT --work-dir WORK',
    'report': 'DETECTOR WEIGHTS --out OUT --work-dir WORK',
    'eval-resolutions': 'DETECTOR WEIGHTS --sizes 64 96 --scaling config --work-dir OUT',
    'choose-scaling': 'DETECTOR WEIGHTS --sizes 96 --images 2 --draws 560 --work-dir OUT',
    'position-bias': 'DETECTOR WEIGHTS --sizes 64 --work-dir OUT',
    'benchmark': 'DETECTOR --sizes 64x64 --modes forward --rounds 1 --work-dir OUT',
    'export': 'SEGMENTOR LABELLER OUT/model.pt2 --size 64',
    'convert-checkpoint': 'BACKBONE OUT/timm.safetensors --to timm',
    'convert-data json': 'coco LABELS OUT/train.json --images PICTURES --val-share 0.5',
    'convert-data tiles': 'tiles LABELS OUT/tiles --images PICTURES --tile 48',
    'browse-data': 'DETECTOR --count 2 --out OUT --work-dir WORK',
    'push-to-hub': 'DETECTOR WEIGHTS me/mine --folder OUT/hub',
}
NEW = (
    'convert-data json',
    'convert-data tiles',
    'push-to-hub',
)  # which replace nothing at all
LOG = re.compile(r'(.*/)?\d{8}_\d{6}/.*')  # mmengine's, by the time


@pytest.fixture(scope='module')
def words(
    detector: str, segmentor: str, weights: str, data: Path, folder: Path
) -> dict[str, str]:
    """The files that words stand for."""
    model = random_model(Config.fromfile(segmentor))
    labeller, backbone = folder / 'labeller.pth', folder / 'backbone.pth'
    torch.save(dict(state_dict=model.state_dict()), labeller)
    torch.save(dict(state_dict=model.backbone.state_dict()), backbone)
    pictures = data / 'coco' / 'val2017'
    names = dict(
        DETECTOR=detector, SEGMENTOR=segmentor, WEIGHTS=weights, PICTURES=str(pictures)
    )
    names |= dict(LABELLER=str(labeller), BACKBONE=str(backbone))
    labels = data / 'coco' / 'annotations' / 'instances_val2017.json'
    return names | dict(LABELS=str(labels), PICTURE=str(sorted(pictures.iterdir())[0]))


def files_in(folder: Path) -> dict[str, str]:
    """What each name in a folder is: a link, a folder, or a file by its content."""
    found = {}
    for path in sorted(folder.rglob('*')):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = f'link to {os.readlink(path)}'
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def plant(path: Path, random: Random, other: Path) -> None:
    """Put something of the user's in a place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = random.choice(('file', 'file', 'empty', 'link', 'dead link', 'hard link'))
    if kind == 'file':
        path.write_bytes(random.randbytes(random.randrange(1, 99)))
    elif kind == 'empty':
        path.touch()
    elif kind == 'hard link':
        os.link(other, path)
    else:
        path.symlink_to(other if kind == 'link' else other.with_name('nothing'))


@pytest.mark.parametrize('name', COMMANDS)
def test_a_file_of_the_user_stays(
    name: str,
    words: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file in the place of a result is named; others stay beside the results."""
    monkeypatch.chdir(tmp_path)  # where own_data would be
    program, random = (
        name.split()[0].replace('-', '_'),
        Random(f'{seed_of_the_week()} {name}'),
    )

    def run(out: Path, *more: str) -> int:
        places = words | dict(OUT=str(out), WORK=str(tmp_path / 'work'))
        pattern = re.compile('|'.join(sorted(places, key=len, reverse=True)))
        given = [
            pattern.sub(lambda found: places[found[0]], x)
            for x in COMMANDS[name].split()
        ]
        try:
            return command(program)([*given, *more])
        except SystemExit as stopped:  # of the reader of arguments
            return int(stopped.code or 0)

    clean = tmp_path / 'clean'
    clean.mkdir()
    assert run(clean) == 0, capsys.readouterr().err
    written = [
        x for x in files_in(clean) if not LOG.fullmatch(x) and '.rope_dense/' not in x
    ]
    left = {path.name for path in clean.rglob('.rope_dense/**/*') if path.is_file()}
    assert written and left <= {'record.jsonl'}, left
    other = tmp_path / 'other'
    other.write_text('of the user')
    for turn, number in enumerate((0, 1, len(written))):
        out = tmp_path / f'out{turn}'
        for place in random.sample(written, number):
            plant(out / place, random, other)
        for place in (
            f'mine{turn}.txt',
            'labels/mine.txt',
            'crops/mine/a.jpg',
            'a.json.partial',
        ):
            if not (out / place).exists():
                plant(out / place, random, other)
        before = files_in(out)
        (out / 'empty').mkdir()
        code, said = run(out), capsys.readouterr().err
        after = files_in(out)
        assert {place: after.get(place) for place in before} == before
        assert other.read_text() == 'of the user' and (out / 'empty').is_dir()
        if number == 0:
            assert code == 0 and set(written) <= {*after}, said
        else:
            assert code == 2 and said.count('error: ') == 1 and str(out) in said, said
        shutil.rmtree(out)
    more = ['--overwrite'] if name.startswith('predict-large') else []
    assert run(clean, *more) == (2 if name in NEW else 0), capsys.readouterr().err
