"""`python -m rope_dense TOOL.py ...` runs a script of mmdet, mmseg or your own with this package.

Such scripts import mmdet, and so mmcv's operators, before the `custom_imports` of a config. A name
such as mmdet/test.py is a script in the folder of tools that mmdet was installed with. Any other
arguments are those of `rope-dense`.
"""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import rope_dense_command


def main() -> int:
    """Run a script as `python` would, or a command; returns the exit code."""
    given = sys.argv[1] if len(sys.argv) > 1 else ''
    if not given.endswith('.py'):
        return rope_dense_command.main()
    places = [Path(given)]
    package, _, name = given.partition('/')
    if package in ('mmdet', 'mmseg', 'mmrotate') and (spec := find_spec(package)):
        places.append(Path(str(spec.origin)).parent / '.mim' / 'tools' / name)
    tool = next(filter(Path.is_file, places), None)
    if tool is None:
        print(f'error: no such file: {" or ".join(map(str, places))}', file=sys.stderr)
        return 2
    sys.argv[:2] = [str(tool)]
    sys.path.insert(0, str(tool.parent))
    runpy.run_path(str(tool), run_name='__main__')
    return 0


if __name__ == '__main__':
    sys.exit(main())
