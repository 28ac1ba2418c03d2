"""Parts of training that follow the published recipes."""

from .param_groups import NamedGroupsConstructor
from .subset_loss import SubsetLossHook

__all__ = ['NamedGroupsConstructor', 'SubsetLossHook']
