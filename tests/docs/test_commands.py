"""The commands of the pages run on a tiny set, to their exit code."""

import fnmatch
import glob
import io
import re
import shlex
import shutil
from pathlib import Path

import pytest
from mmengine.registry import DefaultScope

import rope_dense
from helpers.page_commands import PAGES, ROOT, block_commands
from helpers.page_sources import SMALL
from rope_dense_command import command

pytest.importorskip('mmdet')
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('surroundings')]
# Patterns of 'PAGE COMMAND' that do not run here; test_command_lines.py parses every line.
LEFT_OUT = {
    'weights or images of a download': (
        *('configs/*/README.md train *', 'docs/eomt.md t* configs/*'),
        *('docs/eomt.md convert-checkpoint *', 'docs/f*.md train configs/*'),
        *('docs/heads.md train configs/*', 'docs/depth.md * configs/*'),
        *(
            'docs/realtime.md t* configs/*',
            'docs/training.md train configs/*',
            '* imagenet/val*',
        ),
        *(
            'docs/research/classification.md eval-resolutions *',
            '*/choose_scaling.md *',
        ),
        'docs/research/positions.md * CHECKPOINT *',
    ),
    'a GPU': ('* --device cuda*',),
    'panopticapi, which no package registry has': (
        '*/small_models.md *panoptic_shapes.py*',
    ),
    'ten minutes': ('docs/install.md demo', 'docs/report.md demo *'),
    'as the run of another model or seed': (
        *('*/resolution_study/* *_seed1*', '*/resolution_study/* *_rpb_*'),
        *('*/resolution_study/* *_ape_*', '*/resolution_study/* *_mixed_*'),
    ),
    'run by tests/commands/test_oriented_tools.py': ('docs/oriented.md test CONFIG *',),
    'detections of noise, and what another program found': (
        'docs/export.md check-file *',
    ),
    'a threshold that more images allow': (
        'docs/report.md * --miss *',
        'docs/report.md * --score report',
    ),
    'help': ('docs/install.md --help',),
    'a config of the reader': ('*/kinds/README.md train my_config.py',),
}
# Files that the commands of a page make.
FILES = {
    'docs/own_data.md': (
        *('data/masks/train/0.png', 'work_dirs/cats/predictions/pictures/0.jpg'),
        'work_dirs/start/last_checkpoint',
    ),
    'README.md': ('results/predictions.json', 'results/pictures/1.jpg', 'model.onnx'),
    'docs/use.md': ('results/predictions.json',),
    'docs/evaluation.md': (
        'work_dirs/cats/resolutions.json',
        'work_dirs/cats/scaling/128.py',
    ),
    'docs/export.md': ('model.onnx', 'model.pt2'),
    'docs/report.md': ('work_dirs/detection/report/index.html', 'a_and_b/index.html'),
    'docs/pre_labelling.md': ('pre/predictions.json', 'pre/yolo/classes.txt'),
    'docs/adapt.md': (
        'work_dirs/adapt/backbone.safetensors',
        'work_dirs/small/report/index.html',
    ),
    'docs/depth.md': (
        *(
            'work_dirs/depth/predictions/depth/0.npy',
            'work_dirs/depth/report/index.html',
        ),
    ),
    'docs/large_images.md': ('city.json', 'city.jpg', 'harbour_drawn.jpg'),
    'docs/one_encoder.md': ('results/depth/depth/0.npy', 'street.onnx'),
    'docs/oriented.md': ('work_dirs/tiles/last_checkpoint', 'city.json'),
}
# The run that RUN is on a page, if not work_dirs/run; runs of a page that it does not train.
RUN = {
    'docs/evaluation.md': 'work_dirs/cats',
    'docs/large_images.md': 'work_dirs/ships',
    'docs/oriented.md': 'work_dirs/harbour',
}
UNTRAINED = {
    'docs/evaluation.md': ('work_dirs/cats',),
    'docs/report.md': (
        'work_dirs/detection',
        'work_dirs/a',
        'work_dirs/b',
        'demo/training',
    ),
}
# Words of a command, and what they are on the tiny set.
SMALLER = {
    'DATA': ['shapes/coco', '--weights', 'None'],
    'PICTURES': ['shapes/coco/train2017', '--weights', 'None', '--batch-size', '4'],
    'SCENES': ['scenes/coco', '--weights', 'None'],
    'data/own': ['rooms/depth', '--weights', 'None'],
    'data/harbour': ['harbour/dota', '--weights', 'None', '--backbone', 'tiny'],
    'data/fields': ['fields/warm', '--weights', 'None'],
    'corrected': ['shapes/coco', '--weights', 'None'],
    'new': ['pictures'],
    'FOLDER': ['pictures'],
    'SOURCE': ['vit.pth'],
    'DESTINATION': ['timm.pth'],
    'WEIGHTS': ['small_test.pth'],
    'dinov3_small': ['small_test'],
    'CONFIG': ['upernet_vit_rope_mixed.py'],
    'CHECKPOINT': ['RUN/best_*.pth'],
    'x.pth': ['work_dirs/a/iter_2.pth'],
    'deimv2.pth': ['hub/Intellindust/DEIMv2_DINOv3_S_COCO/model.safetensors'],
    'work_dirs/run/iter_90000.pth': ['work_dirs/run/best_*.pth'],
    'work_dirs/cats/scaling/960.py': ['work_dirs/cats/scaling/128.py'],
    **{'40': ['2'], '100': ['2'], '500': ['2']},  # epochs, rounds, images
    **{
        '480': ['96'],
        '640': ['96'],
        '448': ['96'],
        '640x640': ['64x96'],
        '512x1024': ['64x96'],
    },
    **{'800': ['128'], '896': ['128'], '960': ['128'], '1280': ['128']},
    **{'14': ['4'], '200': ['16'], '256': ['32']},  # tokens of a window, overlaps
    **{'512': ['64'], '1024': ['96'], '2048': ['128']},  # tiles
}
ENCODER = [
    '--cfg-options',
    'model.backbone.init_cfg.checkpoint=work_dirs/encoder/iter_2.pth',
]
ON_FROZEN = [
    f'configs/demo/{name}_vit_rope_mixed_shapes.py' for name in ('pmt', 'linear')
]
TRUTH = 'shapes/coco/annotations/instances_val2017.json'
OF_PAGE: dict[str, dict[str, list[str]]] = {
    'docs/report.md': {
        'CONFIG': ['work_dirs/a/*.py'],
        'CHECKPOINT': ['work_dirs/a/best_*.pth'],
        'demo/data/coco/val2017': ['shapes/coco/val2017'],
        'demo/data/coco/annotations/instances_val2017.json': [TRUTH],
    },
    'docs/research/positions.md': {'11': ['3'], '3': ['1'], '256': ['64']},
    'docs/research/resolution_study/README.md': {
        **{size: [] for size in ('128', '192', '224', '256', '320', '10', '14')},
        '384': ['128'],
    },
    'docs/research/small_models.md': {
        **{config: [config, *ENCODER] for config in ON_FROZEN},
        'fields.py': [
            *('configs/own/semantic.py', '--weights', 'None', '--backbone', 'tiny'),
            *('--cfg-options', 'own.classes=[background,warm,cold]'),
        ],
    },
}
ROTATED = ('docs/oriented.md', 'docs/research/small_models.md')  # need mmrotate
OWN = ['--epochs', '1', '--size', '96']  # trainings on own data
STUDY = [  # and on generated data
    *(
        '--cfg-options',
        'train_cfg.max_iters=2',
        'train_cfg.val_interval=2',
        'param_scheduler=[]',
    ),
    *('train_dataloader.batch_size=2', 'default_hooks.checkpoint.interval=2'),
]
IN_PYTHON = {"'640', '960'": "'96', '128'", 'harbour.png': 'pictures/0.png'}


def reason(page: str, words: list[str]) -> str:
    """Why a command is left out, or nothing."""
    line = f'{page} {shlex.join(words)}'
    patterns = ((why, pattern) for why, given in LEFT_OUT.items() for pattern in given)
    return next(
        (why for why, pattern in patterns if fnmatch.fnmatchcase(line, pattern)), ''
    )


def commands(page: str) -> list[list[str]]:
    """The words after ``rope-dense`` of each command of a page that runs."""
    given = [
        words[1:] for words in block_commands(ROOT / page) if words[0] == 'rope-dense'
    ]
    return [words for words in given if not reason(page, words)]


def arguments(words: list[str], page: str) -> list[str]:
    """Of a command, with the trained model, small settings and expanded names."""
    smaller = SMALLER | OF_PAGE.get(page, {})
    if 'CHECKPOINT' in words:  # of a config that was trained before
        trained = Path(
            'work_dirs', Path(words[words.index('CHECKPOINT') - 1]).stem, 'iter_2.pth'
        )
        smaller |= {'CHECKPOINT': [str(trained)]} if trained.is_file() else {}
    more = shorter(words)
    words = [small for word in words for small in smaller.get(word, [word])]
    words = [
        re.sub(r'^RUN\b', RUN.get(page, 'work_dirs/run'), word)
        for word in [*words, *more]
    ]
    words = [re.sub(r'iter_\d+\.pth', 'iter_2.pth', word) for word in words]
    return [name for word in words for name in (sorted(glob.glob(word)) or [word])]


def shorter(words: list[str]) -> list[str]:
    """Options that make a command short; of an option that is given twice, the last holds."""
    name, source, *rest = words
    if name == 'make-shapes':
        return ['--train', '4', '--val', '2']
    if name == 'export' and not {'--size', '--resize'} & {*rest}:
        return ['--size', '64x96', '--batch', '1']
    if name == 'benchmark' and '--sizes' not in rest:
        return ['--sizes', '64x64']
    if name != 'train' or source == 'CONFIG' or '--resume' in rest:
        return []
    if source.startswith(('configs', 'docs')):
        return STUDY
    return [*OWN, *([] if 'deimv2_tiny' in rest else SMALL.get(source, []))]


RUNNABLE = [
    page for page in (str(path.relative_to(ROOT)) for path in PAGES) if commands(page)
]


def test_nothing_is_left_out_in_vain() -> None:
    lines = [
        f'{path.relative_to(ROOT)} {shlex.join(words[1:])}'
        for path in PAGES
        for words in block_commands(path)
    ]
    for pattern in (pattern for given in LEFT_OUT.values() for pattern in given):
        assert fnmatch.filter(lines, pattern), pattern
    assert {*FILES, *RUN, *UNTRAINED, *OF_PAGE} <= {*RUNNABLE}


@pytest.mark.parametrize('page', RUNNABLE)
def test_the_commands_of_a_page_run(
    page: str, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page in ROTATED:
        pytest.importorskip('mmrotate', reason='no mmrotate; see the extra [oriented]')
    for folder in UNTRAINED.get(page, ()):
        shutil.copytree('work_dirs/run', folder)
    for words in commands(page):
        if words[0] == 'convert-data':  # which writes nothing over
            for file in glob.glob('data/annotations/*.json'):
                Path(file).unlink()
        name, *given = arguments(words[words[0] == 'research' :], page)
        monkeypatch.setattr('sys.stdin', io.StringIO('pictures/0.png\n'))
        with DefaultScope.overwrite_default_scope('mmengine'):
            assert command(name.replace('-', '_'))(given) == 0, words
    assert all((workplace / file).is_file() for file in FILES.get(page, ()))


def test_the_python_of_the_readme_runs(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the training and the export, with a run."""
    exported: list[tuple] = []
    monkeypatch.setattr(
        'rope_dense.export.trained.export_model', lambda *given: exported.append(given)
    )
    shutil.move('work_dirs/run', 'work_dirs/realtime')
    text = (ROOT / 'README.md').read_text()
    (code,) = re.findall(
        r'^(model = rope_dense\.load.*?)```', text, re.DOTALL | re.MULTILINE
    )
    for old, new in IN_PYTHON.items():
        assert old in code
        code = code.replace(old, new)
    names: dict = {'rope_dense': rope_dense}
    exec(code, names)
    assert [row['size'] for row in names['rows']] == ['96', '128']
    ((config, checkpoint, out),) = exported
    assert Path(config).is_file() and Path(checkpoint).is_file() and out == 'model.onnx'
