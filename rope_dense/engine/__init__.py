"""Parts of training that follow the published recipes."""

from .param_groups import NamedGroupsConstructor

__all__ = ['NamedGroupsConstructor']
