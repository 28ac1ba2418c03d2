"""Files that are no checkpoints, or not of this model: refused before anything begins."""

import re
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

from helpers.tool_names import Fails, Main
from rope_dense_command import command


def test_missing_checkpoints(
    train: Main, test: Main, detector: str, fails: Fails, tmp_path: Path
) -> None:
    fails(test, detector, 'x.pth', says=["checkpoint 'x.pth': no such file"])
    fails(test, detector, str(tmp_path), says=[f"checkpoint '{tmp_path}': a folder"])
    fails(
        train, detector, '--resume', 'x.pth', says=["checkpoint 'x.pth': no such file"]
    )
    options = ['--cfg-options', 'load_from=x.pth']
    fails(train, detector, *options, says=["load_from 'x.pth': no such file"])
    options = ['--cfg-options', 'model.neck.1.init_cfg.type=Pretrained']
    options += ['model.neck.1.init_cfg.checkpoint=x.pth']
    fails(train, detector, *options, says=["model.neck.1.init_cfg.checkpoint 'x.pth'"])
    options = ['--cfg-options', 'model.neck.1.init_cfg.type=Pretrained']
    fails(
        train,
        detector,
        *options,
        says=['checkpoint must be a path or an address, got None'],
    )
    fails(train, detector, *pretrained('5'), says=['a path or an address, got 5'])
    options = [*pretrained('x.pth'), 'model.backbone.init_cfg.map_location=cpu']
    fails(train, detector, *options, says=['model: ', "init_cfg has ['map_location']"])


def test_pretrained_weights_of_another_backbone(
    train: Main, segmentor: str, fails: Fails
) -> None:
    options = ['--cfg-options', 'model.pretrained=open-mmlab://resnet50_v1c']
    says = ["model.pretrained='open-mmlab://resnet50_v1c'", 'set model.pretrained=None']
    assert 'backbone from random values' not in fails(
        train, segmentor, *options, says=says
    )


def test_pretrained_weights_that_cannot_be_downloaded(
    train: Main,
    detector: str,
    tmp_path: Path,
    unused_port: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'torch'))
    options = [*own_names('no_download'), 'model.neck.1.init_cfg.type=Pretrained']
    options += [
        f'model.neck.1.init_cfg.checkpoint=http://127.0.0.1:{unused_port}/x.pth'
    ]
    work_dir = str(tmp_path / 'work')
    assert train([detector, '--work-dir', work_dir, '--cfg-options', *options]) == 2
    message = capsys.readouterr().err
    assert 'the download failed' in message and 'give its path' in message
    assert 'Traceback' not in message


def test_addresses_that_cannot_be_reached(
    train: Main,
    test: Main,
    detector: str,
    fails: Fails,
    tmp_path: Path,
    unused_port: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'torch'))
    address = f'http://127.0.0.1:{unused_port}/x.pth'
    fails(test, detector, address, says=[f'error: {address}: the download failed'])
    assert not list((tmp_path / 'torch').rglob('*.pth*'))


def test_last_checkpoint_that_is_gone(
    train: Main, detector: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / 'last_checkpoint').write_text('moved/iter_1.pth')
    assert train([detector, '--resume', '--work-dir', str(tmp_path)]) == 2
    assert "--resume 'moved/iter_1.pth': no such file" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ['last_checkpoint']


class RunsCode:
    def __init__(self, evidence: Path) -> None:
        self.evidence = evidence

    def __reduce__(self) -> tuple:
        return Path.touch, (self.evidence,)


class ReadsAttribute:
    def __reduce__(self) -> tuple:
        return getattr, (torch.FloatStorage, 'from_file')


@pytest.mark.parametrize(
    'content, says',
    [
        (b'<!DOCTYPE html><html>', ['a web page, not a checkpoint', 'DOCTYPE']),
        (b'version https://git-lfs', ['a Git LFS pointer']),
        (b'', ['the file is empty']),
        (
            b'\x80\x02}q\x00.',
            ['not a PyTorch checkpoint'],
        ),  # a pickle, but not of PyTorch
        ([1, 2], ['holds a list, a checkpoint is a dict']),
        (
            dict(model=dict(w=torch.zeros(1))),
            ["under 'state_dict'", 'the file has model'],
        ),
        (dict(x=nn.Linear(1, 1)), ['refused', 'torch.nn.modules.linear.Linear']),
        (dict(x=ReadsAttribute()), ['refused', "'from_file'"]),
    ],
)
def test_files_that_are_no_checkpoints(
    test: Main,
    detector: str,
    fails: Fails,
    tmp_path: Path,
    content: object,
    says: list[str],
) -> None:
    path = tmp_path / 'x.pth'
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    fails(test, detector, str(path), says=[str(path), *says])


WAYS = {
    'test': ['CONFIG', 'FILE'],
    'predict': ['CONFIG', 'FILE', 'IMAGE'],
    'eval_resolutions': ['CONFIG', 'FILE', '--sizes', '64'],
    'train --resume': ['CONFIG', '--resume', 'FILE'],
    'train --load-from': ['CONFIG', '--load-from', 'FILE'],
    'train init_cfg': [
        'CONFIG', '--cfg-options', 'model.backbone.init_cfg._delete_=True',
        'model.backbone.init_cfg.type=Pretrained', 'model.backbone.init_cfg.checkpoint=FILE',
    ],
    'convert_checkpoint': ['FILE', 'OUT'],
}  # fmt: skip


@pytest.mark.parametrize('way', WAYS)
def test_checkpoint_that_would_run_code(
    way: str, detector: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, evidence = tmp_path / 'x.pth', tmp_path / 'evidence'
    torch.save(dict(state_dict=dict(w=torch.zeros(1)), x=RunsCode(evidence)), path)
    Image.new('RGB', (64, 64)).save(tmp_path / 'a.png')
    given = dict(CONFIG=detector, FILE=str(path), IMAGE=str(tmp_path / 'a.png'))
    given['OUT'] = str(tmp_path / 'out.pth')
    arguments = [
        re.sub('|'.join(given), lambda found: given[found[0]], x) for x in WAYS[way]
    ]
    name = way.split()[0]
    work = (
        [] if name == 'convert_checkpoint' else ['--work-dir', str(tmp_path / 'work')]
    )
    assert command(name)([*arguments, *work]) == 2
    message = capsys.readouterr().err
    assert 'refused' in message and 'could run code' in message and 'pathlib' in message
    assert 'Traceback' not in message and not evidence.exists()
    torch.load(path, weights_only=False)
    assert evidence.exists()  # what was refused


def test_checkpoint_that_is_cut_off(
    test: Main, detector: str, weights: str, fails: Fails, tmp_path: Path
) -> None:
    content = Path(weights).read_bytes()
    (tmp_path / 'x.pth').write_bytes(content[: len(content) // 2])
    fails(
        test,
        detector,
        str(tmp_path / 'x.pth'),
        says=['the file is cut off', 'get it again'],
    )


def test_checkpoint_of_another_model(
    test: Main,
    detector: str,
    segmentor: str,
    weights: str,
    fails: Fails,
    tmp_path: Path,
) -> None:
    says = ['does not fit the config', 'it lacks', 'neck.upsample_4x.*.weight']
    fails(test, segmentor, weights, says=says)
    state = torch.load(weights)['state_dict']
    del state['backbone.patch_embed.proj.bias']
    torch.save(dict(state_dict=state), tmp_path / 'lacks.pth')
    says = ['it lacks 1 weights, such as backbone.patch_embed.proj.bias']
    fails(test, detector, str(tmp_path / 'lacks.pth'), says=says)
    options = ['--cfg-options', 'model.num_queries=11']
    says = ['size mismatch for query_embedding.weight', '--cfg-options']
    fails(test, detector, weights, *options, says=says)


def test_resume_from_weights_alone(
    train: Main, detector: str, weights: str, fails: Fails
) -> None:
    says = ['no meta, message_hub, optimizer', f'--cfg-options load_from={weights}']
    fails(train, detector, '--resume', weights, says=says)


def own_names(name: str) -> list[str]:
    """Options for runs that begin: mmengine keeps loggers and visualizers by name."""
    return [f'experiment_name={name}', f'visualizer.name={name}']


def pretrained(checkpoint: str) -> list[str]:
    """Options for pre-trained weights in the backbone; init_cfg is None in the small configs."""
    key = 'model.backbone.init_cfg'
    options = [
        f'{key}._delete_=True',
        f'{key}.type=Pretrained',
        f'{key}.checkpoint={checkpoint}',
    ]
    return ['--cfg-options', *options]


def test_pretrained_backbone_that_cannot_be_read(
    train: Main, detector: str, fails: Fails, tmp_path: Path
) -> None:
    fails(
        train,
        detector,
        *pretrained('x.pth'),
        says=['init_cfg.checkpoint', 'no such file'],
    )
    (tmp_path / 'page.pth').write_text('<html>')
    options = pretrained(str(tmp_path / 'page.pth'))
    fails(
        train,
        detector,
        *options,
        says=['model.backbone.init_cfg.checkpoint', 'a web page'],
    )


def test_pretrained_backbone_of_another_size(
    train: Main,
    detector: str,
    weights: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Known only when training initialises the model, which does not read the file again."""
    reads: list[str] = []
    load, test = torch.load, zipfile.ZipFile.testzip
    monkeypatch.setattr(
        torch, 'load', lambda path, **kw: reads.append('load') or load(path, **kw)
    )
    monkeypatch.setattr(
        zipfile.ZipFile, 'testzip', lambda file: reads.append('sum') or test(file)
    )
    shutil.copy(weights, tmp_path / 'own.pth')
    path = str(tmp_path / 'own.pth')
    options = [*pretrained(path), 'model.backbone.arch.depth=3', *own_names('misfit')]
    assert train([detector, '--work-dir', str(tmp_path / 'work'), *options]) == 2
    message = capsys.readouterr().err
    assert f'error: {path}' in message and 'does not fit RoPEViT' in message
    assert 'Traceback' not in message
    assert sorted(reads) == ['load', 'sum']


def test_training_that_starts_without_weights(
    train: Main, detector: str, fails: Fails, tmp_path: Path
) -> None:
    """As the error of a failed download says; the next error shows that the option was taken."""
    options = [*pretrained('x.pth'), 'load_from=y.pth', 'model.backbone.init_cfg=None']
    fails(train, detector, *options, says=["load_from 'y.pth': no such file"])
