"""Reproduction of the papers' tables: classifiers, statistics of position embeddings and attention.

Importing the package registers the classifier, its data, and its export (when, is in
`rope_dense.registration`); a config asks for it with `custom_imports = dict(imports=['research'])`.
No other package imports it, and an installed package is without it: it runs in a clone of the
repository.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rope_dense.registration import register

if TYPE_CHECKING:
    from .attention import BlockStatistics, attention_statistics
    from .frequencies import partial_sums, patch_frequencies, reconstruct

__all__ = [
    'BlockStatistics',
    'attention_statistics',
    'partial_sums',
    'patch_frequencies',
    'reconstruct',
]

_MODULES = dict(
    BlockStatistics='attention',
    attention_statistics='attention',
    partial_sums='frequencies',
    patch_frequencies='frequencies',
    reconstruct='frequencies',
)


def __getattr__(name: str) -> Any:
    """A name of ``__all__``, imported with its module: arguments are read without PyTorch."""
    if name in _MODULES:
        return getattr(import_module(f'.{_MODULES[name]}', __name__), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


for _module in ('classifier_graph', 'image_folder', 'subset_loss'):
    register(f'research.{_module}')
