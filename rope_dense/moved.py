"""Modules that moved: the old name, which a stored config may have, imports the new module."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    'backbones.relative_prefix': 'backbones.position_bias',
    'checkpoints.likeness': 'checkpoints.incompatible',
    'datasets.dense.stages': 'data.dense.batch',
    'datasets.dense_stages': 'models.deim.recipe',
    'datasets.depth': 'data.map_datasets',
    'datasets.generated.files': 'data.generated.shape_files',
    'datasets.images.deep': 'data.images.bands',
    'datasets.masks': 'data.map_datasets',
    'datasets.photometric': 'data.dense.photometric',
    'datasets': 'data',
    'engine.best_restart': 'engine.checkpoint_hook',
    'engine.early_stopping': 'engine.checkpoint_hook',
    'engine.log_line': 'engine.progress_hook',
    'engine.param_groups': 'engine.optimizer',
    'engine.two_stage_warmup': 'engine.optimizer',
    'integrations.detectron2': 'models.detectron2',
    'integrations.hub': 'project.hub',
    'integrations.hub_config': 'project.hub_config',
    'integrations': 'models',
    'large_images.segmentation': 'data.tiles.evaluation',
    'large_images.tiles': 'data.tiles.plan',
    'large_images': 'data.tiles',
    'models.depth_head': 'models.depth',
    'models.depth_loss': 'models.depth',
    'models.dino_head': 'models.dino',
    'models.eomt.head': 'models.eomt.detector',
    'models.eomt.seg_head': 'models.eomt.segmentor',
    'models.linear_head': 'models.depth',
    'project.errors': 'utils.errors',
    'report.matching': 'report.objects',
    'utils.atomic_write': 'utils.disk',
    'utils.peak_memory': 'utils.process',
}  # the first that fits, with what follows it
GONE = {'research': 'research, in a clone beside rope_dense'}


class MovedModules(MetaPathFinder, Loader):
    """Finds the modules of ``MOVED`` for Python's ``import``."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition('.')
        if package != __package__:
            return None
        if name in GONE:
            raise ImportError(f'{fullname} is now {GONE[name]}: import it from there')
        return ModuleSpec(fullname, self) if new_name(name) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        name = spec.name.partition('.')[2]
        module = import_module(f'{__package__}.{new_name(name)}')
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its specification back; it was executed under its new name."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def new_name(name: str) -> str | None:
    """The new name of a module, both without the package's; None if it is where it was."""
    for old, new in MOVED.items():
        if name == old or name.startswith(f'{old}.'):
            return new + name.removeprefix(old)
    return None


sys.meta_path.insert(0, MovedModules())
