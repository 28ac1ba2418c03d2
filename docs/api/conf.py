"""Settings of Sphinx for the guides and the pages of the API; `make docs` writes both."""

from mmengine import registry
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

import rope_dense

project, version = 'rope_dense', rope_dense.__version__
extensions = [
    'myst_parser',
    'sphinx.ext.autodoc',
    'sphinx.ext.napoleon',
    'sphinx.ext.viewcode',
]
myst_heading_anchors = 3
exclude_patterns = ['guides/api']
# Links to configs and benchmarks, which are no pages here (test_pages.py tests them), and words of
# docstrings, such as height, that are fields of several classes.
suppress_warnings = ['myst.xref_missing', 'ref.python']
autodoc_default_options = {
    'ignore-module-all': True
}  # each object once, where it is defined
autodoc_inherit_docstrings = False
autodoc_member_order = 'bysource'
autodoc_mock_imports = ['detectron2', 'timm']
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # fields of a NamedTuple are members, too


def check_registered(app: Sphinx, exception: Exception | None) -> None:
    """Raise ExtensionError unless each class that the package registers is on a page."""
    registries = [
        part for part in vars(registry).values() if isinstance(part, registry.Registry)
    ]
    classes = {kind for part in registries for kind in part.module_dict.values()}
    names = {f'{kind.__module__}.{kind.__qualname__}' for kind in classes}
    registered = {name for name in names if name.startswith('rope_dense.')}
    missing = registered - set(app.env.domaindata['py']['objects'])
    if exception is None and (missing or not registered):
        raise ExtensionError(
            f'registered, and on no page: {sorted(missing)} of {len(registered)}'
        )


def setup(app: Sphinx) -> None:
    app.connect('build-finished', check_registered)
