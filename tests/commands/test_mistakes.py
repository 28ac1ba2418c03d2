"""Mistakes of beginners: each ends with one line that says what to do, and changes no file."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rope_dense.data.generated import ShapesSettings, write_shapes
from rope_dense.project.load import load_config
from rope_dense.utils.configs import CONFIGS
from rope_dense_command import command

pytest.importorskip('mmdet')
DATA = 'realtime --data coco'
RUN, NO_RUN = (
    'work_dirs/realtime',
    r'realtime is a recipe, not a run: give work_dirs/realtime',
)
FIRST = r'error: the following arguments are required: config \(give it first'
MISTAKES = {
    # options of other packages
    'train realtime data=X epochs=3': r'did you mean --data X --epochs 3\?',
    'train data=X epochs=3': r'did you mean --epochs 3\?',
    'train data=X': r"config 'data=X': no such file .*; recipes for own data: adapt, depth, ",
    f'train {DATA} --imgsz 640': r'did you mean --size\?',
    f'train {DATA} --lr0=0.01': r'did you mean --lr 0.01\?',
    f'train {DATA} --work_dir x': r'did you mean --work-dir\?',
    'train realtime coco': r'did you mean --data coco\?',
    'train realtime --dataset-dir coco': r'did you mean --data coco\?',
    f'predict {RUN} pictures --conf 0.5': r'did you mean --score\?',
    f'export {RUN} a.onnx --data-root coco': r'unrecognized arguments: --data-root coco$',
    f'predict model={RUN} source=pictures': rf'no such file .*; did you mean {RUN}\?',
    'train model=yolov8n.pt': r'not a config .*give the folder of a run',
    'train yolov8n': r'no such file .*; recipes for own data: adapt, depth, detection, ',
    f'test {RUN} --eval bbox': r'error: unrecognized arguments: --eval bbox',
    # recipes, runs and checkpoints
    'train realtim --data coco': r'no such file .*; did you mean realtime\?',
    'predict realtime pictures': NO_RUN,
    'predict configs/own/realtime.py pictures': r'no such file .*; did you mean realtime\?',
    'predict mine.py pictures': r'mine.py is a recipe, not a run: give work_dirs/mine, or a ',
    'predict work_dirs/realtim pictures': rf'did you mean {RUN}\?',
    'predict best.pth pictures': r"config 'best.pth': not a config",
    f'predict {RUN} picturs': r'picturs: no such file or folder; did you mean pictures\?',
    f'predict {RUN} pictures --score 30': r'--score: 30: give a score from 0 to 1',
    f'predict-large {RUN} pictures/0.png --min-score 0.5': r'did you mean --score\?',
    'predict coco pictures': r'coco: neither a run, .*, nor a stored model',
    'test realtime': NO_RUN,
    f'test {RUN} iter_3.pth': r"checkpoint 'iter_3.pth': no such file",
    'report realtime': NO_RUN,
    f'report --compare {RUN} {RUN}': rf'no report, run `rope-dense report {RUN}`',
    'export realtime model.onnx': NO_RUN,
    f'export {RUN} model.engine': r'model.engine: give NAME.onnx or NAME.pt2',
    'eval-resolutions realtime --sizes 640': NO_RUN,
    f'eval-resolutions {RUN} --sizes large': r'argument --sizes: ',
    'choose-scaling realtime': NO_RUN,
    f'push-to-hub {RUN} cats': r'cats: give OWNER/NAME',
    # settings
    f'train {DATA} --epochs 0': r'own.epochs must be an integer from 1 up, got 0',
    f'train {DATA} --epochs ten': r"own.epochs must be an integer, got 'ten'",
    f'train {DATA} --size 100': r'own.size=100: give a multiple of 32, such as 96 or 128',
    f'train {DATA} --batch 500': r'own.batch_size=500: more than the 4 training images',
    f'train {DATA} --backbone resnet50': r"own.backbone='resnet50': no such architecture",
    f'train {DATA} --backbone smal': r'no such architecture; did you mean small\?',
    f'train {DATA} --weights yolov8n.pt': r'yolov8n.pt: no such file or folder',
    f'train {DATA} --flip diagonal': r"own.flip must be one of \(None, 'none', 'horizontal', ",
    f'train {DATA} --max-depth 5': r'own.max_depth: no such setting.*; allowed: data_root, ',
    f'train {DATA} --epochs 3 --cfg-options own.epochs=4': r'--epochs 3, own.epochs=4: give one',
    f'train {DATA} --cfg-options own.epoch=3': r'own.epoch: no such setting; did you mean epochs\?',
    'train realtime --cfg-options data_root=coco': r'did you mean own.data_root=coco\?',
    f'train {DATA} --cfg-options epochs 3': r'--cfg-options epochs: no KEY=VALUE',
    f'train {DATA} --work-dir new --gpus 2': r'own.gpus=2: the schedule is for so many processes',
    f'train {CONFIGS}/dino_vitdet_rope_mixed.py --epochs 3': r'own.epochs: this config computes ',
    f'train {DATA} --work-dir new --amp': r'--amp fp16: needs a GPU.* give --amp bf16',
    # data
    'train realtime': r"own.data_root='data/own': no such folder \(seen from ",
    'train realtime --data coc': r"own.data_root='coc': no such folder .*; did you mean coco\?",
    'train realtime --data empty': r'empty: no labels as COCO, YOLO, .*docs/own_data.md',
    'train realtime --data nameless': r'names of the classes are missing: write them to ',
    'train realtime --data pixels': r'0.txt.*line 1',
    f'train {DATA} --classes cow': r'cow.*circle, square, triangle',
    'train instance --data boxes': r'no object has a polygon or mask, which masks are trained on',
    'train semantic --data coco': r'no images with masks|classes.txt: no such file',
    'train depth --data coco': r'no images with depth',
    'browse-data realtime --data coco --split test2017': r'argument --split: invalid choice',
    'convert-data yolo label out.json': r'label: no such file or folder',
    # starting and continuing
    'train --resume work_dirs/realtime': FIRST,
    f'train {DATA} --resume iter_9.pth': r"checkpoint 'iter_9.pth': no such file",
    f'train {DATA} --load-from work_dirs/realtim': rf'did you mean {RUN}\?',
    f'train {RUN}': r'has 1 checkpoints of an earlier run.*--resume.*--work-dir.*--overwrite',
    f'train {DATA} --weights None': r'has 1 checkpoints of an earlier run',
    f'train {RUN} --epochs 9': r'has 1 checkpoints of an earlier run',
    f'train {RUN} --resume --overwrite': r'resume \(--resume\) and overwrite \(--overwrite\)',
    f'report {RUN} --cfg-options own.size=96': r'own.size: this config computes nothing from it',
}


@pytest.fixture(scope='module')
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with data of several kinds, pictures, a copy of a recipe, and a run."""
    folder = tmp_path_factory.mktemp('mistakes')
    write_shapes(folder, ShapesSettings(4, 2, (64, 96), layouts=('coco',)))
    pixels = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    for name, text in dict(
        nameless='0 0.5 0.5 0.2 0.2', pixels='0 30 20 40 30'
    ).items():
        for split in ('train', 'val'):
            write_yolo(folder / name, split, text, pixels)
    (folder / 'pixels' / 'classes.txt').write_text('cat\n')
    for split in ('train', 'val'):
        write_yolo(folder / 'boxes', split, '0 0.5 0.5 0.2 0.2', pixels)
    (folder / 'boxes' / 'classes.txt').write_text('cat\n')
    (folder / 'empty').mkdir()
    (folder / 'pictures').mkdir()
    Image.fromarray(pixels).save(folder / 'pictures' / '0.png')
    (folder / 'mine.py').write_text((CONFIGS / 'own' / 'realtime.py').read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        cfg = load_config(
            'realtime', own=dict(data_root='coco', weights=None, epochs=2)
        )
        (folder / RUN).mkdir(parents=True)
        cfg.dump(folder / RUN / 'realtime.py')
        torch.save({}, folder / RUN / 'iter_1.pth')
        (folder / RUN / 'last_checkpoint').write_text(f'{RUN}/iter_1.pth')
        yield folder


def write_yolo(folder: Path, split: str, text: str, pixels: np.ndarray) -> None:
    for kind in ('images', 'labels'):
        (folder / kind / split).mkdir(parents=True)
    Image.fromarray(pixels).save(folder / 'images' / split / '0.png')
    (folder / 'labels' / split / '0.txt').write_text(text)


def times_of_files(folder: Path) -> dict[Path, int]:
    """The time of change of each file; a lock that was held changes that of its folder."""
    files = (path for path in folder.rglob('*') if path.is_file())
    return {path: path.stat().st_mtime_ns for path in files}


@pytest.mark.parametrize('line', MISTAKES)
def test_a_mistake_is_one_line(
    line: str, place: Path, capfd: pytest.CaptureFixture[str], surroundings: None
) -> None:
    before = times_of_files(place)
    name, *words = shlex.split(line)
    try:
        code = command(name.replace('-', '_'))(words)
    except SystemExit as end:  # of argparse, with the usage
        code = end.code
    said = capfd.readouterr().err
    lines = [text for text in said.splitlines() if 'error: ' in text]
    assert code == 2 and len(lines) == 1 and 'Traceback' not in said, said
    assert re.search(MISTAKES[line], lines[0]), lines[0]
    assert said.startswith('usage: ') or lines[0].startswith('error: ')
    assert before == times_of_files(place)
