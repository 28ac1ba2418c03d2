"""The programs of docs/clients find the boxes that ONNX Runtime in Python finds."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.exported import run, session
from helpers.exported_models import shallow
from rope_dense.export import export
from rope_dense.export.exporter import graph_for

CLIENTS = Path(__file__).resolve().parents[2] / 'docs' / 'clients'
RESIZE = dict(scale=[96, 64], keep_ratio=True, antialias=True)
OPTIONS: dict[str, Any] = dict(resize=RESIZE, resize_inside=True, rgb=True, top=20)
NAMES = [f'class {letter}' for letter in 'abcdefg']
COLOURS = [
    (255, 0, 0),
    (0, 255, 0),
    (0, 0, 255),
    (255, 255, 0),
    (0, 255, 255),
    (255, 0, 255),
]
SECONDS = 300  # of a program, on a busy machine
pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clients beside model.onnx and picture.png, which has a model of its own."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp('clients')
    noise = np.random.default_rng(0).integers(0, 256, (11, 15, 3), np.uint8)
    Image.fromarray(noise).resize((150, 110), Image.BICUBIC).save(
        folder / 'picture.png'
    )
    model = shallow(divisor=32)
    with torch.no_grad():
        options = dict(rgb=True, top=20, score=None, resized=OPTIONS['resize'])
        scores = graph_for(model, options)(image_of(folder))[0][0]
    middle = float(scores[9:11].mean())  # between two of them
    colours = [*COLOURS, (255, 255, 255)]
    export(
        model,
        folder / 'model.onnx',
        classes=NAMES,
        colours=colours,
        score=middle,
        **OPTIONS,
    )
    for client in CLIENTS.iterdir():
        shutil.copy(client, folder)
    return folder


def image_of(folder: Path) -> torch.Tensor:
    picture = np.asarray(Image.open(folder / 'picture.png'))
    return torch.from_numpy(picture.copy()).permute(2, 0, 1)[None]


@pytest.fixture
def modules(folder: Path) -> None:
    """The packages of npm beside the clients."""
    needed = ('onnxruntime-node', 'onnxruntime-web', 'sharp')
    place = Path(os.environ.get('NODE_MODULES', ''))
    if missing := [name for name in needed if not (place / name).exists()]:
        pytest.skip(
            f'NODE_MODULES names no folder of node_modules with {", ".join(missing)}'
        )
    if not (folder / 'node_modules').exists():
        (folder / 'node_modules').symlink_to(place.resolve())


def assert_expected(text: str, folder: Path) -> np.ndarray:
    """Lines of names, scores and boxes are right; returns the boxes."""
    scores, boxes, labels = (
        x[0] for x in run(session(folder / 'model.onnx'), image_of(folder))
    )
    lines = [line.split('\t') for line in text.splitlines()]
    assert len(lines) == len(scores) == 10
    assert [line[0] for line in lines] == [NAMES[label] for label in labels]
    numbers = np.array([line[1:] for line in lines], float)
    np.testing.assert_allclose(numbers[:, 0], scores, atol=1e-3)
    np.testing.assert_allclose(numbers[:, 1:], boxes, atol=0.1)
    assert np.ptp(boxes.numpy()) > 50
    return boxes.numpy()


def output(folder: Path, *command: str) -> str:
    arguments = [*command, 'model.onnx', 'picture.png']
    done = subprocess.run(
        arguments,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_python_with_openvino(folder: Path) -> None:
    pytest.importorskip('openvino', reason="pip install 'rope_dense[export-check]'")
    assert_expected(output(folder, sys.executable, 'detect.py'), folder)


@pytest.mark.skipif(not shutil.which('node'), reason='no node')
@pytest.mark.usefixtures('modules')
def test_node(folder: Path) -> None:
    assert_expected(output(folder, 'node', 'detect.mjs'), folder)
    about = json.loads((folder / 'model.json').read_text())
    (folder / 'bgr.json').write_text(json.dumps(about | dict(rgb=False)))
    refused = subprocess.run(
        ['node', 'detect.mjs', 'bgr.onnx', 'picture.png'],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (
        refused.returncode and 'export the model with --resize --rgb' in refused.stderr
    )


USER = """<iframe src="page.html"></iframe>
<script type="module">
const frame = document.querySelector('iframe');
const until = async text => {
  for (;;) {
    const page = frame.contentDocument;
    if (page?.querySelector('output')?.value.match(text)) return page;
    await new Promise(done => setTimeout(done, 50));
  }
};
const page = await until('choose'), input = page.querySelector('input');
const chosen = new DataTransfer();
chosen.items.add(new File([await (await fetch('picture.png')).blob()], 'picture.png'));
input.files = chosen.files;
input.dispatchEvent(new Event('change'));
await until('detections');
const found = [page.querySelector('pre').textContent, page.querySelector('canvas').toDataURL()];
await fetch('found', { method: 'POST', body: JSON.stringify(found) });
</script>
"""


class Handler(SimpleHTTPRequestHandler):
    """Serves the files of a folder, and puts what is posted into a queue."""

    def __init__(self, *given: Any, posted: Queue, **settings: Any) -> None:
        self.posted = posted
        super().__init__(*given, **settings)

    def do_POST(self) -> None:
        self.posted.put(
            json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        )
        self.send_response(204)
        self.end_headers()

    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture
def posted(folder: Path, tmp_path: Path) -> Iterator[Queue]:
    """What a browser posts after a user has chosen the picture in the page."""
    browser = shutil.which('chromium') or shutil.which('google-chrome')
    if browser is None:
        pytest.skip('no chromium and no google-chrome')
    (folder / 'user.html').write_text(USER)
    queue: Queue = Queue()
    handler = partial(Handler, directory=str(folder), posted=queue)
    server = ThreadingHTTPServer(('127.0.0.1', 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f'http://127.0.0.1:{server.server_port}/user.html'
    flags = [
        '--headless',
        '--no-sandbox',
        '--disable-gpu',
        f'--user-data-dir={tmp_path}',
    ]
    with (tmp_path / 'log').open('w') as log:
        process = subprocess.Popen([browser, *flags, address], stdout=log, stderr=log)
        try:
            yield queue
        finally:
            process.terminate()
            process.wait(60)
            server.shutdown()
            server.server_close()


@pytest.mark.usefixtures('modules')
def test_a_browser(folder: Path, posted: Queue) -> None:
    text, canvas = posted.get(timeout=SECONDS)
    boxes = assert_expected(text, folder)
    drawn = Image.open(io.BytesIO(base64.b64decode(canvas.partition(',')[2]))).convert(
        'RGB'
    )
    changed = np.asarray(drawn) != np.asarray(Image.open(folder / 'picture.png'))
    assert changed.shape == (110, 150, 3)
    for left, top, _, bottom in boxes:
        column, row = np.clip([left, (top + bottom) / 2], 0, [149, 109]).astype(int)
        assert changed[row, max(column - 1, 0) : column + 2].any()
