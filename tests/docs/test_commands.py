"""Commands of README.md and of pages on own data, on small data and models."""

import glob
import io
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from PIL import Image
from safetensors.torch import save_file

import rope_dense
from helpers.grid import CONFIGS
from rope_dense.backbones.archs import VIT_ARCHS
from rope_dense.checkpoints.detectors import to_published
from rope_dense.datasets.generated import ShapesSettings, write_shapes
from rope_dense_command import command

pytest.importorskip('mmdet')
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('surroundings')]
ROOT = Path(__file__).resolve().parents[2]
# The files that the commands of a page make; the first two pages train what the others use.
PAGES = {
    'docs/own_data.md': (
        *('data/masks/train/0.png', 'work_dirs/cats/predictions/pictures/0.jpg'),
        'work_dirs/start/last_checkpoint',
    ),
    'README.md': ('results/predictions.json', 'results/pictures/1.jpg', 'model.pt2'),
    'docs/use.md': ('results/predictions.json',),
    'docs/evaluation.md': ('work_dirs/cats/resolutions.json', 'work_dirs/cats/scaling/128.py'),
    'docs/report.md': ('work_dirs/cats/report/index.html', 'a_and_b/index.html'),
    'docs/pre_labelling.md': ('pre/predictions.json', 'pre/yolo/classes.txt'),
    'docs/adapt.md': (
        'work_dirs/adapt/backbone.safetensors',
        'work_dirs/realtime/report/index.html',
    ),
    'docs/depth.md': (
        'work_dirs/depth/predictions/depth/0.npy',
        'work_dirs/depth/report/index.html',
    ),
    'docs/channels.md': ('work_dirs/fields/last_checkpoint',),
    'docs/large_images.md': ('city.json', 'city.jpg', 'harbour_drawn.jpg'),
}
SHORT = ['--overwrite', '--epochs', '1', '--size', '96']  # trainings on data
SMALLER = {'RUN': ['work_dirs/cats'], 'DATA': ['shapes/coco', '--weights', 'None']}
SMALLER |= {'40': ['2'], 'work_dirs/cats/scaling/960.py': ['work_dirs/cats/scaling/128.py']}
SMALLER |= {'model.onnx': ['model.pt2', '--size', '96x128', '--batch', '1']}  # ONNX takes a minute
SMALLER |= {'480': ['96'], '640': ['96'], '960': ['128'], '1280': ['128']}
SMALLER |= {'500': ['2'], '14': ['4']}  # images, tokens of a window
SMALLER |= {'CONFIG': ['work_dirs/cats/*.py'], 'CHECKPOINT': ['work_dirs/cats/best_*.pth']}
SMALLER |= {'work_dirs/detection': ['work_dirs/cats'], 'work_dirs/a': ['work_dirs/cats']}
SMALLER |= {'work_dirs/b': ['work_dirs/start']}
PICTURES = 'shapes/coco/train2017', '--weights', 'None', '--batch-size', '4'
SMALLER |= {'new': ['pictures'], 'PICTURES': [*PICTURES]}
SMALLER |= {'data/own': ['rooms/depth', '--weights', 'None']}
FIELDS = 'fields/warm', '--weights', 'None', '--work-dir', 'work_dirs/fields'
SMALLER |= {'data/fields': [*FIELDS]}
SMALLER |= {'SCENES': ['scenes/coco', '--weights', 'None'], '200': ['16'], '256': ['32']}
SMALLER |= {'512': ['64'], '1024': ['96'], '2048': ['128']}  # tiles
CORRECTED = 'own.data_root=shapes/coco', 'own.weights=None', '--work-dir', 'work_dirs/again'
SMALLER |= {'own.data_root=corrected': [*CORRECTED]}
RUNS = {'docs/large_images.md': 'work_dirs/ships', 'docs/pre_labelling.md': 'work_dirs/realtime'}
PUBLISHED = 'configs/depth/linear_dinov3'  # weights and data that need a download
IN_PYTHON = {"'640', '960'": "'96', '128'", 'harbour.png': 'pictures/0.png'}


def commands(page: str) -> list[list[str]]:
    """Words of each, in the order of the page; of a pipe the last one."""
    text = (ROOT / page).read_text()
    blocks = '\n'.join(re.findall(r'```bash\n(.*?)```', text, re.DOTALL))
    lines = [line.rpartition(' | ')[2] for line in blocks.replace('\\\n', '').splitlines()]
    lines = [line for line in lines if line.startswith('rope-dense') and PUBLISHED not in line]
    return [shlex.split(line, comments=True)[1:] for line in lines]


def arguments(words: list[str], page: str) -> list[str]:
    """Of a command, with the trained model, small settings and expanded names."""
    smaller = SMALLER
    if run := RUNS.get(page):
        smaller = smaller | {'RUN': [run], 'CHECKPOINT': [f'{run}/best_*.pth']}
    if words[0] == 'train' and '--resume' not in words:
        words = [*words, *SHORT]
    words = [small for word in words for small in smaller.get(word, [word])]
    return [name for word in words for name in (sorted(glob.glob(word)) or [word])]


def write_sources(folder: Path) -> None:
    """A picture and its labels for each converter."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    for place in ('data/images/train', 'data/train', 'VOC/JPEGImages', 'pictures'):
        (folder / place).mkdir(parents=True)
        for index in range(2):
            Image.fromarray(pixels).save(folder / place / f'{index}.png')
    for name in ('city.tif', 'harbour.png'):
        Image.fromarray(np.tile(pixels, (2, 2, 1))).save(folder / name)
    (folder / 'street.jpg').write_bytes((folder / 'pictures' / '0.png').read_bytes())
    video = cv2.VideoWriter(str(folder / 'drive.mp4'), cv2.VideoWriter.fourcc(*'mp4v'), 5, (96, 64))
    for _ in range(2):
        video.write(pixels)
    video.release()
    for name in ('data/labels/train', 'VOC/Annotations', 'labels', 'colour_masks'):
        (folder / name).mkdir(parents=True)
    (folder / 'VOC/ImageSets/Main').mkdir(parents=True)
    (folder / 'VOC/ImageSets/Main/test.txt').write_text('1\n')
    (folder / 'data/classes.txt').write_text('cat #ff0000\n')
    corners = dict(xmin=10, ymin=10, xmax=40, ymax=30)
    inner = ''.join(f'<{name}>{value}</{name}>' for name, value in corners.items())
    voc = f'<annotation><object><name>cat</name><bndbox>{inner}</bndbox></object></annotation>'
    outline = dict(label='cat', points=[[10, 10], [40, 10], [40, 30]], shape_type='polygon')
    for index in range(2):
        (folder / f'data/labels/train/{index}.txt').write_text('0 0.5 0.5 0.25 0.25\n')
        (folder / f'VOC/Annotations/{index}.xml').write_text(voc)
        (folder / f'labels/{index}.json').write_text(json.dumps(dict(shapes=[outline])))
    Image.new('RGB', (96, 64), (255, 0, 0)).save(folder / 'colour_masks/0.png')
    (folder / 'annotations.xml').write_text(
        '<annotations><image name="0.png" width="96" height="64">'
        '<box label="cat" xtl="10" ytl="10" xbr="40" ybr="30"/></image></annotations>'
    )
    old = dict(
        images=[dict(id=1, file_name='0.png')],
        annotations=[dict(id=1, image_id=1, category_id=1, bbox=[10, 10, 30, 20])],
        categories=[dict(id=1, name='cat')],
    )
    (folder / 'old.json').write_text(json.dumps(old))


def write_detector(file: Path) -> None:
    """Random weights of DEIMv2-S as its authors publish theirs."""
    model = Config.fromfile(CONFIGS / 'deim/deimv2-s_vit-t_4xb8-488k_coco.py').model
    model.backbone.init_cfg = None
    with DefaultScope.overwrite_default_scope('mmdet'):
        weights = MODELS.build(model).state_dict()
    file.parent.mkdir(parents=True)
    save_file({k: w.contiguous() for k, w in to_published(weights, 'deimv2').items()}, file)


class FolderHub:
    """The calls of huggingface_hub that the tools use, in a folder."""

    root = Path('hub')

    def create_repo(self, name: str, **settings: object) -> None:
        (self.root / name).mkdir(parents=True)

    def upload_folder(self, *, repo_id: str, folder_path: str) -> str:
        shutil.copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)
        return repo_id

    @classmethod
    def download(cls, name: str, file: str, **settings: object) -> str:
        from huggingface_hub.utils import LocalEntryNotFoundError

        if not (cls.root / name / file).is_file():
            raise LocalEntryNotFoundError(file)
        return str(cls.root / name / file)


@pytest.fixture(scope='module')
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with pictures and labels; a small ViT."""
    folder = tmp_path_factory.mktemp('commands')
    write_shapes(folder / 'shapes', ShapesSettings(train=4, val=4, size=(64, 96)))
    write_shapes(folder / 'scenes', ShapesSettings(train=2, val=2, size=(128, 160)))
    for name, layout in (('rooms', 'depth'), ('fields', 'warm')):
        small = ShapesSettings(train=4, val=2, size=(96, 128), layouts=(layout,))
        write_shapes(folder / name, small)
    write_sources(folder)
    write_detector(folder / 'hub/Intellindust/DEIMv2_DINOv3_S_COCO/model.safetensors')
    (folder / 'configs').symlink_to(CONFIGS)
    truth = json.loads(next(folder.rglob('instances_val2017.json')).read_text())
    truth['images'] = [dict(id=7 + i, file_name=f'{i}.png', height=64, width=96) for i in (0, 1)]
    (folder / 'instances.json').write_text(json.dumps(truth))
    tiny = dict(embed_dims=32, depth=8, num_heads=2)  # half of the blocks in windows
    hub = pytest.importorskip('huggingface_hub')
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(VIT_ARCHS, 'small_test', tiny)
        words = {'small': ('small_test', ''), 'tiny': ('small_test', '')}
        words['large'] = 'small_test', 'work_dirs/adapt'  # the teacher, adapted before
        patch.setattr('rope_dense.project.own.backbones.WORDS', words)
        patch.setattr(hub, 'HfApi', FolderHub)
        patch.setattr(hub, 'hf_hub_download', FolderHub.download)
        patch.chdir(folder)
        yield folder


@pytest.mark.parametrize('page', PAGES)
def test_the_commands_of_a_page_run(
    page: str, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commands(page)
    for words in commands(page):
        name, *given = arguments(words, page)
        if name == 'convert-data':  # which writes nothing over
            for file in glob.glob('data/annotations/*.json'):
                Path(file).unlink()
        monkeypatch.setattr('sys.stdin', io.StringIO('pictures/0.png\n'))
        with DefaultScope.overwrite_default_scope('mmengine'):
            assert command(name.replace('-', '_'))(given) == 0, words
    assert all((workplace / file).is_file() for file in PAGES[page])


def test_the_python_of_the_readme_runs(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the training and the export, with the run of the commands."""
    exported: list[tuple] = []
    monkeypatch.setattr(
        'rope_dense.export.trained.export_model', lambda *given: exported.append(given)
    )
    text = (ROOT / 'README.md').read_text()
    (code,) = re.findall(r'^(model = rope_dense\.load.*?)```', text, re.DOTALL | re.MULTILINE)
    for old, new in IN_PYTHON.items():
        assert old in code
        code = code.replace(old, new)
    names: dict = {'rope_dense': rope_dense}
    exec(code, names)
    assert [row['size'] for row in names['rows']] == ['96', '128']
    ((config, checkpoint, out),) = exported
    assert Path(config).is_file() and Path(checkpoint).is_file() and out == 'model.onnx'
