"""A user's files: names and text, JSON, YAML and XML decoded, errors named."""

import codecs
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml
from PIL import Image

from ..images import plug_ins  # noqa: F401  # before Pillow says what it reads
from .objects import printable_text

OPENCV_SUFFIXES = '.jpg .jpeg .jfif .png .tif .tiff .bmp .webp'.split()
READABLE = Image.registered_extensions()
PILLOW_SUFFIXES = [x for x in '.gif .avif .heic .heif'.split() if x in READABLE]
IMAGE_SUFFIXES = (*OPENCV_SUFFIXES, *PILLOW_SUFFIXES)
VIDEO_SUFFIXES = tuple(
    '.mp4 .avi .mov .mkv .webm .m4v .mpg .mpeg .wmv .flv .ts .mts .m2ts .3gp .ogv .vob'.split()
)
UNSET = ('', '0', '0.0', 'false', 'no', 'none', 'null')  # flags in JSON as text
MOST_REPEATED = 1_000  # values by the aliases of a YAML file
DECLARED = re.compile(rb'^\s*<\?xml[^>]*?encoding=["\']([A-Za-z0-9._-]+)["\'][^>]*\?>')

DECODERS = {
    json.JSONDecodeError: 'JSON, or cut off',
    yaml.YAMLError: 'YAML',
    ElementTree.ParseError: 'XML, cut off, or not in the encoding that it declares',
}
# Of the content of labels; a LookupError is also of an unknown encoding.
ERRORS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)


def without_suffix(path: str | Path) -> str:
    """A path without the suffix of an image, if it has one: 'a.jpg' is 'a', 'a.1' stays."""
    path = Path(path)
    if path.suffix.lower() in IMAGE_SUFFIXES:
        path = path.with_suffix('')
    return path.as_posix()


def parts_of(path: str) -> list[str]:
    """The parts of a path of any system, without '.' and '..'."""
    return [part for part in re.split(r'[\\/]', path) if part not in ('', '.', '..')]


def fold_case(text: str) -> str:
    """A text in one case and Unicode form; macOS writes letters and their accents apart."""
    return unicodedata.normalize('NFC', unicodedata.normalize('NFC', text).casefold())


def read_text(path: Path) -> str:
    """A text in UTF-8, or UTF-16 with a byte-order mark; ValueError for another encoding."""
    content = path.read_bytes()
    is_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode('utf-16' if is_16 else 'utf-8-sig')
    except UnicodeDecodeError as error:
        raise ValueError(
            f'{path} is no UTF-8 text ({error}): save it as UTF-8'
        ) from error


def read_numbered_lines(path: Path) -> Iterator[tuple[str, str]]:
    """(place, line) of each line that is not blank: ('a.txt, line 3', '0 .5 .5 .2 .2')."""
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if line.strip():
            yield f'{path.name}, line {number}', line.strip()


def read_json(path: Path) -> Any:
    """The content of a JSON file; ValueError, which names the file, if it is none or cut off."""
    with errors_at(path):
        return json.loads(read_text(path))


def read_yaml(path: Path) -> Any:
    """The content of a YAML file, each scalar as text: `yes`, 1.10 and ~ stay as written.

    Raises:
        ValueError: it is no YAML, has a key twice, or becomes large by aliases.
    """
    with errors_at(path):
        return yaml.load(read_text(path), Loader=TextLoader)


class TextLoader(yaml.BaseLoader):
    """Loads scalars as text, and each key once; counts what aliases repeat."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        # Numbers of values in the nodes that are complete.
        self.sizes: dict[int, int] = {}
        self.repeated = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        is_alias = self.check_event(yaml.AliasEvent)
        node = super().compose_node(parent, index)
        if node is None:
            return None
        if is_alias:
            # Of a node that is complete, or of one that has itself as a value.
            self.repeated += self.sizes.get(id(node), MOST_REPEATED + 1)
            if self.repeated > MOST_REPEATED:
                raise yaml.YAMLError(
                    f'its aliases repeat more than {MOST_REPEATED:,} values'
                )
            return node
        items = node.value
        if isinstance(node, yaml.ScalarNode):
            if len(items) > 1000 and items.isdigit():
                raise yaml.YAMLError('it has a number of thousands of digits')
            items = ()
        elif isinstance(node, yaml.MappingNode):
            items = chain.from_iterable(items)  # of keys and values
        self.sizes[id(node)] = 1 + sum(self.sizes[id(item)] for item in items)
        return node

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Any, Any]:
        keys = Counter(str(key.value) for key, _ in node.value)
        for key, count in keys.items():
            if count > 1:  # PyYAML takes the last one
                raise yaml.YAMLError(f'{key!r:.80} is given twice')
        return super().construct_mapping(node, deep)


def read_xml(path: Path) -> ElementTree.Element:
    """The root of an XML file; ValueError if it is none, cut off, or in another encoding."""
    content = path.read_bytes()
    if b'<!ENTITY' in content:
        raise ValueError(f'{path} declares entities, which no labels have')
    with errors_at(path):
        declared = DECLARED.match(content)
        encoding = declared[1].decode().lower() if declared else 'utf-8'
        if declared and not encoding.startswith('utf'):
            if encoding in ('gb2312', 'gbk'):
                encoding = 'gb18030'
            text = content[declared.end() :].decode(encoding)
            return ElementTree.fromstring(text)  # expat knows no multi-byte encodings
        return ElementTree.fromstring(content)


@contextmanager
def errors_at(place: object) -> Iterator[None]:
    """Within this context, an error of a label's content becomes a ValueError that names the place.

    Args:
        place: a file, or a file and an object in it: 'a.json, annotation 7'. Of nested contexts
            the inner one names it, and an outer one with the path of the file adds its folder.
    """
    try:
        yield
    except PlacedError as error:
        if isinstance(place, Path):
            starts = f'{place.name}, ', f'{place.name}:'
            if str(error).startswith(starts):
                raise PlacedError(f'{place.parent}/{error}') from error
        raise
    except (*ERRORS, *DECODERS) as error:
        what = ' '.join(str(error).split())
        formats = [name for kind, name in DECODERS.items() if isinstance(error, kind)]
        if formats:
            what = f'{place} is no {formats[0]} ({what:.400})'
        elif isinstance(error, RecursionError):
            what = (
                f'{place} has lists in lists, thousands deep: no labels are written so'
            )
        elif isinstance(error, KeyError):
            what = f'{error.args[0]!r} is missing'
        elif 'set_int_max_str_digits' in what:
            what = f'{place} has a number of thousands of digits'
        if str(place) not in what:
            what = f'{place}: {what}'
        raise PlacedError(what) from error


class PlacedError(ValueError):
    """An error of labels whose message names the file, without characters that are not seen."""

    def __init__(self, message: str) -> None:
        super().__init__(printable_text(message))


def finite_numbers(values: Sequence[object], name: str = 'a number') -> list[float]:
    """Values as finite numbers; ValueError if one of them is none; the message has it."""
    numbers = []
    for value in values:
        try:
            number = float(value)  # type: ignore[arg-type]
        except OverflowError:  # a whole number of hundreds of digits
            number = math.inf
        except (TypeError, ValueError):
            raise ValueError(f'{name} is {value!r:.80}, which is no number') from None
        if not math.isfinite(number):
            raise ValueError(f'{name} is {value!r:.80}, which is not finite')
        numbers.append(number)
    return numbers


def named_numbers(
    value_of: Callable[[str], object], *names: str, form: str = '{}'
) -> list[float]:
    """The values of names as finite numbers; ValueError if one is none; the message has its name.

    ``form`` is how messages write a name.
    """
    numbers = []
    for name in names:
        numbers += finite_numbers([value_of(name)], form.format(name))
    return numbers


def size_in(item: Mapping[str, Any], height: str, width: str) -> tuple[int, int] | None:
    """(height, width) in pixels by these keys of a JSON object; None if it does not say them."""
    if not (item.get(height) and item.get(width)):
        return None
    given = [item[height], item[width]]
    rows, columns = map(int, finite_numbers(given, f'{height} or {width}'))
    return (rows, columns) if min(rows, columns) > 0 else None


def class_names(names: Sequence[object], place: object) -> tuple[str, ...]:
    """Names of classes as text; ValueError for none, an empty name, or the same twice."""
    numbers: dict[str, int] = {}
    for number, given in enumerate(names):
        if isinstance(given, (list, dict)):
            what = type(given).__name__
            raise ValueError(f'{place}: the name of class {number} is {what}, no text')
        name = class_name(given)
        if not name:
            raise ValueError(f'{place}: class {number} has no name')
        other = numbers.setdefault(name, number)
        if other != number:
            raise ValueError(f'{place}: classes {other} and {number} are both {name!r}')
    if not numbers:
        raise ValueError(f'{place}: no class in it')
    return tuple(numbers)


def check_parts(
    parts: Mapping[str, Collection[str]],
    classes: Sequence[str],
    root: Path,
    files: Collection[str],
) -> None:
    """Raise ValueError for a part or a name of ``own.labelled`` that no file or class has."""
    for part, names in parts.items():
        if not any(part_of(Path(file), root, (part,)) for file in files):
            raise ValueError(
                f'own.labelled: {part} is no folder or file in {root}, nor in its folders'
            )
        unknown = sorted({*names}.difference(classes))
        if unknown:
            raise ValueError(
                f'own.labelled: {part} has {", ".join(unknown)}, the classes are '
                f'{", ".join(classes)}'
            )


def part_of(file: Path, root: Path, parts: Collection[str]) -> str | None:
    """The one of ``parts``, of folders or files, that a path below ``root`` has; None for none.

    ValueError for two.
    """
    below = file.relative_to(root) if file.is_relative_to(root) else file
    path = f'/{below.as_posix()}/'
    found = [part for part in parts if f'/{part}/' in path]
    if len(found) > 1:
        raise ValueError(f'{file}: own.labelled has it by {" and by ".join(found)}')
    return found[0] if found else None


@lru_cache(4096)
def class_name(name: object) -> str:
    """The name of a class as text on one line, in Unicode's composed form, ``printable_text``."""
    text = ' '.join(unicodedata.normalize('NFC', str(name)).split())
    return ' '.join(printable_text(text).split())


def is_set(value: object) -> bool:
    """Return whether a flag of a JSON file is set: neither absent, 0, false nor their text."""
    if isinstance(value, str):
        return value.strip().lower() not in UNSET
    return value not in (None, 0)
