"""Statistics of position embeddings and of attention."""

from .attention import BlockStatistics, attention_statistics
from .frequencies import partial_sums, patch_frequencies, reconstruct

__all__ = [
    'BlockStatistics',
    'attention_statistics',
    'partial_sums',
    'patch_frequencies',
    'reconstruct',
]
