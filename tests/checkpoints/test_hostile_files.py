"""Files made to harm or damaged at random: one CheckpointError each, and nothing changed."""

import io
import os
import re
import resource
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from helpers.small_checkpoints import VIT, Weights, load, refusal, saved, vit
from rope_dense.backbones import RoPEViT
from rope_dense.checkpoints import CheckpointError
from rope_dense.checkpoints import read as reader
from rope_dense.checkpoints.errors import MAX_LENGTH, keys_text
from rope_dense.checkpoints.read import read_ahead, read_checkpoint

SMALL = {'a': torch.arange(6.0).reshape(2, 3), 'b': torch.ones(4), 'c': torch.arange(3)}
FUZZED = 60  # files of each format
SEED = 20260


def with_pickle(path: Path, pickled: bytes) -> None:
    """The file, with another pickle in it."""
    archive = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    with zipfile.ZipFile(path, 'w') as changed:
        for name in archive.namelist():
            changed.writestr(
                name, pickled if name.endswith('data.pkl') else archive.read(name)
            )


def with_key(key: bytes, *, is_archive: bool = True) -> Callable[[Path], None]:
    """A function that writes a file whose dict has a key with this pickle."""

    def write(path: Path) -> None:
        torch.save(
            {'a': torch.ones(2)}, path, _use_new_zipfile_serialization=is_archive
        )
        pickled = b'\x80\x02}' + key + b'K\x01s.'
        if is_archive:
            with_pickle(path, pickled)
        else:
            before, *_ = path.read_bytes().partition(b'}q\x00X\x01\x00\x00\x00aq\x01')
            path.write_bytes(before + pickled[2:])

    return write


NEST = b')' + b'\x85' * 200_000  # () in 200,000 tuples
DOUBLED = b')' + b''.join(
    b'q%ch%c\x86' % (i, i) for i in range(60)
)  # (x, x) of x, 60 times


def compressed(path: Path) -> None:
    torch.save(vit(), path)
    archive = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as changed:
        for name in archive.namelist():
            changed.writestr(name, archive.read(name))


def with_weight(key: str, weight: Tensor) -> Callable[[Path], None]:
    return lambda path: torch.save({**vit(), key: weight}, path)


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    'nested tensor': (
        with_weight('x', torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])),
        'x is nested; save dense tensors',
    ),
    'without values': (
        with_weight('cls_token', torch.ones(1, 1, 64, device='meta')),
        'without values (on the meta device): cls_token',
    ),
    'packed float4': (
        with_weight(
            'cls_token', torch.ones(1, 1, 64).byte().view(torch.float4_e2m1fn_x2)
        ),
        'cls_token is torch.float4_e2m1fn_x2; save float32',
    ),
    'a tuple for a key': (with_key(b'))\x86\x85'), 'the file has a tuple'),
    'a deeply nested key': (with_key(NEST), 'more than 10,000 tuples'),
    'the same in the old format': (
        with_key(NEST, is_archive=False),
        'more than 10,000 tuples',
    ),
    'a key of 2 ** 60 tuples': (with_key(DOUBLED), 'more than 10,000 tuples'),
    'a compressed archive': (compressed, 'a compressed archive'),
}


@pytest.mark.filterwarnings('ignore:The PyTorch API of nested tensors')
@pytest.mark.parametrize('make, message', FILES.values(), ids=FILES)
def test_refused(make: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    path = tmp_path / 'weights.pth'
    make(path)
    text = refusal(RoPEViT, str(path), **VIT)
    assert text.startswith(str(path))
    assert message in text


@pytest.mark.skipif(
    not os.path.isfile('/proc/self/mem'), reason='needs a file that fails to read'
)
def test_a_file_that_cannot_be_read() -> None:
    with pytest.raises(
        CheckpointError, match=r'^x: cannot be read \(Input/output error\)$'
    ):
        read_checkpoint('/proc/self/mem', 'x')


@pytest.mark.parametrize(
    'dtype', [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz]
)
def test_float8_is_loaded_as_its_values(dtype: torch.dtype, tmp_path: Path) -> None:
    weights = {key: x.to(dtype) if 'qkv' in key else x for key, x in vit().items()}
    model = load(RoPEViT, saved(weights, tmp_path), **VIT)
    key = 'blocks.1.attn.qkv.weight'
    assert torch.equal(model.state_dict()[key], weights[key].float())
    weights[key] = torch.full_like(weights[key], torch.nan)
    assert 'not finite (NaN or infinite): ' + key in refusal(
        RoPEViT, saved(weights, tmp_path), **VIT
    )


# ---------------------------------------------------------------- memory and time


def test_expanded_tensors_fill_no_memory(tmp_path: Path) -> None:
    """Each takes a few bytes of the file and would take 0.9 GB of memory."""
    one = torch.ones(1)
    for key in ('cls_token', 'blocks.0.attn.qkv.weight', 'freqs'):
        path = saved({**vit(), key: one.expand(15_000, 15_000)}, tmp_path)
        before, start = (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            time.monotonic(),
        )
        assert 'save contiguous tensors' in refusal(RoPEViT, path, **VIT)
        assert (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
        )  # KiB
        assert time.monotonic() - start < 10


def test_values_are_read_after_the_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Tensor] = []
    isfinite = Tensor.isfinite
    monkeypatch.setattr(Tensor, 'isfinite', lambda x: seen.append(x) or isfinite(x))
    weights = vit()
    assert 'missing' in refusal(
        RoPEViT,
        saved({key: x for key, x in weights.items() if key != 'cls_token'}, tmp_path),
        **VIT,
    )
    assert not seen
    load(RoPEViT, saved(weights, tmp_path), **VIT)
    assert len(seen) == len(RoPEViT(**VIT).state_dict())


def test_small_expanded_tensors_are_used(tmp_path: Path) -> None:
    weights = vit()
    weights['blocks.0.norm1.weight'] = torch.full((1,), 0.5).expand(64)
    model = load(RoPEViT, saved(weights, tmp_path), **VIT)
    assert (model.blocks[0].norm1.weight == 0.5).all()


# ---------------------------------------------------------------- threads


def test_threads_leave_the_allow_list_as_it_was(tmp_path: Path) -> None:
    good = saved({'model': SMALL}, tmp_path)
    bad = str(tmp_path / 'bad.pth')
    torch.save({'x': Path}, bad)
    before = set(torch.serialization.get_safe_globals())
    errors: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(40):
                read_checkpoint(good, 'good')
                with pytest.raises(CheckpointError, match='could run code'):
                    read_checkpoint(bad, 'bad')
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert set(torch.serialization.get_safe_globals()) == before


# ---------------------------------------------------------------- once in a run


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Number of times that files were verified and read."""
    counts = {'verified': 0, 'read': 0}
    testzip, torch_load = zipfile.ZipFile.testzip, torch.load

    def count(name: str, function: Callable) -> Callable:
        def counted(*args: object, **options: object) -> object:
            counts[name] += 1
            return function(*args, **options)

        return counted

    monkeypatch.setattr(zipfile.ZipFile, 'testzip', count('verified', testzip))
    monkeypatch.setattr(torch, 'load', count('read', torch_load))
    return counts


def test_a_file_is_verified_once(opened: dict[str, int], tmp_path: Path) -> None:
    path = Path(saved(SMALL, tmp_path))
    for _ in range(3):
        read_checkpoint(str(path), 'x')
    assert opened == {'verified': 1, 'read': 3}
    contents = bytearray(path.read_bytes())
    contents[contents.index(SMALL['b'].numpy().tobytes())] ^= 1
    path.write_bytes(contents)  # another time of the same size
    with pytest.raises(CheckpointError, match='differs from its checksum'):
        read_checkpoint(str(path), 'x')
    assert opened['verified'] == 2


def test_a_file_is_verified_on_one_process_of_a_machine(
    opened: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(SMALL, tmp_path)
    monkeypatch.setenv('LOCAL_RANK', '1')
    read_checkpoint(path, 'x')
    assert opened['verified'] == 0
    monkeypatch.setenv('LOCAL_RANK', '0')
    read_checkpoint(path, 'x')
    assert opened['verified'] == 1


def test_what_was_read_ahead_is_read_once(
    opened: dict[str, int], tmp_path: Path
) -> None:
    path = saved(SMALL, tmp_path)
    contents = read_ahead(path, 'x')
    assert read_checkpoint(path, 'x') is contents
    assert opened['read'] == 1
    assert (
        read_checkpoint(path, 'x') is not contents
    )  # each holder has a copy of its own
    read_ahead(path, 'x')
    os.utime(path, (1, 1))  # the file has changed
    assert read_checkpoint(path, 'x') is not contents
    assert opened['read'] == 4
    reader._read_ahead.clear()


# ---------------------------------------------------------------- messages


def test_keys_in_messages(tmp_path: Path) -> None:
    assert keys_text([f'x{i}' for i in range(10_000)]) == (
        ', '.join(f'x{i}' for i in range(20)) + ' and 9,980 more'
    )
    assert keys_text(['y' * 5000]) == 'y' * MAX_LENGTH + '...'
    weights = vit() | {f'x{i}': torch.ones(()) for i in range(1_000)}
    text = refusal(RoPEViT, saved(weights, tmp_path), **VIT)
    assert 'x19 and 980 more' in text
    assert len(text) < 2000
    for key in ('z' * 100_000, 'module.' + 'z' * 100_000, 'blocks.0.' + 'z' * 100_000):
        for weights in (vit() | {key: torch.ones(1)}, {key: torch.ones(1)}):
            assert len(refusal(RoPEViT, saved(weights, tmp_path), **VIT)) < 3000
    text = refusal(RoPEViT, saved(vit(), tmp_path), 'z' * 300, **VIT)
    assert len(text) < 3000


# ---------------------------------------------------------------- damage at random


def write_torch(path: Path) -> None:
    torch.save({'model': SMALL, 'epoch': 3}, path)


def write_old(path: Path) -> None:
    torch.save(SMALL, path, _use_new_zipfile_serialization=False)


def write_safetensors(path: Path) -> None:
    save_file(SMALL, path)


def weights_of(contents: dict) -> Weights:
    return contents.get('model', contents)


def test_one_bit_of_the_directory(tmp_path: Path) -> None:
    """Every bit of the last kilobyte, where an archive lists its files: refused, or without
    effect."""
    path = tmp_path / 'x.pth'
    write_torch(path)
    content = path.read_bytes()
    refused = 0
    for place in range(len(content) - 1024, len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        refused += not reads_the_same(path, damaged)
    assert refused > 300


@pytest.mark.filterwarnings('ignore:Detected pickle protocol')
@pytest.mark.parametrize('write', [write_torch, write_old, write_safetensors])
def test_damage_at_random(write: Callable[[Path], None], tmp_path: Path) -> None:
    """Flipped bits, cuts and swapped bytes. An archive is refused unless it reads the same; the
    other formats have no checksums."""
    path = tmp_path / 'x.pth'
    write(path)
    content = path.read_bytes()
    draw = np.random.default_rng(SEED)
    for _ in range(FUZZED):
        damaged = bytearray(content)
        kind = draw.integers(3)
        if kind == 0:
            del damaged[draw.integers(len(damaged)) :]
        elif kind == 1:
            for place in draw.integers(len(damaged), size=draw.integers(1, 4)):
                damaged[place] ^= 1 << draw.integers(8)
        else:
            start, length = draw.integers(len(damaged) - 8), draw.integers(1, 8)
            damaged[start : start + length] = draw.bytes(length)
        reads_the_same(path, damaged, checked=write is write_torch)


def reads_the_same(path: Path, content: bytes, *, checked: bool = True) -> bool:
    """True if a damaged file reads as ``SMALL``; False if it is refused with a CheckpointError."""
    path.unlink()
    path.write_bytes(content)
    before = set(torch.serialization.get_safe_globals())
    message, found = '', {}
    try:
        found = weights_of(read_checkpoint(str(path), 'x'))
    except CheckpointError as error:
        message = str(error)
    assert set(torch.serialization.get_safe_globals()) == before
    if message:
        assert re.fullmatch('x: .+', message)  # one line
        return False
    if checked:
        assert found.keys() == SMALL.keys()
        assert all(torch.equal(found[key], SMALL[key]) for key in SMALL)
    return True
