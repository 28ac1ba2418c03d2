"""docs/one_encoder.md: commands parse, and the config has what the model takes."""

import inspect
import re
import shlex
from pathlib import Path

from mmengine.registry import MODELS

from rope_dense.models.shared_backbone import read_task
from rope_dense_command import import_early

TEXT = (Path(__file__).resolve().parents[2] / 'docs' / 'one_encoder.md').read_text()


def test_commands_parse() -> None:
    block, _ = re.findall(r'```bash\n(.*?)```', TEXT, re.DOTALL)
    for command in block.splitlines():
        _, tool, *arguments = shlex.split(command)
        args = import_early(Path(tool).stem).parse_args(arguments)
        assert getattr(args, 'checkpoint', None) is None


def test_the_config_has_arguments_of_the_model(tmp_path: Path) -> None:
    names: dict = {}
    exec(re.findall(r'```python\n(.*?)```', TEXT, re.DOTALL)[0], names)
    model = names['model']
    model.pop('_delete_')
    kind = MODELS.get(model.pop('type'))
    inspect.signature(kind).bind(**model)
    (tmp_path / 'task.py').touch()
    for name, task in model['tasks'].items():
        assert names['_base_'] in [other['config'] for other in model['tasks'].values()]
        read_task(name, task | dict(config=str(tmp_path / 'task.py')))
