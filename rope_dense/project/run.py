"""Files of an earlier training in the work folder of a new one."""

import re
import shutil
from pathlib import Path

from mmengine.config import Config

from ..utils.config_parts import nodes
from .errors import UsageError

CHECKPOINT = re.compile(r'(best_.+_)?(iter|epoch)_\d+\.pth')
LOG_FOLDER = re.compile(r'\d{8}_\d{6}')  # mmengine's, by the time of the start


def checkpoints_in(folder: Path) -> list[Path]:
    """The checkpoints that a training wrote to a folder, by their names."""
    return sorted(path for path in folder.glob('*.pth') if CHECKPOINT.fullmatch(path.name))


def check_work_folder(cfg: Config, overwrite: bool) -> None:
    """Raise UsageError for a new training that would mix with an earlier one.

    Or, with ``overwrite`` (see ``remove_training``), that starts from a file that it would remove.
    """
    found = checkpoints_in(Path(cfg.work_dir))
    if overwrite and cfg.get('resume'):
        raise UsageError('resume (--resume) and overwrite (--overwrite): give one of them')
    if found and not overwrite and not cfg.get('resume'):
        raise UsageError(
            f'{cfg.work_dir} has {len(found)} checkpoints of an earlier training, such as '
            f'{found[-1].name}: continue it by resume (--resume), give another work_dir '
            '(--work-dir), or remove it by overwrite (--overwrite)'
        )
    sources = [node.get('checkpoint') for _, node in nodes(cfg.model)] + [cfg.get('load_from')]
    removed = {path.resolve() for path in found} if overwrite else set()
    for source in filter(None, sources):
        if Path(str(source)).resolve() in removed:
            raise UsageError(
                f'overwrite (--overwrite) would remove {source}, from which the training starts'
            )


def remove_training(folder: Path, log_folder: Path) -> None:
    """Remove checkpoints and logs of earlier trainings, but for the new one's ``log_folder``."""
    for path in [*checkpoints_in(folder), folder / 'last_checkpoint']:
        path.unlink(missing_ok=True)
    for path in folder.iterdir():
        is_log = LOG_FOLDER.fullmatch(path.name) and path.is_dir()
        if is_log and path.resolve() != log_folder.resolve():
            shutil.rmtree(path)
