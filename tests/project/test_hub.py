"""A model goes to a hub and comes back by its name: a folder stands for the hub."""

import shutil
from pathlib import Path

import mmcv
import numpy as np
import pytest
import torch
from mmengine.config import Config

from helpers.small_configs import make_data, small_config
from rope_dense.data.generated import METAINFO
from rope_dense.project.checks.data import check_data
from rope_dense.project.hub import load_from_hub, push_to_hub
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model
from rope_dense.utils.errors import UsageError
from rope_dense.utils.results import RECORD
from rope_dense_command import command

pytestmark = pytest.mark.usefixtures('surroundings')
NAME = 'somebody/shapes'


class FolderHub:
    """The two calls of HfApi, and the download of a file, in a folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.private = root, None

    def create_repo(self, name: str, *, private: bool, exist_ok: bool) -> None:
        assert exist_ok
        self.private = private
        (self.root / name).mkdir(parents=True, exist_ok=True)

    def upload_folder(self, *, repo_id: str, folder_path: str) -> str:
        shutil.copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)
        return f'https://hub/{repo_id}/commit/1'

    def download(self, name: str, file: str, **settings: object) -> str:
        from huggingface_hub.utils import LocalEntryNotFoundError

        path = self.root / name / file
        if not path.is_file():
            raise LocalEntryNotFoundError(f'no {file}')
        return str(path)


@pytest.mark.parametrize('task', ['dino_vitdet_rope_mixed', 'upernet_vit_rope_mixed'])
def test_what_comes_back_predicts_the_same(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip('huggingface_hub')
    config = small_config(task, make_data(tmp_path / 'data'), tmp_path)
    cfg = Config.fromfile(config)
    model = random_model(cfg).eval()
    checkpoint = tmp_path / 'a.pth'
    torch.save(dict(state_dict=model.state_dict()), checkpoint)
    main = command('push_to_hub')
    folder, arguments = tmp_path / 'files', [str(config), str(checkpoint), NAME]
    options = ['--license', 'mit', '--metric', 'box AP=0.5', '--folder', str(folder)]
    assert main([*arguments, *options]) == 0
    text = ''.join((folder / name).read_text() for name in ('config.json', 'README.md'))
    assert (
        str(tmp_path) not in text
        and 'license: mit' in text
        and '| box AP | 0.5 |' in text
    )
    assert f'rope-dense predict hf-hub:{NAME}' in text
    assert f"rope_dense.load('hf-hub:{NAME}')" in text
    modes = {path.stat().st_mode for path in folder.iterdir()}
    assert modes == {config.stat().st_mode}  # by the umask
    with pytest.raises(UsageError, match='stored without data to test on'):
        check_data(load_config(str(folder)), ('test_dataloader',))

    server = FolderHub(tmp_path / 'hub')
    assert push_to_hub(folder, NAME, private=True, api=server).endswith('commit/1')
    assert server.private
    monkeypatch.setattr(hub, 'hf_hub_download', server.download)
    back = load_from_hub(f'hf-hub:{NAME}')
    assert back.state_dict().keys() == model.state_dict().keys()
    assert back.dataset_meta['classes'][-6:] == METAINFO['classes']
    image = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    if cfg.default_scope == 'mmdet':
        from mmdet.apis import inference_detector

        model.cfg = cfg
        given, expected = (
            inference_detector(m, image).pred_instances for m in (back, model)
        )
        torch.testing.assert_close(given.bboxes, expected.bboxes)
        torch.testing.assert_close(given.scores, expected.scores)
    else:
        from mmseg.apis import inference_model

        model.cfg = cfg
        cfg.test_pipeline = cfg.test_dataloader.dataset.pipeline
        given, expected = (
            inference_model(m, image).seg_logits.data for m in (back, model)
        )
        torch.testing.assert_close(given, expected)

    mmcv.imwrite(image, str(tmp_path / 'a.png'))
    predict = command('predict')
    results = []
    for model_name in (
        [f'hf-hub:{NAME}'],
        [str(folder)],
        [str(config), str(checkpoint)],
    ):
        out = tmp_path / f'predicted_{len(results)}'
        given = [
            *model_name,
            str(tmp_path / 'a.png'),
            '--out',
            str(out),
            '--score',
            '0.01',
        ]
        assert predict(given) == 0
        files = [p for p in out.rglob('*') if p.is_file() and p.name != RECORD]
        results.append({p.relative_to(out): p.read_bytes() for p in files})
    assert results[0] == results[1] == results[2] and len(results[0]) == 2

    predict_large = command('predict_large')
    ending = '.json' if cfg.default_scope == 'mmdet' else '.png'
    outs = [tmp_path / f'large_{index}{ending}' for index in range(2)]
    for out, model_name in zip(
        outs, ([str(folder)], [str(config), str(checkpoint)]), strict=True
    ):
        assert (
            predict_large([*model_name, str(tmp_path / 'a.png'), '--out', str(out)])
            == 0
        )
    assert outs[0].read_bytes() == outs[1].read_bytes()


@pytest.mark.slow
def test_what_comes_back_is_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_config(
        'upernet_vit_rope_mixed', make_data(tmp_path / 'data'), tmp_path
    )
    model = random_model(Config.fromfile(config))
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'best_mIoU.pth')
    folder, out = tmp_path / 'files', tmp_path / 'a.pt2'
    push = command('push_to_hub')
    assert push([str(tmp_path), NAME, '--folder', str(folder)]) == 0  # of a run
    export = command('export')
    assert export([str(folder), str(out), '--size', '64x64', '--batch', '1']) == 0
    assert METAINFO['classes'][0] in capsys.readouterr().out and out.is_file()


def test_a_config_needs_a_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = command('predict')
    (tmp_path / 'a.py').write_text(
        "default_scope = 'mmdet'\nmodel = dict(type='DINO')\n"
    )
    assert main([str(tmp_path / 'a.py'), str(tmp_path)]) == 2
    assert 'give its checkpoint, too, or the folder of a run' in capsys.readouterr().err


@pytest.mark.parametrize(
    'arguments, says',
    [
        (['nowhere.py', 'a.pth', 'shapes'], 'argument name: shapes: give OWNER/NAME'),
        (
            ['nowhere.py', NAME, '--metric', 'AP'],
            "argument --metric: invalid metric value: 'AP'",
        ),
        (['nowhere.py', NAME, '--folder', '.'], '. is not empty'),
    ],
)
def test_wrong_requests(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command('push_to_hub')(arguments)
    assert says in capsys.readouterr().err
