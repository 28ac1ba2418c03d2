"""The folder of a training, without PyTorch: its config, checkpoints and lock."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..utils.atomic_write import atomic_write_text
from ..utils.config_parts import nodes
from ..utils.lock import exclusive, lock
from .errors import UsageError

if TYPE_CHECKING:
    from mmengine.config import Config

CHECKPOINT = re.compile(r'(best_.+_)?(iter|epoch)_\d+\.pth')
LOG_FOLDER = re.compile(r'\d{8}_\d{6}')  # mmengine's, by the time of the start
RANKS = ('RANK', 'SLURM_PROCID', 'OMPI_COMM_WORLD_RANK')
SWEEP = "type='ResolutionLoop'"  # in the test_cfg that earlier versions wrote over a run's config


@dataclass(frozen=True)
class Run:
    """The folder of a training. Only a training writes these files; other commands read them.

    Other commands write results of their own names, such as predictions/ and report/, and logs.
    """

    folder: Path

    @property
    def config_file(self) -> str:
        """The path of the one config; UsageError for none or several."""
        # Earlier versions of ``rope-dense test`` wrote NAME_test.py beside it.
        found = [x for x in sorted(self.folder.glob('*.py')) if not x.stem.endswith('_test')]
        if len(found) != 1:
            names = ', '.join(file.name for file in found) or 'none'
            raise UsageError(
                f'{self.folder}: neither a run, which has one config (*.py; found: {names}), nor '
                'a stored model, which has config.json and model.safetensors'
            )
        if SWEEP in found[0].read_text(encoding='utf-8', errors='replace'):
            self.restore(found[0])
        return str(found[0])

    def restore(self, config: Path) -> None:
        """Replace a config, over which a sweep was written, by the copy in the training's log."""
        for copy in sorted(self.folder.glob('*/vis_data/config.py'), reverse=True):
            text = copy.read_text(encoding='utf-8')
            if SWEEP not in text and (copy.parent / 'scalars.json').is_file():
                if re.search(r'^resume *= *True$', text, re.MULTILINE):
                    for name, value in (('resume', False), ('load_from', None)):
                        text = re.sub(rf'(?m)^{name} *=.*$', f'{name} = {value}', text)
                atomic_write_text(config, text)
                print(f'{config}: eval-resolutions of an earlier version had replaced it; restored')
                return
        raise UsageError(
            f'{config}: eval-resolutions of an earlier version has replaced it, and no log folder '
            'of the training has a copy: give the config of the training and a checkpoint'
        )

    @property
    def record(self) -> dict:
        """File, metric, value, iteration and epoch of the best checkpoint; {} without a record."""
        try:
            return json.loads((self.folder / 'best_checkpoint.json').read_text(encoding='utf-8'))
        except (OSError, ValueError):
            return {}

    @property
    def best(self) -> str:
        """The best checkpoint, by the record; else the latest best one, else the last one.

        UsageError for none.
        """
        best = sorted(self.folder.glob('best_*.pth'))
        recorded = [path for path in best if path.name == self.record.get('file')]
        found = [str(path) for path in recorded or sorted(best, key=step_of)]
        if chosen := found[-1] if found else self.last:
            return chosen
        raise UsageError(f'{self.folder}: no checkpoint (best_*.pth or last_checkpoint)')

    @property
    def last(self) -> str | None:
        """The last checkpoint, in the folder also where that was copied or renamed."""
        record = self.folder / 'last_checkpoint'  # which mmengine writes
        if not record.is_file():
            return None
        written = record.read_text(encoding='utf-8').strip()
        here = self.folder / os.path.basename(written)
        return str(here) if here.is_file() else written

    def checkpoints(self) -> list[Path]:
        """The checkpoints that a training wrote, by their names."""
        return sorted(x for x in self.folder.glob('*.pth') if CHECKPOINT.fullmatch(x.name))

    def written(self, launcher: str = 'none') -> AbstractContextManager[object]:
        """Within this context, no other training can write the run; BlockingIOError if one does.

        Of several processes of a launcher the first holds the lock for all.
        """
        is_first = launcher == 'none' or all(os.environ.get(x, '0') == '0' for x in RANKS)
        return exclusive(self.folder / 'training') if is_first else nullcontext()

    def check_new(self, cfg: Config, overwrite: bool, is_locked: bool = False) -> None:
        """Raise UsageError for a new training that would mix with the run.

        Or, with ``overwrite`` (see ``clear``), that starts from a file that it would remove;
        BlockingIOError if another training writes the run, unless it ``is_locked`` by this one.
        """
        found = self.checkpoints()
        if overwrite and cfg.get('resume'):
            raise UsageError('resume (--resume) and overwrite (--overwrite): give one of them')
        if found and not overwrite and not cfg.get('resume'):
            if not is_locked and (file := self.folder / '.training.lock').is_file():
                with file.open('r+') as opened:  # the text stays
                    lock(opened, self.folder, 0)
            raise UsageError(
                f'{self.folder} has {len(found)} checkpoints of an earlier run, such as '
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

    def clear(self, log_folder: Path) -> None:
        """Remove checkpoints, their records, and logs but for the new training's."""
        records = [self.folder / name for name in ('last_checkpoint', 'best_checkpoint.json')]
        for path in [*self.checkpoints(), *records]:
            path.unlink(missing_ok=True)
        for path in self.folder.glob('*/'):
            if LOG_FOLDER.fullmatch(path.name) and path.resolve() != log_folder.resolve():
                shutil.rmtree(path)


def step_of(path: Path) -> int:
    """The iteration or epoch in the name of a checkpoint; -1 for none."""
    step = path.stem.rpartition('_')[2]
    return int(step) if step.isdecimal() else -1
