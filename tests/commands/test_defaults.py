"""A command and its function in Python have the same defaults, choices and limits."""

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from rope_dense import commands
from rope_dense.commands.arguments import ToolParser
from rope_dense.export.exporter import OLDEST_OPSET, OPSET
from rope_dense_command import PACKAGES

NOT_GIVEN = (None, (), False)


def parser_of(module: Any, monkeypatch: pytest.MonkeyPatch) -> ToolParser:
    """The parser of a command, complete."""
    made = []
    build = ToolParser.__init__

    def keep(parser: ToolParser, description: str | None) -> None:
        made.append(parser)
        build(parser, description)

    monkeypatch.setattr(ToolParser, '__init__', keep)
    with pytest.raises(SystemExit):
        module.parse_args(['--help'])
    return made[0]


def works(module: Any) -> Iterator[Any]:
    """What the ``main`` of a command imports: functions, and types of requests."""
    for node in ast.walk(ast.parse(inspect.getsource(module.main))):
        if isinstance(node, ast.ImportFrom):
            found = import_module(
                '.' * node.level + str(node.module), module.__package__
            )
            for alias in node.names:
                yield getattr(found, alias.name)


def choices_of(kind: Any) -> list[Any]:
    """The values of a Literal, also within a sequence or beside None."""
    if get_origin(kind) is Literal:
        return [*get_args(kind)]
    found = []
    for part in get_args(kind):
        found += choices_of(part)
    return found


def plain(value: Any) -> Any:
    """A default, as both write it; None for one that is not given."""
    if isinstance(value, (list, tuple)):
        value = value[0] if len(value) == 1 else tuple(value)
    value = str(value) if isinstance(value, Path) else value
    return None if value in NOT_GIVEN else value


NAMES = sorted(
    x.stem for x in Path(commands.__path__[0]).glob('*.py') if x.stem in PACKAGES
)


@pytest.mark.parametrize('name', NAMES)
def test_defaults_and_choices_of_commands(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = import_module(f'rope_dense.commands.{name}')
    parser = parser_of(module, monkeypatch)
    compared = 0
    options = {action.dest: action for action in parser._actions}
    for work in works(module):
        kinds = get_type_hints(work.__init__ if inspect.isclass(work) else work)
        for parameter in inspect.signature(work).parameters.values():
            option = options.get(parameter.name)
            if option is None:
                continue
            default = parameter.default
            if default is not parameter.empty and option.option_strings:
                assert plain(option.default) == plain(default), parameter.name
            known = choices_of(kinds[parameter.name])
            if option.choices and known:
                assert sorted(option.choices) == sorted(known), parameter.name
                compared += 1
    if name in ('export', 'benchmark', 'convert_checkpoint', 'eval_resolutions'):
        assert compared


def test_limits_of_opsets(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module('rope_dense.commands.export')
    (opset,) = (x for x in parser_of(module, monkeypatch)._actions if x.dest == 'opset')
    assert opset.default == OPSET
    assert opset.type is not None and opset.type(str(OLDEST_OPSET)) == OLDEST_OPSET
    with pytest.raises(Exception, match=f'must be {OLDEST_OPSET} or more'):
        opset.type(str(OLDEST_OPSET - 1))
