import subprocess
import sys
from pathlib import Path

import mmdet.registry
import mmseg.registry
import pytest

import rope_dense
from rope_dense.utils.imports import installation_advice, missing_packages

FAMILY_IMPORTS = ('mmengine', 'mmcv', 'mmdet', 'mmseg')
REPOSITORY = Path(__file__).resolve().parents[1]

# Lets no finder find the named packages, as on a machine that does not have them.
HIDE = """
import sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def find_others(name, *more):
    return None if name.split('.')[0] in {names} else find(name, *more)
PathFinder.find_spec = find_others
"""


def run_python(code: str, *options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, *options, '-c', code]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)


def test_version_is_the_one_setup_reports() -> None:
    command = [sys.executable, 'setup.py', '--version']
    reported = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert reported.stdout.split()[-1] == rope_dense.__version__


def test_one_range_of_python() -> None:
    assert "python_requires='>=3.11,<3.14'" in (REPOSITORY / 'setup.py').read_text()
    for name in ('README.md', 'requirements/install.sh', 'requirements/common.txt'):
        assert 'Python 3.11 to 3.13' in (REPOSITORY / name).read_text(), name


def test_import_without_openmmlab_says_what_to_install() -> None:
    result = run_python(HIDE.format(names=FAMILY_IMPORTS) + 'import rope_dense')
    assert result.returncode == 0, result.stderr
    for expected in (*FAMILY_IMPORTS[:2], "'.[onedl]'", "'.[openmmlab]'", 'make setup'):
        assert expected in result.stderr


def test_the_advice_names_what_exists() -> None:
    advice = installation_advice(['mmcv'])
    setup = (REPOSITORY / 'setup.py').read_text()
    makefile = (REPOSITORY / 'Makefile').read_text()
    assert 'requirements/build.txt' in advice
    assert (REPOSITORY / 'requirements' / 'build.txt').is_file()
    for family in ('onedl', 'openmmlab'):
        assert f"'.[{family}]'" in advice and f"'{family}': [" in setup
    assert '\nsetup:' in makefile


def test_nothing_is_missing_here() -> None:
    assert missing_packages() == []


def test_a_broken_package_raises_its_own_error() -> None:
    code = HIDE.format(names=('addict',))  # mmengine needs it
    result = run_python(code + 'import rope_dense\nrope_dense.backbones')
    assert result.returncode != 0
    assert "No module named 'addict'" in result.stderr


def test_core_works_with_torch_alone() -> None:
    code = HIDE.format(names=FAMILY_IMPORTS) + (
        'import torch\n'
        'from rope_dense.rope import AxialRoPE, rotate\n'
        'rotary = AxialRoPE(head_dim=8, num_heads=2)(torch.empty(1, 12, 16), (3, 4))\n'
        'qkv = torch.randn(1, 12, 3, 2, 8)\n'
        'rotated = torch.stack(rotate(qkv, rotary), 2).transpose(1, 3)\n'
        'torch.testing.assert_close(rotated.norm(dim=-1), qkv.norm(dim=-1))\n'
        'assert not torch.equal(rotated, qkv)\n'
        f'assert not sys.modules.keys() & {set(FAMILY_IMPORTS)}'
    )
    result = run_python(code, '-W', 'ignore')
    assert result.returncode == 0, result.stderr


def test_the_package_is_light_where_openmmlab_is_installed() -> None:
    """Labels and arguments are read without PyTorch, angles computed without OpenMMLab."""
    code = (
        'import sys\n'
        'import rope_dense, rope_dense.commands.train, rope_dense.data.labels.folders\n'
        "assert 'torch' not in sys.modules\n"
        'import rope_dense.rope\n'
        f'assert not sys.modules.keys() & {set(FAMILY_IMPORTS)}'
    )
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    assert not result.stdout and not result.stderr


@pytest.mark.parametrize(
    'imports',
    [
        'import rope_dense\nimport mmdet.models, mmdet.datasets, mmseg.datasets',
        pytest.param(
            'import mmengine, mmcv\nimport rope_dense\nimport mmdet.models',
            marks=pytest.mark.slow,  # as all tests do in their own process
        ),
        pytest.param(
            'import rope_dense.rope\nfrom mmengine.config import Config\n'
            "Config.fromfile('configs/upernet_vit_rope_mixed.py')",
            marks=pytest.mark.slow,
        ),
    ],
    ids=['before', 'after', 'by a config'],
)
def test_each_order_of_imports_registers(imports: str) -> None:
    code = (
        f'{imports}\n'
        'import mmdet.registry, mmseg.registry\n'
        'from mmengine.registry import MODELS\n'
        "backbone = mmseg.registry.MODELS.build(dict(type='RoPEViT', arch='tiny'))\n"
        "assert type(backbone) is mmdet.registry.MODELS.get('RoPEViT')\n"
        "assert 'LinearHead' in MODELS and 'PublishedDINO' in MODELS"
    )
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    assert not result.stdout and not result.stderr


@pytest.mark.slow
def test_own_data_are_read_without_rasterio() -> None:
    """It comes with the extra `large`."""
    code = """
import importlib.util, sys
sys.modules['rasterio'], find = None, importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == 'rasterio' else find(name, *more)
import rope_dense.project.own.recipes
"""
    result = run_python(code)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize('present, absent', [('mmseg', 'mmdet'), ('mmdet', 'mmseg')])
def test_one_of_mmdet_and_mmseg_is_enough(present: str, absent: str) -> None:
    code = HIDE.format(
        names=()
    ) + (  # find_spec gives None for a package that is not there
        f'sys.modules[{absent!r}] = None\n'
        f'import rope_dense, {present}.registry\n'
        f"assert {present}.registry.MODELS.get('RoPEViT') is rope_dense.backbones.RoPEViT"
    )
    result = run_python(code)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_a_broken_task_disables_its_part_alone() -> None:
    code = (
        "import sys\nsys.modules['mmseg.models'] = None\n"
        'import rope_dense\nfrom mmengine.registry import MODELS\n'
        "assert MODELS.get('RoPEViT') and MODELS.get('SimpleFPN') and MODELS.get('PublishedDINO')\n"
        "assert 'LinearHead' not in MODELS"
    )
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    assert 'rope_dense without models.depth' in result.stderr
    assert 'mmseg.models' in result.stderr


def test_import_prints_nothing_and_hides_no_other_warning() -> None:
    code = (
        "import sys, warnings\nsys.modules['faster_coco_eval'] = None\n"
        'import rope_dense, mmdet.evaluation\n'
        "warnings.warn('of a user')"
    )
    result = run_python(code, '-W', 'error::UserWarning')
    assert result.stderr.endswith('UserWarning: of a user\n') and not result.stdout
    assert result.stderr.startswith('Traceback') and 'mmdet' not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize('imports', ['rope_dense', 'mmcv, rope_dense'])
def test_without_compiled_operators_all_is_registered_and_nothing_printed(
    imports: str,
) -> None:
    code = (
        "import sys\nsys.modules['mmcv._ext'] = None\n"
        f'import {imports}\nfrom mmcv.ops import nms\nimport torch\n'
        'assert len(nms(torch.tensor([[0.0, 0, 1, 1]]), torch.ones(1), 0.5)[1]) == 1\n'
        'from mmengine.registry import MODELS\n'
        "assert MODELS.get('PublishedDINO') and MODELS.get('LinearHead')"
    )
    result = run_python(code, '-W', 'ignore')
    assert result.returncode == 0, result.stderr
    assert not result.stdout and not result.stderr


@pytest.mark.parametrize(
    'registry, name',
    [
        ('MODELS', 'RoPEViT'),
        ('MODELS', 'RoPESwin'),
        ('MODELS', 'AxialRoPE'),
        ('MODELS', 'MixedRoPE'),
        ('MODELS', 'PlainViTFPN'),
        ('MODELS', 'ChannelLayerNorm'),
        ('MODELS', 'PublishedDINO'),
        ('MODELS', 'LinearHead'),
        ('MODELS', 'SlideMask2FormerHead'),
        ('MODELS', 'MeanScoreTTAModel'),
        ('OPTIM_WRAPPER_CONSTRUCTORS', 'NamedGroupsConstructor'),
    ],
)
def test_registered_class_is_found_from_both_scopes(registry: str, name: str) -> None:
    for package in (mmdet, mmseg):
        actual = getattr(package.registry, registry).get(name)
        assert actual is not None
        assert actual.__module__.startswith('rope_dense.')


@pytest.mark.slow
def test_import_leaves_the_kernel_and_what_the_command_line_alone_needs() -> None:
    code = 'import sys, mmengine, rope_dense; print(*sys.modules)'
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    imported = set(result.stdout.splitlines()[-1].split())
    assert {'rope_dense.engine', 'rope_dense.models.seg_tta'} < imported
    parts = ('rope.rotation_triton', 'engine.fsdp', 'research', 'commands', 'datasets')
    assert not imported & {f'rope_dense.{part}' for part in parts}
