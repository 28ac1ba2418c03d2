"""JSON lines are read up to the first that is not whole."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from rope_dense.utils.disk import read_json_lines


@pytest.mark.parametrize(
    'end', ['', '{"b": "', '{"b": "ä'.encode()[:-1], '\0' * 9, '3', '\n']
)
def test_what_is_whole_is_read(end: str | bytes, tmp_path: Path) -> None:
    path = tmp_path / 'log.json'
    whole = '{"a": "\u2028ä"}\n{"a": 2}\n'.encode()
    path.write_bytes(whole + (end.encode() if isinstance(end, str) else end))
    assert list(read_json_lines(path)) == [dict(a='\u2028ä'), dict(a=2)]
    says = r'log\.json: line 3 is no object'
    with pytest.raises(ValueError, match=says) if end else nullcontext():
        list(read_json_lines(path, strict=True))


def test_a_last_line_may_lack_its_end(tmp_path: Path) -> None:
    (tmp_path / 'log.json').write_text('{"a": 1}')
    assert list(read_json_lines(tmp_path / 'log.json')) == [dict(a=1)]
