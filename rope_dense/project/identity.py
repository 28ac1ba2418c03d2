"""The identity of a model and its data, by which unfinished and stored results are recognised."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..version import __version__

if TYPE_CHECKING:
    from mmengine.config import Config

MEASURED_BY = ('model', 'test_dataloader', 'test_evaluator', 'test_cfg', 'custom_hooks')


@dataclass(frozen=True)
class Identity:
    """The model, data (by path and settings, not content) and package that rows belong to."""

    config: str
    config_sha256: str
    checkpoint: str
    checkpoint_sha256: str
    package_version: str = __version__

    @classmethod
    def of(cls, config: Config, config_name: str, checkpoint: str) -> Identity:
        """Of a config with all overrides; a checkpoint that is no file is known by its name."""
        settings = {name: config.get(name) for name in MEASURED_BY}
        text = json.dumps(settings, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return cls(config_name, digest, checkpoint, hash_of(checkpoint))

    def described(self) -> dict[str, str]:
        """Settings that results depend on, in words, for the settings of unfinished work."""
        return {
            'config (with its options), SHA-256': self.config_sha256[:16],
            'checkpoint, SHA-256': self.checkpoint_sha256[:16],
            'rope_dense': self.package_version,
        }

    def differences(self, other: dict) -> list[str]:
        """The parts of another identity that differ; names of files are not compared."""
        names = dict(
            config_sha256='config (with its options and data folders)',
            checkpoint_sha256='checkpoint',
            package_version='version of rope_dense',
        )
        found = []
        for name, words in names.items():
            if other.get(name) != getattr(self, name):
                found.append(words)
        return found


def hash_of(checkpoint: str) -> str:
    """SHA-256 of the content of a file, or of the name if it is no file."""
    path = os.path.expanduser(checkpoint)
    if not os.path.isfile(path):
        return hashlib.sha256(checkpoint.encode()).hexdigest()
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()
