"""Files and addresses of checkpoints: which are read, which are refused and why."""

import argparse
import http.server
import json
import pickle
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers.small_checkpoints import VIT, load, refusal, saved, vit
from rope_dense.backbones import RoPEViT
from rope_dense.checkpoints import fetch as sources
from rope_dense.checkpoints.read import file_format


def leave_trace(path: str) -> None:
    Path(path).touch()


class Harmful:
    """Runs code when it is unpickled by ordinary means."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple:
        return leave_trace, (str(self.trace),)


def truncated(path: Path, contents: object, **options: bool) -> None:
    torch.save(contents, path, **options)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def an_archive(path: Path) -> None:
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('readme.txt', 'no weights here')


def rotten(path: Path) -> None:
    """One bit of a weight has changed."""
    torch.save(vit(), path)
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)


def quantized(tensor: Tensor) -> Tensor:
    return torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8)


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    'missing': (lambda path: None, 'no such file'),
    'folder': (Path.mkdir, 'a folder'),
    'empty': (Path.touch, 'the file is empty'),
    'web page': (lambda path: path.write_text('\n<!DOCTYPE html><html>'), 'a web page'),
    'LFS pointer': (
        lambda path: path.write_text(
            'version https://git-lfs.github.com/spec/v1\noid sha256:1'
        ),
        'a Git LFS pointer',
    ),
    'text': (
        lambda path: path.write_text('weights and more weights'),
        'it begins with',
    ),
    'cut off': (lambda path: truncated(path, vit()), 'the file is cut off at'),
    'cut off, old format': (
        lambda path: truncated(path, vit(), _use_new_zipfile_serialization=False),
        'damaged, or not a PyTorch checkpoint',
    ),
    'another archive': (an_archive, 'damaged, or not a PyTorch checkpoint'),
    'plain pickle': (
        lambda path: path.write_bytes(pickle.dumps({'a': 1})),
        'not a PyTorch',
    ),
    'whole model': (
        lambda path: torch.save(nn.Linear(2, 2), path),
        'reading torch.nn.',
    ),
    'with a class': (
        lambda path: torch.save({**vit(), 'x': SimpleNamespace()}, path),
        'refused, because reading types.SimpleNamespace could run code',
    ),
    'a list': (lambda path: torch.save([torch.ones(1)], path), 'holds a list'),
    'a rotten byte': (rotten, 'differs from its checksum'),
    'a number for a key': (
        lambda path: torch.save({**vit(), 3: torch.ones(1)}, path),
        'got 3',
    ),
    'sparse': (
        lambda path: torch.save({**vit(), 'x': torch.ones(2, 2).to_sparse()}, path),
        'x is torch.sparse_coo',
    ),
    'quantized': (
        lambda path: torch.save({**vit(), 'x': quantized(torch.ones(2))}, path),
        'x is quantized',
    ),
    'no weights': (lambda path: torch.save({'epoch': 3}, path), 'no weights'),
    'no weights in the model': (
        lambda path: torch.save({'model': {}}, path),
        'no weights',
    ),
    'safetensors cut off': (
        lambda path: path.write_bytes(
            (99).to_bytes(8, 'little') + b'{"cls_token":{"dtype":"F'
        ),
        'safetensors',
    ),
}


@pytest.mark.filterwarnings('ignore:Detected pickle protocol')
@pytest.mark.parametrize('make, message', FILES.values(), ids=FILES)
def test_files_that_are_no_checkpoint(make: Callable, message: str, tmp_path: Path):
    path = tmp_path / 'weights.pth'
    make(path)
    text = refusal(RoPEViT, str(path), **VIT)
    assert text.startswith(str(path)) and message in text


@pytest.mark.parametrize('allowed_elsewhere', [False, True])
def test_no_code_from_a_file_is_run(allowed_elsewhere: bool, tmp_path: Path):
    trace, allowed = tmp_path / 'trace', [leave_trace] if allowed_elsewhere else []
    path = saved({'model': vit(), 'x': Harmful(trace)}, tmp_path)
    with torch.serialization.safe_globals(allowed):
        text = refusal(RoPEViT, path, **VIT)
        assert 'reading test_checkpoint_files.leave_trace could run code' in text
        assert not trace.exists()
        assert set(torch.serialization.get_safe_globals()) >= set(allowed)  # given back
    torch.load(path, weights_only=False)
    assert trace.exists()


# ---------------------------------------------------------------- files that can be used


def test_files_of_training_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No package of the script is needed to read its arguments, configuration and log."""
    yacs = ModuleType('yacs.config')
    yacs.CfgNode = type('CfgNode', (dict,), {'__module__': 'yacs.config'})
    config = yacs.CfgNode(MODEL=yacs.CfgNode(TYPE='swin'))
    config.immutable = True
    contents = {'model': vit(), 'args': argparse.Namespace(lr=0.1), 'config': config}
    contents['log'] = [np.array(['a', 'b']), np.float32(3), np.datetime64('2024-01-01')]
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, 'yacs', ModuleType('yacs'))
        patched.setitem(sys.modules, 'yacs.config', yacs)
        path = saved(contents, tmp_path)
    load(RoPEViT, path, **VIT)


def test_old_format(tmp_path: Path):
    weights = vit()
    torch.save(weights, tmp_path / 'old.pth', _use_new_zipfile_serialization=False)
    model = load(RoPEViT, str(tmp_path / 'old.pth'), **VIT)
    assert torch.equal(model.cls_token, weights['cls_token'])


def test_the_length_of_a_header_is_no_sign_of_a_pickle(tmp_path: Path) -> None:
    """One length in 32 has the first byte of a pickle."""
    safetensors = pytest.importorskip(
        'safetensors.torch', reason='pip install safetensors'
    )
    path, first_bytes = tmp_path / 'model.safetensors', set()
    for length in range(0, 256, 8):
        safetensors.save_file({'a' * (length + 1): torch.zeros(1)}, path)
        first_bytes.add(path.read_bytes()[:1])
        assert file_format(path, str(path)) == 'safetensors'
    assert b'\x80' in first_bytes


def test_safetensors(tmp_path: Path):
    safetensors = pytest.importorskip(
        'safetensors.torch', reason='pip install safetensors'
    )
    weights, path = vit(), tmp_path / 'model.safetensors'
    safetensors.save_file(weights, path)
    model = load(RoPEViT, str(path), **VIT)
    assert torch.equal(model.blocks[1].gamma_1, weights['blocks.1.gamma_1'])
    path.write_bytes(path.read_bytes()[:-10])
    assert 'cut off, or not a safetensors file' in refusal(RoPEViT, str(path), **VIT)


# ---------------------------------------------------------------- downloads


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves ``files``; 'cut' in a path: the connection breaks off half way."""

    files: dict[str, bytes] = {}

    def do_GET(self) -> None:
        body = self.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if 'cut' in self.path else body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(torch.hub, '_hub_dir', str(tmp_path / 'hub'))
    monkeypatch.setenv('no_proxy', '*')
    Handler.files = {}
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as http_server:
        threading.Thread(target=http_server.serve_forever, daemon=True).start()
        yield f'http://127.0.0.1:{http_server.server_port}'
        http_server.shutdown()


def cached(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / 'hub').rglob('*') if path.is_file()]


def test_download_once_and_by_whole_address(server: str, tmp_path: Path):
    expected = {}
    for name in ('/one/pytorch_model.bin', '/two/pytorch_model.bin'):
        expected[name] = vit()
        Handler.files[name] = Path(
            saved({'model': expected[name]}, tmp_path)
        ).read_bytes()
    for _ in range(2):  # the second time from the cache
        for name, weights in expected.items():
            model = load(RoPEViT, server + name, **VIT)
            assert torch.equal(model.cls_token, weights['cls_token'])
        Handler.files = {}
    assert len(cached(tmp_path)) == 2


@pytest.mark.parametrize(
    'name, message',
    [
        ('/cut.pth', 'the file is cut off'),
        ('/page.pth', 'a web page'),
        (
            '/none.pth',
            'the download failed (HTTP Error 404: Not Found). Or download the file',
        ),
    ],
)
def test_failed_downloads_leave_nothing_behind(
    server: str, name: str, message: str, tmp_path: Path
):
    Handler.files['/cut.pth'] = Path(saved(vit(), tmp_path)).read_bytes()
    Handler.files['/page.pth'] = b'<html>log in first</html>'
    text = refusal(RoPEViT, server + name, **VIT)
    assert text.startswith(server + name) and message in text
    assert not cached(tmp_path)


def test_no_connection(server: str, tmp_path: Path):
    assert 'the download failed' in refusal(RoPEViT, 'http://127.0.0.1:1/x.pth', **VIT)


def test_unknown_kind_of_address():
    text = refusal(RoPEViT, 's3://bucket/x.pth', **VIT)
    assert 'give a path, an https address or hf-hub:owner/name' in text


def test_hub_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hub = pytest.importorskip('huggingface_hub', reason='pip install huggingface_hub')
    asked = []

    def download(
        repository: str, file: str, *, revision: str, local_files_only: bool
    ) -> str:
        asked.append((repository, file, revision, local_files_only))
        if file != 'pytorch_model.bin' or repository != 'naver-ai/vit':
            raise hub.utils.EntryNotFoundError('not in this repository')
        return saved({'model': vit()}, tmp_path)

    monkeypatch.setattr(hub, 'hf_hub_download', download)
    load(RoPEViT, 'hf-hub:naver-ai/vit@v1', **VIT)
    assert asked == [
        ('naver-ai/vit', file, 'v1', False) for file in sources.SINGLE_FILES
    ]
    text = refusal(RoPEViT, 'hf-hub:naver-ai/other', **VIT)
    listed = ', '.join(sources.HUB_FILES)
    assert text.startswith(
        f'hf-hub:naver-ai/other: {listed}: not in this repository. Or download'
    )
    monkeypatch.setitem(sys.modules, 'huggingface_hub', None)
    assert 'pip install huggingface_hub' in refusal(
        RoPEViT, 'hf-hub:naver-ai/vit', **VIT
    )


@pytest.mark.parametrize('cached', [False, True])
def test_hub_without_a_network_is_asked_once(
    cached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each question takes 24 seconds of retries then; the other names may be in the cache."""
    hub = pytest.importorskip('huggingface_hub', reason='pip install huggingface_hub')
    online = []

    def download(
        repository: str, file: str, *, local_files_only: bool, **options: object
    ) -> str:
        if not local_files_only:
            online.append(file)
        if cached and file == 'model.pt':
            return saved({'model': vit()}, tmp_path)
        raise hub.utils.LocalEntryNotFoundError('no connection\nand more about it')

    monkeypatch.setattr(hub, 'hf_hub_download', download)
    if cached:
        load(RoPEViT, 'hf-hub:naver-ai/vit', **VIT)
    else:
        text = refusal(RoPEViT, 'hf-hub:naver-ai/vit', **VIT)
        assert text.startswith(
            'hf-hub:naver-ai/vit: model.safetensors: no connection. Or download'
        )
        assert 'model.backbone.init_cfg.checkpoint=PATH' in text
        assert 'without weights: model.backbone.init_cfg=None' in text
    assert online == ['model.safetensors']


def hub_cache(folder: Path, repository: str) -> Path:
    """The folder of a repository's files as huggingface_hub leaves them behind."""
    root = folder / 'hub' / f'models--{repository.replace("/", "--")}'
    snapshot = root / 'snapshots' / ('0' * 40)
    snapshot.mkdir(parents=True)
    (root / 'refs').mkdir()
    (root / 'refs' / 'main').write_text('0' * 40)
    return snapshot


def test_hub_in_offline_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """huggingface_hub itself: what was downloaded is read, what was not is an error."""
    hub = pytest.importorskip('huggingface_hub', reason='pip install huggingface_hub')
    monkeypatch.setattr(
        hub.constants, 'HF_HUB_CACHE', str(tmp_path / 'hub')
    )  # as by HF_HOME
    monkeypatch.setattr(hub.constants, 'HF_HUB_OFFLINE', True)
    weights = vit()
    torch.save(
        {'model': weights}, hub_cache(tmp_path, 'naver-ai/vit') / 'pytorch_model.bin'
    )
    snapshot = hub_cache(tmp_path, 'naver-ai/parts')
    in_parts(weights, snapshot).rename(snapshot / 'pytorch_model.bin.index.json')
    torch.save(
        {'backbone': weights}, hub_cache(tmp_path, 'naver-ai/model') / 'model.pt'
    )
    for name in ('vit', 'parts', 'model'):
        model = load(RoPEViT, f'hf-hub:naver-ai/{name}', **VIT)
        assert torch.equal(model.cls_token, weights['cls_token'])
    missing = refusal(RoPEViT, 'hf-hub:naver-ai/another', **VIT)
    assert (
        missing.startswith('hf-hub:naver-ai/another: ') and 'give its path' in missing
    )


# ---------------------------------------------------------------- several files


def in_parts(weights: dict[str, Tensor], folder: Path) -> Path:
    """The weights in two files, and their index."""
    index = {key: f'part-{number % 2}.bin' for number, key in enumerate(weights)}
    for name in set(index.values()):
        torch.save(
            {key: weights[key] for key in weights if index[key] == name}, folder / name
        )
    path = folder / 'weights.index.json'
    path.write_text(json.dumps({'metadata': {}, 'weight_map': index}))
    return path


def test_weights_in_several_files(tmp_path: Path):
    weights = vit()
    path = in_parts(weights, tmp_path)
    model = load(RoPEViT, str(path), **VIT)
    assert torch.equal(model.cls_token, weights['cls_token'])
    assert torch.equal(model.blocks[2].gamma_2, weights['blocks.2.gamma_2'])


def change_index(path: Path, **entries: str) -> None:
    index = json.loads(path.read_text())
    index['weight_map'] |= entries
    path.write_text(json.dumps(index))


PARTS: dict[str, tuple[Callable[[Path], object], str]] = {
    'a part missing': (
        lambda path: (path.parent / 'part-1.bin').unlink(),
        'part-1.bin: no such',
    ),
    'a part cut off': (
        lambda path: truncated(path.parent / 'part-0.bin', vit()),
        'part-0.bin: the file is cut off',
    ),
    'a weight missing': (
        lambda path: change_index(path, norm_of='part-1.bin'),
        'lack 1 of the weights that it lists, such as norm_of',
    ),
    'a part elsewhere': (
        lambda path: change_index(path, x='../x.bin'),
        'not beside it: ../x.bin',
    ),
    'an index of itself': (
        lambda path: change_index(path, x=path.name),
        'names weights.index.json, which are indices',
    ),
    'a weight in another file': (
        lambda path: change_index(path, cls_token='part-1.bin', pos='part-0.bin'),
        'part-0.bin has weights that the index does not place there, cls_token;',
    ),
    'a weight that is not listed': (
        lambda path: torch.save({'other': torch.ones(1)}, path.parent / 'part-1.bin'),
        'part-1.bin has weights that the index does not place there, other;',
    ),
    'deep nesting': (
        lambda path: path.write_text('{"weight_map": ' + '[' * 100_000),
        'not an index of weights (RecursionError',
    ),
    'no index': (
        lambda path: path.write_text('{}'),
        'not an index of weights (KeyError',
    ),
    'a web page': (lambda path: path.write_text('<html>'), 'not an index of weights'),
}


@pytest.mark.parametrize('damage, message', PARTS.values(), ids=PARTS)
def test_damaged_weights_in_several_files(
    damage: Callable, message: str, tmp_path: Path
):
    path = in_parts(vit(), tmp_path)
    damage(path)
    text = refusal(RoPEViT, str(path), **VIT)
    assert text.startswith(str(path)) and message in text
