"""Configs of the hub: what they may have, and that nothing in them runs."""

import builtins
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, TRANSFORMS, init_default_scope
from safetensors.torch import save_file

from helpers.seeds import seed_of_the_week
from rope_dense.checkpoints import CheckpointError
from rope_dense.project import hub_config
from rope_dense.project.hub import load_from_hub, prediction_steps
from rope_dense.project.hub_config import (
    decode,
    encode,
    read_settings,
    registered_only,
    storable_settings,
    without_left_out,
)
from rope_dense.project.load import load_config
from rope_dense.project.model import build_model
from rope_dense_command import command

CONFIGS = Path(__file__).parents[2] / 'configs'
WATCHED = (
    'os.system',
    'subprocess.Popen',
    'os.exec',
    'os.posix_spawn',
    'os.fork',
    'socket.connect',
)
STRANGERS = (
    'this',
    'antigravity',
    'turtle',
    'webbrowser',
    'planted',
)  # imported by no test
FILES = ('config.json', 'model.safetensors')
events: list[str] = []
watching = False


def audit(event: str, arguments: tuple) -> None:
    """Record processes, connections, imports of strangers, code of a text, and files elsewhere."""
    if not watching:
        return
    named = event == 'import' and arguments[0].split('.')[0] in STRANGERS
    compiled = event == 'compile' and arguments[1] in ('<string>', b'<string>')
    ran = event == 'exec' and getattr(arguments[0], 'co_filename', '') == '<string>'
    elsewhere = event == 'open' and is_elsewhere(arguments[0])
    if event in WATCHED or named or compiled or ran or elsewhere:
        events.append(f'{event} {arguments[:1]}')


def is_elsewhere(path: object) -> bool:
    """Return whether a file is none of the two that a model is read from."""
    return isinstance(path, (str, bytes)) and Path(os.fsdecode(path)).name not in FILES


sys.addaudithook(audit)


@contextmanager
def nothing_runs() -> Iterator[None]:
    """Fail if anything is started, fetched or imported within this context."""
    global watching
    events.clear()
    modules = {*sys.modules}
    watching = True
    try:
        yield
    finally:
        watching = False
    assert not events and {*sys.modules} == modules


@pytest.fixture(scope='module', autouse=True)
def _packages() -> None:
    """What a first reading imports, and may start, such as a look for a compiler."""
    hub_config.model_types('mmdet')
    init_default_scope('mmdet')


BACKBONE = dict(
    type='RoPEViT',
    arch=dict(embed_dims=32, depth=2, num_heads=2),
    rope=dict(type='MixedRoPE'),
)
HEAD = dict(
    type='FCNHead',
    in_channels=32,
    channels=8,
    num_classes=2,
    num_convs=1,
    loss_decode=dict(type='CrossEntropyLoss'),
)
PLAIN = dict(
    default_scope='mmseg',
    model=dict(
        type='EncoderDecoder',
        data_preprocessor=dict(type='SegDataPreProcessor', size_divisor=16),
        backbone=BACKBONE,
        decode_head=HEAD,
        test_cfg=dict(mode='whole'),
    ),
    test_pipeline=[
        dict(type='LoadImageFromFile'),
        dict(type='Resize', scale={'tuple': [64, 64]}, keep_ratio=True),
        dict(type='PackSegInputs'),
    ],
    metainfo=dict(classes=['a', 'b/c.d'], palette=[[0, 0, 0], [255, 255, 255]]),
)


def folder_of(tmp_path: Path, settings: dict | str = PLAIN) -> Path:
    """A folder like one of the hub, whose weights do not matter."""
    folder = tmp_path / 'model'
    folder.mkdir()
    text = settings if isinstance(settings, str) else json.dumps(settings)
    (folder / 'config.json').write_text(text)
    save_file({'a': torch.zeros(1)}, str(folder / 'model.safetensors'))
    return folder


def changed(path: str, value: object) -> dict:
    """The plain settings with a value at a dotted path, which may be new."""
    settings = json.loads(json.dumps(PLAIN))
    *parents, last = path.split('.')
    part = settings
    for name in parents:
        part = part[int(name)] if isinstance(part, list) else part.setdefault(name, {})
    if isinstance(part, list):
        part[int(last)] = value
    else:
        part[last] = value
    return settings


def test_plain_settings_are_read_and_built(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    with nothing_runs():
        cfg = read_settings(folder / 'config.json')
    assert cfg.model.type == 'EncoderDecoder' and cfg.metainfo.classes == ['a', 'b/c.d']
    assert cfg.test_pipeline[1].scale == (64, 64)
    assert load_config(str(folder)).model == cfg.model
    assert (
        build_model(load_config(str(folder / 'config.json'))).decode_head.num_classes
        == 2
    )


def test_the_hook_sees_what_runs() -> None:
    """Or the tests below would pass whatever happens."""
    for run in (
        lambda: os.system('true'),
        lambda: subprocess.run(['true'], check=True),
        lambda: eval('1 + 1'),
        lambda: sys.audit('import', 'this'),
        lambda: exec(compile('1 + 1', '<string>', 'exec')),
        lambda: Path('/etc/hostname').read_bytes(),
        lambda: sys.modules.update(planted=sys),
    ):
        with pytest.raises(AssertionError), nothing_runs():
            run()
    del sys.modules['planted']


RUN = {'type': 'os.system', 'command': 'touch x'}
POPEN = {'type': 'subprocess.Popen', 'args': 'touch x', 'shell': True}
ATTEMPTS = {
    'the model itself': changed('model', RUN),
    'Popen': changed('model', POPEN),
    'a backbone': changed('model.backbone', RUN),
    'an embedding': changed('model.backbone.rope', RUN),
    'a head': changed('model.decode_head', RUN),
    'a loss': changed('model.decode_head.loss_decode', RUN),
    'in a list': changed('model.decode_head.loss_decode', [RUN]),
    'in a tuple': changed('model.decode_head.loss_decode', {'tuple': [RUN]}),
    'in lists of lists': changed('model.neck', [[[{'a': [RUN]}]]]),
    'init_cfg': changed('model.backbone.init_cfg', RUN),
    'init_cfg in a list': changed('model.init_cfg', [RUN]),
    'Pretrained': changed('model.init_cfg', {'type': 'Pretrained', 'checkpoint': 'x'}),
    'pretrained': changed('model.pretrained', 'x'),
    'test_cfg': changed('model.test_cfg', RUN),
    'evaluated by mmcv': changed('model.test_cfg.nms', {'type': 'exit'}),
    'an expression for mmcv': changed(
        'model.test_cfg.nms', {'type': "__import__('this')"}
    ),
    'norm_cfg': changed('model.backbone.norm_cfg', {'type': 'this.s'}),
    'act_cfg by a text': changed('model.decode_head.act_cfg', 'os.system'),
    'data_preprocessor': changed('model.data_preprocessor', RUN),
    'a pipeline': changed('test_pipeline.1', RUN),
    'within a transform': changed('test_pipeline.1.transforms', [RUN]),
    'a transform that runs what it is given': changed(
        'test_pipeline.1', {'type': 'Albu'}
    ),
    'a backend of files': changed(
        'test_pipeline.0.backend_args', {'backend': 'petrel'}
    ),
    'builtins': changed('model', {'type': 'builtins.exec', 'object': 'import this'}),
    'torch.hub': changed('model', {'type': 'torch.hub.load', 'repo_or_dir': 'x'}),
    'mmengine.Config': changed(
        'model', {'type': 'mmengine.Config.fromfile', 'filename': 'x'}
    ),
    'a class of mmrotate, which nobody looked through': changed(
        'model.backbone', {'type': 'mmrotate.ReResNet'}
    ),
    'a scope that is a module': changed('model', {'type': 'planted.Model'}),
    '_scope_': changed('model._scope_', 'planted'),
    'no registered class': changed('model', {'type': 'Planted'}),
    'a type that is no text': changed('model', {'type': ['os.system']}),
    'a type of another kind': changed('model', {'type': {'tuple': ['os', 'system']}}),
    'custom_imports': PLAIN | {'custom_imports': {'imports': ['this']}},
    'custom_imports below': changed('model.custom_imports', {'imports': ['this']}),
    '_base_': PLAIN | {'_base_': 'x.py'},
    '_base_ below': changed('model._base_', 'x.py'),
    'a template': changed('model.backbone.arch', '{{ fileDirname }}'),
    'the environment': changed('model.backbone.arch', '{{$ENV:HOME}}'),
    'a pickle': changed('model.decode_head.loss_decode.class_weight', 'weights.pkl'),
    'a pickle without a dot': changed(
        'model.decode_head.loss_decode.class_weight', 'pkl'
    ),
    'a teacher': changed(
        'model',
        {
            'type': 'mmdet.KnowledgeDistillationSingleStageDetector',
            'teacher_config': 'x',
        },
    ),
    'a language model': changed(
        'model.language_model', {'type': 'mmdet.BertModel', 'name': 'x'}
    ),
    'a model of timm': changed(
        'model.backbone', {'type': 'TIMMBackbone', 'model_name': 'x'}
    ),
    'an address': changed('model.backbone.arch', 'https://host/x'),
    'a key that is code': changed('model.__import__("this")', 1),
    'dunder': changed('model.backbone', {'type': 'RoPEViT', 'a.b': 1}),
    'another task': PLAIN | {'default_scope': 'planted'},
    'a scope that is no text': PLAIN | {'default_scope': ['mmseg']},
    'hooks': PLAIN | {'custom_hooks': [RUN]},
    'visualizer': PLAIN | {'visualizer': RUN},
    'classes in a file': changed('metainfo.classes', 'x.txt'),
    'colours out of range': changed('metainfo.palette', [[256, 0, 0]]),
    'colours that are no numbers': changed('metainfo.palette', [[float('nan'), 0, 0]]),
    'a name that is a template': changed('metainfo.classes', ['{{$A:x}}', 'b']),
    'a name of two lines': changed('metainfo.classes', ['a\nimport this', 'b']),
    'a name that cannot be written': changed('metainfo.classes', ['\ud800', 'b']),
    'tiles by a text': PLAIN
    | {'tiles': dict(tile='__import__("this")', overlap=0, scales=[1])},
    'tiles without an end': PLAIN
    | {'tiles': dict(tile=8, overlap=0, scales=[float('inf')])},
    'an overlap of a tile': PLAIN | {'tiles': dict(tile=8, overlap=8, scales=[1])},
    'tiles with more': PLAIN
    | {'tiles': dict(tile=8, overlap=0, scales=[1], type='os.system')},
    'masks with more': PLAIN | {'masks': dict(type='os.system')},
    'masks by a text': PLAIN | {'masks': ['__import__("this")']},
    'no dict': '[1, 2]',
    'no JSON': '{"model": dict(type="os.system")}',
    'a program': 'import this\n',
    'lazy imports': 'with read_base():\n    from planted import *\n',
    'very deep': '[' * 100_000,
    'very deep and whole': '{"a":' * 100_000 + '1' + '}' * 100_000,
    'deep below the model': json.dumps(PLAIN).replace(
        '"whole"', '[' * 900 + '1' + ']' * 900
    ),
    'dicts, deep': json.dumps(PLAIN).replace(
        '"whole"', '{"a":' * 400 + '1' + '}' * 400
    ),
    'tuples, deep': json.dumps(PLAIN).replace('"whole"', '{"tuple":[' * 60 + ']}' * 60),
    'no settings that build': changed('model.backbone.arch', 'unknown'),
    'an argument that none has': changed('model.command', 'touch x'),
    'a key twice': json.dumps(PLAIN)[:-1] + ', "model": {"type": "os.system"}}',
    'a key twice below': json.dumps(PLAIN).replace(
        '"mode": "whole"', '"mode": "whole", "mode": "os.system"'
    ),
}


BUILT = (
    'no settings that build',
    'an argument that none has',
)  # refused by the classes


@pytest.mark.parametrize('name', ATTEMPTS)
def test_an_attempt_is_refused_and_nothing_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / 'planted.py').write_text('raise SystemExit(1)\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    folder = folder_of(tmp_path, ATTEMPTS[name])
    before = sorted(tmp_path.rglob('*'))
    readers = [lambda: load_from_hub(str(folder))]
    if name not in BUILT:
        readers += [
            lambda: load_config(str(folder)),
            lambda: load_config(str(folder / 'config.json')),
        ]
    for read in readers:
        with nothing_runs(), pytest.raises(CheckpointError) as error:
            read()
        assert '\n' not in str(error.value) and str(folder) in str(error.value)
    assert sorted(tmp_path.rglob('*')) == before
    assert 'planted' not in sys.modules and 'this' not in sys.modules


def places(part: object, above: str = '') -> Iterator[str]:
    """Dotted paths of all values of nested settings."""
    below = part.items() if isinstance(part, dict) else enumerate(part)  # type: ignore[arg-type]
    for key, value in below:
        yield f'{above}{key}'
        if isinstance(value, (dict, list)):
            yield from places(value, f'{above}{key}.')


def hostile(random: Random) -> object:
    """A value that would run something if its type was imported, evaluated, opened or fetched."""
    module = random.choice(
        ('os', 'subprocess', 'shutil', 'builtins', 'torch.hub', 'this')
    )
    name = random.choice(('system', 'Popen', 'rmtree', 'exec', 'load', 's', 'run'))
    scope = random.choice(('', '', 'mmdet.', 'mmseg.', 'mmengine.', 'planted.'))
    kind = f'{scope}{module}.{name}'
    value: object = random.choice(
        (
            kind,
            {'type': kind, 'command': 'touch x'},
            {'type': kind, '_scope_': 'planted'},
            {'type': 'Pretrained', 'checkpoint': 'https://host/x'},
            {'_base_': 'x.py', '_delete_': True},
            {'custom_imports': {'imports': [module]}},
            '{{ fileDirname }}',
            'x.pkl',
        )
    )
    for _ in range(random.randrange(3)):
        value = random.choice(
            ([value], {'tuple': [value]}, {random.choice(('a', 'cfg')): value})
        )
    return value


@pytest.mark.parametrize('number', [20, pytest.param(600, marks=pytest.mark.slow)])
def test_nothing_runs_wherever_it_is_planted(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the slow tests of a seed that changes every week; weights that do not fit stop what is
    only read, such as a name of a class."""
    (tmp_path / 'planted.py').write_text('raise SystemExit(1)\n')
    monkeypatch.syspath_prepend(tmp_path)
    random = Random(0 if number < 100 else seed_of_the_week())
    folder = folder_of(tmp_path)
    paths = list(places(PLAIN))
    for _ in range(number):
        settings = changed(path := random.choice(paths), value := hostile(random))
        (folder / 'config.json').write_text(json.dumps(settings))
        with nothing_runs(), pytest.raises(CheckpointError) as error:
            load_from_hub(str(folder))
        assert '\n' not in str(error.value), f'{path}={value}'


@pytest.mark.parametrize('tool', ['predict', 'predict_large', 'export'])
def test_a_tool_refuses_it_by_any_name(
    tool: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hub = pytest.importorskip('huggingface_hub')
    monkeypatch.chdir(tmp_path)
    folder = folder_of(tmp_path, ATTEMPTS['the model itself'])
    monkeypatch.setattr(
        hub, 'hf_hub_download', lambda _, file, **__: str(folder / file)
    )
    main = command(tool)
    output = 'out.onnx' if tool == 'export' else str(tmp_path)
    main([str(folder), output])  # imports what the command itself needs
    capsys.readouterr()
    for name in ('hf-hub:a/b', str(folder)):
        with nothing_runs():
            assert main([name, output]) == 2
        assert capsys.readouterr().err.startswith(
            f'error: {folder}/config.json: model.type must'
        )


def test_messages_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointError, match=r'weights do not fit .*Missing') as error:
        load_from_hub(str(folder_of(tmp_path)))
    assert '\n' not in str(error.value) and len(str(error.value)) < 600

    def offline(*_: object, **__: object) -> None:
        raise OSError('no connection\n\nand advice')

    hub = pytest.importorskip('huggingface_hub')
    monkeypatch.setattr(hub, 'hf_hub_download', offline)
    with pytest.raises(
        CheckpointError, match=r'a/b: no config\.json \(no connection and advice'
    ):
        load_from_hub('hf-hub:a/b')


def test_a_program_in_a_folder_of_the_hub_is_not_run(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / 'config.json').rename(folder / 'config.py')
    (folder / 'config.py').write_text("import os\nos.system('touch x')\n")
    with (
        nothing_runs(),
        pytest.raises(CheckpointError, match=r'no folder with config\.json'),
    ):
        load_config(str(folder))


class Malicious:
    """A pickle that runs a command."""

    def __reduce__(self) -> tuple[Callable, tuple]:
        return os.system, ('touch x',)


def test_a_pickle_is_no_safetensors_file(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    for content in (pickle.dumps(Malicious()), b'PK\x03\x04', b''):
        (folder / 'model.safetensors').write_bytes(content)
        with nothing_runs(), pytest.raises(CheckpointError):
            load_from_hub(str(folder))
    torch.save({'a': torch.zeros(1)}, folder / 'model.safetensors')
    with pytest.raises(CheckpointError, match='not a safetensors file'):
        load_from_hub(str(folder))


@pytest.mark.parametrize('name', ['config.json', 'model.safetensors'])
def test_a_link_out_of_the_folder_is_not_followed(name: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    with (
        nothing_runs(),
        pytest.raises(CheckpointError, match='a link that leaves the folder'),
    ):
        load_from_hub(str(folder))


def test_nothing_is_imported_for_a_name_while_a_model_is_built() -> None:
    with pytest.raises(Exception, match=r'Failed to get os\.system'), registered_only():
        MODELS.build(dict(type='os.system', command='true'))
    assert MODELS.get('os.path.join') is os.path.join  # as before, outside


READS = re.compile(
    r'from_pretrained|load_checkpoint\(|fromfile\(|create_model\(|subprocess|os\.system|\bexec\(|'
    r'(?<![\w.])eval\(|pickle\.load|np\.load\(|torch\.load\(|(?<![\w.])open\(|nltk|urlopen|'
    r'import_module\(|jit\.load|\bPopen|__import__|globals\(\)|read_checkpoint\(|\bfetch\(|'
    r'getattr\((?:ops|torch|nn|F|np|sys|torchvision),|(?<![\w.])load\('
)
LOOKED_THROUGH = {
    # In `init_weights` alone, what `pretrained` and `init_cfg` name.
    *(f'mmdet.models.backbones.{name}' for name in ('detectors_resnet', 'pvt', 'swin')),
    *(
        f'mmseg.models.backbones.{name}'
        for name in ('beit', 'mae', 'pidnet', 'swin', 'vit')
    ),
    'mmseg.models.decode_heads.san_head',
    'mmseg.models.losses.utils',  # class_weight, which may not be a text
    'mmdet.models.roi_heads.roi_extractors.base_roi_extractor',  # type: a name in mmcv.ops
    'mmcv.ops.nms',  # type: a name that is registered or in OTHER_TYPES
    'rope_dense.models.mmrotate',  # imports modules of fixed names
    'research.classifier',  # load_classifier, which no constructor calls
}


def test_each_module_that_reads_files_is_known() -> None:
    """All modules below those of the allowed classes: a new reader has to be looked through."""
    hub_config.model_types('mmseg')
    packages = (
        'mmdet.models.',
        'mmseg.models.',
        'mmcv.ops.',
        'mmcv.cnn.bricks.',
        'mmcv.cnn.utils',
    )
    packages += tuple(f'rope_dense.{part}.' for part in ('models', 'backbones', 'rope'))
    refused = hub_config.REFUSED
    readers, modules = set(), 0
    for name, module in sorted(sys.modules.items()):
        path = Path(getattr(module, '__file__', None) or '')
        if (
            not name.startswith(packages)
            or f'{name}.'.startswith(refused)
            or path.suffix != '.py'
        ):
            continue
        modules += 1
        code = re.sub(r'#.*', '', path.read_text())
        if READS.search(code):
            readers.add(name)
    assert modules > 300 and readers <= LOOKED_THROUGH, readers - LOOKED_THROUGH


def test_no_type_is_a_builtin() -> None:
    """mmcv evaluates the type of a non-maximum suppression."""
    for scope in hub_config.DATASETS:
        assert not hub_config.model_types(scope) & {*dir(builtins)}


def test_tuples_and_lists_come_back() -> None:
    settings = dict(a=(1, [2, (3,)]), b=[None, 0.5, True, 'c'], d=())
    assert decode(json.loads(json.dumps(encode(settings, '')))) == settings
    for value, says in (
        (object(), 'a object'),
        (float('nan'), 'NaN'),
        ({1: 2}, 'the key 1'),
        ({'tuple': [1]}, "the key 'tuple'"),  # it would come back as a tuple
    ):
        with pytest.raises(ValueError, match=rf'^a\.0: {says} cannot be stored$'):
            encode(dict(a=[value]), '')


OTHERS = (
    '_base_|detectron2|oriented'  # mmrotate, whose scope is not stored, is an extra
)


def shipped() -> list[str]:
    """A config of each folder, and those of own data."""
    folders = {path.parent for path in CONFIGS.rglob('*.py')}
    paths = [*CONFIGS.glob('*.py'), *CONFIGS.glob('own/*.py')]
    paths += [min(folder.glob('*.py')) for folder in folders]
    names = {path.relative_to(CONFIGS).as_posix() for path in paths}
    return sorted(name for name in names if not re.search(OTHERS, name))


@pytest.mark.parametrize('name', shipped())
def test_shipped_configs_can_be_stored(name: str, tmp_path: Path) -> None:
    stored = round_trip(CONFIGS / name, tmp_path)
    if stored is None:
        pytest.skip('no detector or segmentor')
    transforms = TRANSFORMS.switch_scope_and_registry(stored.default_scope)
    with transforms as scoped, registered_only():
        for step in stored.test_pipeline:
            scoped.build(step)


@pytest.mark.slow
def test_all_shipped_configs_can_be_stored(tmp_path: Path) -> None:
    paths = [path for path in CONFIGS.rglob('*.py') if not re.search(OTHERS, str(path))]
    assert sum(round_trip(path, tmp_path) is not None for path in paths) > 80


def round_trip(path: Path, folder: Path) -> Config | None:
    """A shipped config as the hub gives it back; None if it is of no detector or segmentor."""
    cfg = Config.fromfile(path)
    if cfg.get('default_scope') not in hub_config.DATASETS or not cfg.get(
        'test_dataloader'
    ):
        return None
    plain = cfg._cfg_dict.to_dict()
    settings = dict(
        default_scope=cfg.default_scope,
        model=plain['model'],
        test_pipeline=prediction_steps(plain['test_dataloader']['dataset']),
        metainfo=dict(classes=['a'], palette=[[1, 2, 3]]),
    )
    (folder / 'config.json').write_text(json.dumps(storable_settings(settings)))
    back = read_settings(folder / 'config.json')
    for key, value in settings.items():
        assert back[key] == without_left_out(value), f'{path}: {key}'
    return back
