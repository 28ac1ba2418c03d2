"""`python -m rope_dense TOOL.py ...`: run a script of mmdet, mmseg or your own with this package.

A script that imports mmdet needs mmcv's operators before a config's `custom_imports`. mmdet/test.py
is a tool that mmdet was installed with. Other arguments are those of `rope-dense`.
"""

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
    package, _, name = given.partition('/')
    places = [Path(given)]
    spec = find_spec(package) if package in ('mmdet', 'mmseg', 'mmrotate') else None
    if spec is not None:
        places.append(Path(str(spec.origin)).parent / '.mim' / 'tools' / name)
    tool = next(filter(Path.is_file, places), None)
    if tool is None:
        print(f'error: no such file: {" or ".join(map(str, places))}', file=sys.stderr)
        return 2
    sys.argv[:2] = [str(tool)]
    keep_configs()
    sys.path.insert(0, str(tool.parent))
    runpy.run_path(str(tool), run_name='__main__')
    return 0


def keep_configs() -> None:
    """Let no Runner write a config over the file that it was read from, such as a run's."""
    from mmengine.runner import Runner

    given = Runner.dump_config

    def dump_config(runner: Runner) -> None:
        source, target = runner.cfg.filename or '', Path(runner.work_dir)
        if Path(source).resolve() != (target / Path(source).name).resolve():
            given(runner)

    Runner.dump_config = dump_config


if __name__ == '__main__':
    sys.exit(main())
