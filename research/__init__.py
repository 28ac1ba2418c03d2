"""Reproduction of the papers' tables: classifiers, statistics of position embeddings and attention.

Importing the package registers the classifier, its data, and its export; a config asks for it with
`custom_imports = dict(imports=['research'])`. No other package imports it, and an
installed package is without it: it runs in a clone of the repository.
"""

from . import classifier_graph, image_folder, subset_loss
from .attention import BlockStatistics, attention_statistics
from .frequencies import partial_sums, patch_frequencies, reconstruct

__all__ = [
    'BlockStatistics',
    'attention_statistics',
    'classifier_graph',
    'image_folder',
    'partial_sums',
    'patch_frequencies',
    'reconstruct',
    'subset_loss',
]
