"""The folder of a training, without PyTorch: its config, checkpoints and lock."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..utils.config_parts import nodes
from ..utils.disk import BEST, LAST, TRAINING, atomic_write_text, read_json_or_empty
from ..utils.errors import UsageError
from ..utils.results import Results, read_records

if TYPE_CHECKING:
    from mmengine.config import Config

CHECKPOINT = re.compile(r'(best_.+_)?(iter|epoch)_\d+\.pth')
LOGS = (  # of mmengine, by the time of a start
    '{0}/{0}*.log',  # one a process
    '{0}/vis_data/{0}.json',
    '{0}/vis_data/scalars.json',
    '{0}/vis_data/config.py',
    '{0}/vis_data/events.out.tfevents.*',
)
# Folders with their records
OWN = ('', TRAINING), ('', 'resolutions.json'), ('report', ''), ('scaling', '')
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
        files = sorted(self.folder.glob('*.py'))
        # Earlier versions of ``rope-dense test`` wrote NAME_test.py beside it.
        found = [file for file in files if not file.stem.endswith('_test')]
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
                print(
                    f'{config}: eval-resolutions of an earlier version had replaced it; restored'
                )
                return
        raise UsageError(
            f'{config}: eval-resolutions of an earlier version has replaced it, and no log folder '
            'of the training has a copy: give the config of the training and a checkpoint'
        )

    @property
    def record(self) -> dict:
        """File, metric, value, iteration and epoch of the best checkpoint; {} without a record."""
        return read_json_or_empty(self.folder / BEST)

    @property
    def best(self) -> str:
        """The best checkpoint, by the record; else the latest best one, else the last one.

        UsageError for none.
        """
        named = self.record.get('file')
        best = max(
            self.folder.glob('best_*.pth'),
            key=lambda path: (path.name == named, step_of(path), path.name),
            default=self.last,
        )
        if best:
            return str(best)
        raise UsageError(
            f'{self.folder}: no checkpoint (best_*.pth or last_checkpoint)'
        )

    @property
    def last(self) -> str | None:
        """The last checkpoint, in the folder also where that was copied or renamed."""
        record = self.folder / LAST  # which mmengine writes
        if not record.is_file():
            return None
        written = record.read_text(encoding='utf-8').strip()
        here = self.folder / os.path.basename(written)
        return str(here) if here.is_file() else written

    def checkpoints(self) -> list[Path]:
        """The checkpoints that a training wrote, by their names."""
        files = sorted(self.folder.glob('*.pth'))
        return [file for file in files if CHECKPOINT.fullmatch(file.name)]

    def written(self, launcher: str = 'none') -> AbstractContextManager[object]:
        """Within this context, no other training can write the run; BlockingIOError if one does.

        Of several processes of a launcher the first holds the lock for all; None for the others.
        """
        return Results(self.folder, TRAINING) if is_first(launcher) else nullcontext()

    def check_new(
        self, cfg: Config, overwrite: bool, others: Sequence[str] = ()
    ) -> None:
        """Raise UsageError for a new training that would mix with the run.

        Or, with ``overwrite`` (see ``clear``), that starts from a file that it would remove;
        ForeignFileError if the training could write over a file of the user's.

        Args:
            others: names of files that it writes beside its config, checkpoints and lists.
        """
        resumes = bool(cfg.get('resume'))
        if overwrite and resumes:
            raise UsageError(
                'resume (--resume) and overwrite (--overwrite): give one of them'
            )
        found = [] if resumes else self.checkpoints()
        if found and not overwrite:
            raise UsageError(
                f'{self.folder} has {len(found)} checkpoints of an earlier run, such as '
                f'{found[-1].name}: continue it by resume (--resume), give another work_dir '
                '(--work-dir), or remove it by overwrite (--overwrite)'
            )
        names = [os.path.basename(cfg.filename)]
        if not resumes:  # another program may have written these
            names += [LAST, BEST]
        names += others
        files = found + [self.folder / name for name in names]
        self.recorded(names).check(files)
        if overwrite:
            self.check_kept(cfg)

    def check_kept(self, cfg: Config) -> None:
        """Raise UsageError if ``clear`` removes a file that the training starts from."""
        sources = [node.get('checkpoint') for _, node in nodes(cfg.model)]
        sources.append(cfg.get('load_from'))
        removed = {path.resolve() for path in self.removed(cfg)}
        for source in filter(None, sources):
            if Path(str(source)).resolve() in removed:
                raise UsageError(
                    f'overwrite (--overwrite) would remove {source}, from which the training starts'
                )

    def recorded(self, names: Sequence[str]) -> Results:
        """What trainings wrote; of an earlier version, without a record, also ``names``."""
        results = Results(self.folder, TRAINING)
        if read_records(self.folder, TRAINING):
            return results
        listed = [os.path.basename(self.last or ''), str(self.record.get('file', ''))]
        if any((self.folder / name).is_file() for name in listed):
            logs = self.folder.glob('*/*.log')
            found = [log for log in logs if log.stem == log.parent.name]
            found += [self.folder / name for name in (*listed, *names)]
            for path in filter(Path.is_file, found):
                results.note(path, path)
        return results

    def removed(self, cfg: Config) -> list[Path]:
        """The files that ``clear`` removes."""
        found: list[Path] = []
        for part, name in OWN:
            found += Results(self.folder / part, name).paths(name)
        for name in read_records(self.folder, TRAINING):
            if name.endswith('.log'):
                time = os.path.dirname(name)
                for log in LOGS:
                    found += self.folder.glob(log.format(time))
        given = Path(cfg.filename).resolve()
        return [path for path in dict.fromkeys(found) if path.resolve() != given]

    def clear(self, cfg: Config) -> None:
        """Remove what the run and its report wrote and nobody has changed; a line says how much.

        The config that is trained by stays.
        """
        gone = self.removed(cfg)
        for path in gone:
            path.unlink()
            for folder in path.parents[:2]:
                with suppress(OSError):  # other files are in it
                    folder.rmdir()
        if gone:
            print(f'{self.folder}: {len(gone)} files of the earlier run were removed')


def is_first(launcher: str) -> bool:
    """Return whether this is the first process of a launcher, before processes are connected."""
    return launcher == 'none' or all(os.environ.get(name, '0') == '0' for name in RANKS)


def step_of(path: Path) -> int:
    """The iteration or epoch in the name of a checkpoint; -1 for none."""
    step = path.stem.rpartition('_')[2]
    return int(step) if step.isdecimal() else -1
