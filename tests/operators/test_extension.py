"""The module that stands in for mmcv's compiled operators: when, with which functions."""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from importlib.util import find_spec

import mmcv.ops
import pytest
import torch

from helpers.operators import compiled_operators, use_pytorch
from rope_dense.operators import extension, provide_extension
from rope_dense.operators.extension import MODULES, Extension

NAME = 'mmcv._ext'


def test_compiled_operators_stay() -> None:
    compiled = compiled_operators()
    provide_extension()
    assert sys.modules[NAME] is compiled


def test_an_mmcv_without_operators_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, NAME, None)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        provide_extension()
    assert isinstance(sys.modules[NAME], Extension)
    assert find_spec(NAME) is not None
    provide_extension()  # by another import of the package


def test_operators_of_another_torch_are_replaced_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(name: str) -> None:
        raise ImportError(f'{name}.so: undefined symbol: _ZN3c104cuda9SetDeviceEi')

    monkeypatch.setitem(sys.modules, NAME, Extension())
    before = sys.modules[NAME]
    monkeypatch.setattr(extension, 'import_module', fail)
    with pytest.warns(UserWarning, match='another torch') as caught:
        provide_extension()
    assert len(caught) == 1 and '\n' not in str(caught[0].message)
    assert isinstance(sys.modules[NAME], Extension) and sys.modules[NAME] is not before


def test_other_errors_of_an_import_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ImportError('libcudart.so.12: cannot open shared object file')

    monkeypatch.setitem(sys.modules, NAME, Extension())
    monkeypatch.setattr(extension, 'import_module', fail)
    with pytest.raises(ImportError, match=r'libcudart'):
        provide_extension()


def test_functions_have_the_arguments_of_the_compiled_ones() -> None:
    compiled = compiled_operators()
    built = [
        name
        for name in vars(Extension())
        if not name.startswith('_') and hasattr(compiled, name)
    ]
    assert len(built) > 15
    for name in built:
        signature = getattr(compiled, name).__doc__.partition('->')[0]
        expected = re.findall(r'[(,] ?(\w+): ', signature)
        assert (
            list(inspect.signature(getattr(Extension(), name)).parameters) == expected
        ), name


def test_every_module_has_an_operator_of_mmcv() -> None:
    compiled = compiled_operators()
    for module in MODULES:
        assert any(
            inspect.isfunction(getattr(module, name, None)) for name in dir(compiled)
        )


def test_what_is_not_built_says_who_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    use_pytorch(monkeypatch)
    with pytest.raises(NotImplementedError, match='PSANet') as caught:
        mmcv.ops.PSAMask('collect', (3, 3))(torch.zeros(1, 9, 4, 4))
    assert 'psamask_forward' in str(caught.value) and '\n' not in str(caught.value)
    assert 'OPERATORS=compiled' in str(caught.value)


def test_mmcv_reports_them(monkeypatch: pytest.MonkeyPatch) -> None:
    use_pytorch(monkeypatch)
    assert 'PyTorch' in mmcv.ops.get_compiler_version()
    assert 'PyTorch' in mmcv.ops.get_compiling_cuda_version()
