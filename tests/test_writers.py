"""Files are written, moved and removed by their owner, ``Results``, or with a reason."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rope_dense

ROOT = Path(rope_dense.__file__).parent
# Calls that write, move or remove, by their names as they are called.
FUNCTIONS = {
    *(f'os.{x}' for x in ('replace', 'rename', 'renames', 'remove', 'unlink', 'rmdir')),
    *(f'os.{x}' for x in ('removedirs', 'link', 'symlink', 'truncate')),
    *(f'shutil.{x}' for x in ('move', 'copy', 'copy2', 'copyfile', 'copyfileobj', 'copytree')),
    *('shutil.rmtree', 'rasterio.shutil.copy', 'save_file', 'np.save', 'np.savez', 'np.savetxt'),
    *('cv2.imwrite', 'cv2.VideoWriter', 'mmcv.imwrite', 'json.dump', 'pickle.dump'),
}  # fmt: skip
METHODS = {  # of anything, with as many arguments at most
    'write_text': 1, 'write_bytes': 1, 'replace': 1, 'rename': 1, 'unlink': 0, 'rmdir': 0,
    'touch': 0, 'symlink_to': 1, 'hardlink_to': 1, 'save': 9, 'savefig': 9, 'dump': 1, 'tofile': 1,
    'to_csv': 9,
}  # fmt: skip
OWNERS = {'write', 'fresh', 'writing', 'atomic_write', 'TemporaryDirectory', 'BytesIO'}
# Other writers, as MODULE or MODULE:FUNCTION.
ALLOWED = {
    'utils/results': 'the owner itself',
    'utils/disk': 'what it writes with',
    'utils/lock': 'removes its own file, which has the lock',
    'utils/journal': 'unfinished work in the hidden folder',
    'data/tiles/evaluation:ScoreBlender': 'scores in the folder of a journal',
    'predict/tiles:predict_all': 'joins journals in their folder',
    'data/tiles/image_file:write_raster': 'into a new file, by another one beside the journal',
    'predict/video:DrawnVideo': 'a video grows as a new file of the owner',
    'measure/plot:draw_resolutions': 'into a given new file',
    'measure/choice_files:draw_choice': 'into a given new file',
    'report/page:add_figure': 'into memory',
    'predict/files:array_content': 'into memory',
    'data/mask_colours:write_labels': 'into a given new file',
    'data/panoptic:write_ids': 'into a given new file',
    'data/images/band_files:write_bands': 'into a given new file',
    'data/generated/shape_files': 'into a new folder of the owner',
    'data/labels/split_file:SplitFile': 'into a new folder',
    'data/labels/unlabelled:save_frames': 'into a new folder',
    'data/labels/kept': 'what is kept of own data: a folder of the program alone',
    'data/images/copies': 'copies, beside what is kept of own data',
    'export/exporter:write_pt2': 'into a new folder of the owner',
    'export/compare:openvino_model': 'of a graph, in memory',
    'export/onnx_file': 'into a new folder of the owner',
    'measure/benchmark:write_picture': 'into a temporary folder',
    'project/run:clear': 'what the record names',
    'engine/preemption:obey': 'by the hook of checkpoints',
}


def owned_names(tree: ast.AST) -> set[str]:
    """The names of new files and folders that an owner gives, and of files in memory."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            calls = [
                part
                for part in ast.walk(node.context_expr)
                if isinstance(part, ast.Call)
            ]
            if OWNERS.intersection(
                ast.unparse(call.func).rpartition('.')[2] for call in calls
            ):
                found.add(node.optional_vars.id)
    return found


def opens_for_writing(call: ast.Call) -> bool:
    """Return whether a mode is given that is not for reading alone."""
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    texts = [
        x.value
        for x in values
        if isinstance(x, ast.Constant) and isinstance(x.value, str)
    ]
    return any(
        set('wax+') & set(text) and set(text) <= set('rwaxbt+') for text in texts
    )


def writes(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    last = name.rpartition('.')[2] if isinstance(call.func, ast.Attribute) else ''
    if name.rpartition('.')[2] in ('open', 'fdopen', 'memmap', 'ZipFile'):
        return opens_for_writing(call)
    return name in FUNCTIONS or (last in METHODS and len(call.args) <= METHODS[last])


def calls_in(
    node: ast.AST, scopes: tuple[ast.AST, ...] = ()
) -> Iterator[tuple[ast.Call, tuple[ast.AST, ...]]]:
    """The calls in a part of a program, each with the functions and classes around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, scopes
        is_scope = isinstance(child, (ast.FunctionDef, ast.ClassDef))
        yield from calls_in(child, (*scopes, child) if is_scope else scopes)


def writers(text: str, module: str) -> Iterator[tuple[list[str], str]]:
    """The calls of a module that write without an owner: names for ALLOWED, and the call."""
    for call, scopes in calls_in(ast.parse(text)):
        if not writes(call):
            continue
        owned = {name for scope in scopes for name in owned_names(scope)}
        if not owned & {
            part.id for part in ast.walk(call) if isinstance(part, ast.Name)
        }:
            names = [scope.name for scope in scopes]
            places = [module, *(f'{module}:{name}' for name in names)]
            yield places, f'{module}:{".".join(names)}: {ast.unparse(call)}'


def test_what_writes_without_the_owner_has_a_reason() -> None:
    others, needed = [], set()
    for path in sorted(ROOT.rglob('*.py')):
        module = path.relative_to(ROOT).with_suffix('').as_posix()
        for places, call in writers(path.read_text(encoding='utf-8'), module):
            reasons = [place for place in places if place in ALLOWED]
            needed.update(reasons)
            if not reasons:
                others.append(call)
    assert not others, (
        'write through Results, or name the reason in ALLOWED:\n' + '\n'.join(others)
    )
    assert needed == {*ALLOWED}, 'ALLOWED names what writes no more'


@pytest.mark.parametrize(
    'line, found',
    [
        ("open(path, 'w')", True),
        ("path.open(mode='ab')", True),
        ("rasterio.open(path, 'r+')", True),
        ('open(path)', False),
        ("path.write_text('x')", True),
        ("results.write_text(path, 'x')", False),
        ('shutil.rmtree(path)', True),
        ('path.unlink(missing_ok=True)', True),
        ('os.replace(old, path)', True),
        ('old.replace(path)', True),
        ("name.replace('a', 'b')", False),
        ('image.save(path)', True),
        ('with results.write(path) as file: image.save(file)', False),
        ('with atomic_write(path) as file: image.save(other)', True),
        (
            'with results.fresh() as folder: cv2.imwrite(str(folder / name), image)',
            False,
        ),
    ],
)
def test_kinds_of_writing(line: str, found: bool) -> None:
    text = f'def function():\n    {line}\n'
    assert bool([*writers(text, 'module')]) == found
