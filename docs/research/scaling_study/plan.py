"""What the study runs: the arms, and the points at which each is tested.

A run is one training from scratch, or one fine-tuning of such a model, with all its tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

SEEDS = (0, 1, 2)
WIDER_SEEDS = (3, 4, 5, 6, 7)  # of wider.md
KEPT = ('none', 'by_parts')  # beside temperatures
SIZE = (120, 160)  # height and width in pixels of what is trained on
WINDOW = (6, 8)  # height and width in tokens, of the backbones with windows
WHOLE = (240, 320)  # of the images on disk
TUNED_FACTOR = 2.0  # fine-tuning is on whole images on disk
CONFIGS = {
    'vit': 'linear_vit_rope_mixed_camvid.py',
    'vit_windows': 'linear_vit_windows_rope_mixed_camvid.py',
    'swin': 'linear_swin_rope_mixed_camvid.py',
}
POSITIONS: dict[str, dict] = {  # arguments of the backbone
    'ape': dict(rope=None, use_ape=True),
    'bias': dict(rope=None, attention=dict(type='TableBias')),
    'none': dict(rope=None),
    'axial': dict(
        rope=dict(type='AxialRoPE', theta=100.0)
    ),  # Swin: 50, see ``backbone_of``
    'mixed': dict(rope=dict(type='MixedRoPE', theta=10.0)),
    'log_axial': dict(rope=dict(type='LogAxialRoPE')),
}
CORNERS = dict(
    type='corners', normalize='max', windows='map'
)  # -1 to 1 along the longer side
KINDS: dict[str, dict] = {  # of the study of kinds, kinds.md
    'golden': dict(rope=dict(type='DirectionRoPE', coordinates=CORNERS)),
    # In patches, with the range of axial, 1 to 100 ** (-7 / 8).
    'golden_index': dict(
        rope=dict(
            type='DirectionRoPE',
            low=0.018,
            high=1.0,
            zeros=0.0,
            coordinates=dict(type='index'),
        )
    ),
    'simplex': dict(
        rope=dict(type='DirectionRoPE', directions='simplex', coordinates=CORNERS)
    ),
    # Four frequencies of an axis, the lowest 2 pi / 12: a full turn along both sides of the grid.
    'rope_id': dict(rope=dict(type='AxialRoPE', k_rope=2, theta=2.37)),
    'fire': dict(rope=None, attention=dict(type='FIRE')),
    'alibi': dict(rope=None, attention=dict(type='ALiBi2D')),
    'lookhere': dict(rope=None, attention=dict(type='LookHere')),
    'pape': dict(rope=None, attention=dict(type='PaPE')),
    'axial_fire': dict(POSITIONS['axial'], attention=dict(type='FIRE')),
    'axial_alibi': dict(POSITIONS['axial'], attention=dict(type='ALiBi2D')),
}
# Of the study of prefix tokens, prefix.md: a class token, four registers after it, both without an
# absolute origin.
CLASS, REGISTERS = dict(with_cls_token=True), dict(with_cls_token=True, num_registers=4)
PREFIXES: dict[str, dict] = {
    f'{rope}_{prefix}': POSITIONS[rope] | settings
    for prefix, settings in (
        ('registers', REGISTERS),
        ('relative', REGISTERS | dict(attention=dict(type='RelativePrefix'))),
        ('class', CLASS),
    )
    for rope in ('axial', 'mixed')
}
# Whole images at the training size; crops of that size; crops of images resized 0.5 to 2 times.
PIPELINES = {
    'finer': [
        dict(type='Resize', scale=SIZE[::-1], keep_ratio=False, interpolation='area')
    ],
    'extent': [dict(type='RandomCrop', crop_size=SIZE)],
    'augmented': [
        dict(
            type='RandomResize',
            scale=SIZE[::-1],
            ratio_range=(0.5, 2.0),
            keep_ratio=True,
            interpolation='area',
        ),
        dict(type='RandomCrop', crop_size=SIZE, cat_max_ratio=0.75),
    ],
}
FACTORS = {
    'finer': (0.5, 1.0, 1.5, 2.0, 3.0),
    'extent': (1.0, 1.5, 2.0),
    'augmented': (0.5, 1.0, 1.5, 2.0, 3.0),
}
PARTS = (
    (0.25, 0.5),
    (0.5, 1),
    (0.5, 2),
    (1, 4),
    (2, 4),
    (1, 32),
)  # alpha, beta; default (1, 2)
SCALINGS: dict[str, dict | None] = {
    'none': None,
    'linear': dict(type='linear'),
    **{
        f'linear:{s:g}': dict(type='linear', factor=s)
        for s in (0.25, 0.5, 0.75, 1.5, 2.0)
    },
    'ntk': dict(type='ntk'),
    'by_parts': dict(type='by_parts'),
    # Up to 0.75 periods linear, from 1.25 NTK, from 2 or 16 unscaled.
    'by_parts:ntk': dict(type='by_parts', ntk=(0.75, 1.25)),
    'by_parts:ntk16': dict(type='by_parts', ntk=(0.75, 1.25), alpha=2.0, beta=16.0),
    # unit='grid' of ALiBi, LookHere and PaPE.
    'distances': None,
    'linear+distances': dict(type='linear'),
    **{
        f'by_parts {a:g} {b:g}': dict(type='by_parts', alpha=a, beta=b)
        for a, b in PARTS
    },
    **{
        f'{kind}+{temperature}': dict(type=kind, temperature=temperature)
        for kind in ('none', 'by_parts')
        for temperature in ('log', 'yarn')
    },
}


GROWN_BOTH_WAYS = {  # test points of models that were trained the other way: factor, scalings
    'finer': {  # of what is trained on crops: objects are half the factor as large as in training
        0.5: ('none', 'linear:0.25', 'linear:0.5'),
        1.0: ('none', 'linear:0.5'),
        1.5: ('none', 'linear:0.75', 'linear'),
        2.0: ('none', 'linear'),
        3.0: ('none', 'linear:1.5', 'linear'),
    },
    'extent': {  # of what is trained on whole images: objects are twice as large as in training
        1.0: ('none', 'linear:2'),
        1.5: ('none', 'linear', 'linear:2'),
        2.0: ('none', 'linear'),
    },
}


@dataclass(frozen=True)
class Run:
    """One training and its tests, or more tests of its weights.

    Attributes:
        seed: of weights and of the order and augmentation of images.
        way: what is trained on, a key of ``PIPELINES``, and how test images then grow.
        backbone: a key of ``CONFIGS``.
        position: a key of ``POSITIONS``, with the suffix '_rescale' for random rescaling of the
            coordinates in training or '_reference' for coordinates that fit the grid.
        tuned: the scaling of a fine-tuning at twice the size, a key of ``SCALINGS``; None for a
            training from scratch.
        tested: the way, if it is not the one of the training; with the weights of ``parent``.
    """

    seed: int
    way: str
    backbone: str
    position: str
    tuned: str | None = None
    tested: str | None = None

    @property
    def name(self) -> str:
        parts = [self.way, self.backbone, self.position]
        parts += [f'tuned_{self.tuned}'] if self.tuned else []
        parts += [f'tested_{self.tested}'] if self.tested else []
        return '_'.join([*parts, f'seed{self.seed}'])

    @property
    def parent(self) -> Run | None:
        """The training whose weights are fine-tuned or tested."""
        return (
            replace(self, tuned=None, tested=None)
            if self.tuned or self.tested
            else None
        )


@dataclass(frozen=True)
class Point:
    """One test of a model.

    Attributes:
        factor: of the sides of the training size.
        scaling: a key of ``SCALINGS``.
        grown_windows: whether windows grow with the image (Swin) or keep their tokens.
    """

    factor: float
    scaling: str = 'none'
    grown_windows: bool = False


def runs(seeds: Iterable[int] = SEEDS) -> list[Run]:
    """All runs, seed by seed, the main ones of each first."""
    return [Run(seed, *arm) for seed in seeds for arm in arms()]


def arms() -> list[tuple[str | None, ...]]:
    """The attributes of all runs of a seed, without the seed."""
    ways, kinds = ('finer', 'extent'), ('ape', 'axial', 'mixed', 'log_axial', 'none')
    main = [(way, 'vit', kind) for way in ways for kind in kinds]
    usual = [('augmented', 'vit', kind) for kind in ('ape', 'axial', 'mixed')]
    rotary = ('axial', 'mixed')
    told = [
        (way, 'vit', f'{kind}_{how}')
        for how in ('rescale', 'reference')
        for way in ways
        for kind in rotary
    ]
    both_ways = [
        (way, 'vit', kind, None, other)
        for way, other in (ways, ways[::-1])
        for kind in ('ape', 'axial', 'mixed', 'none')
    ]
    tuned = [(*arm, 'none') for arm in main]
    tuned += [
        ('finer', 'vit', kind, how) for kind in rotary for how in ('linear', 'by_parts')
    ]
    swin = [
        (way, 'swin', kind)
        for way in ways
        for kind in ('bias', 'axial', 'mixed', 'log_axial', 'none')
    ]
    windows = [(way, 'vit_windows', kind) for way in ways for kind in kinds]
    return main + usual + told + both_ways + tuned + swin + windows


def backbone_of(run: Run) -> dict:
    """The arguments of the backbone that a run differs in from its config."""
    kind, _, suffix = run.position.rpartition('_')
    if suffix not in ('rescale', 'reference'):
        kind, suffix = run.position, None
    settings = dict((POSITIONS | KINDS | PREFIXES)[kind])
    if settings['rope'] is None:
        return settings
    rope = dict(settings['rope'], _delete_=True)
    if kind == 'axial' and run.backbone == 'swin':
        rope['theta'] = 50.0
    if suffix == 'rescale':
        rope['coordinates'] = dict(rope.get('coordinates', {}), rescale=2.0)
    elif suffix == 'reference':
        rope['coordinates'] = dict(reference=(12, 16))
    return dict(settings, rope=rope)


def points(run: Run) -> list[Point]:
    """The tests of a run; at sizes up to that of the training only a fixed factor scales."""
    if run.tuned:
        return [Point(1.0), Point(TUNED_FACTOR, run.tuned)]
    if run.tested:
        names = {'none', *(scalings(run) and SCALINGS)}
        tests = GROWN_BOTH_WAYS[run.tested].items()
        return [
            Point(factor, how) for factor, hows in tests for how in hows if how in names
        ]
    tests = [Point(factor) for factor in FACTORS[run.way]]
    if run.backbone == 'swin':
        grown = [
            Point(factor, grown_windows=True)
            for factor in FACTORS[run.way]
            if factor != 1
        ]
        tests += grown
    if run.backbone == 'vit' and run.way != 'extent' and scalings(run):
        tests.append(Point(0.5, 'linear:0.5'))
    larger = [factor for factor in FACTORS[run.way] if factor > 1]
    scaled = [
        Point(f, how, run.backbone == 'swin') for how in scalings(run) for f in larger
    ]
    if (
        run.backbone == 'vit'
        and run.way != 'augmented'
        and run.position in ('axial', 'mixed')
    ):
        others = [how for how in SCALINGS if ' ' in how or '+' in how]
        scaled += [Point(factor, how) for how in others for factor in (1.5, 2.0)]
    return tests + scaled


def scalings(run: Run) -> list[str]:
    """The scalings that all larger sizes are tested with, but for none."""
    if run.position in ('axial', 'axial_rescale'):
        return ['linear', 'ntk', 'by_parts']
    return ['linear', 'by_parts'] if run.position in ('mixed', 'mixed_rescale') else []


def chosen() -> list[tuple[str, str, str]]:
    """Arms with several seeds: in *finer* at 2 within 3 points of the best, with seed 0."""
    return [
        (way, 'vit', kind)
        for kind in ('pape', 'golden_index')
        for way in ('finer', 'extent')
    ]


def kind_runs(seeds: Iterable[int] = SEEDS) -> list[Run]:
    """All runs of the study of kinds: every arm with the first seed, then ``chosen`` ones."""
    every = [Run(0, *arm) for arm in kind_arms()] if 0 in seeds else []
    return every + [Run(seed, *arm) for seed in seeds if seed for arm in chosen()]


def kind_arms() -> list[tuple[str, str, str]]:
    """Way, backbone and position of the runs of a seed, the trainings of the first study last."""
    arms = [(way, 'vit', kind) for way in ('finer', 'extent') for kind in KINDS]
    arms += [
        (way, 'vit', f'{kind}_rescale')
        for way in ('finer', 'extent')
        for kind in ('golden', 'rope_id')
    ]
    arms += [('finer', 'vit', kind) for kind in ('axial', 'mixed', 'ape', 'none')]
    return arms + [('augmented', 'vit', kind) for kind in KINDS]


def kind_points(run: Run) -> list[Point]:
    """The tests of a run of the study of kinds."""
    factors = FACTORS[run.way] + ((4.0,) if run.way == 'finer' else ())
    others = kind_scalings(run.position.removesuffix('_rescale'))
    tests = [Point(factor) for factor in factors]
    scaled = [Point(factor, how) for how in others for factor in factors if factor > 1]
    return tests + [point for point in scaled if point != Point(4.0, 'by_parts')]


def kind_scalings(kind: str) -> tuple[str, ...]:
    """The scalings of a key of ``KINDS`` or ``POSITIONS``, but for none."""
    if kind in ('alibi', 'lookhere', 'pape'):
        return ('distances',)
    if kind == 'axial_alibi':
        return ('linear', 'linear+distances')
    rotary = ('axial', 'mixed', 'golden_index', 'rope_id', 'axial_fire')
    return ('linear', 'by_parts') if kind in rotary else ()


def prefix_runs(seeds: Iterable[int] = SEEDS) -> list[Run]:
    """All runs of the study of prefix tokens, seed by seed."""
    return [
        Run(seed, 'finer', 'vit', position) for seed in seeds for position in PREFIXES
    ]


def prefix_points(run: Run) -> list[Point]:
    """The tests of a run of the study of prefix tokens: no scaling, and linear."""
    tests = [Point(factor) for factor in (0.5, 1.0, 1.5, 2.0)]
    return [
        *tests,
        Point(0.5, 'linear:0.5'),
        Point(1.5, 'linear'),
        Point(2.0, 'linear'),
    ]


def wider_runs(seeds: Iterable[int] = WIDER_SEEDS) -> list[Run]:
    """All runs of the study of temperatures in a wider view, seed by seed."""
    return [
        Run(seed, 'extent', 'vit', position)
        for seed in seeds
        for position in ('axial', 'mixed')
    ]


def wider_points(run: Run) -> list[Point]:
    """The tests of a run of the study of temperatures in a wider view."""
    temperatures = [f'{kind}+{how}' for kind in KEPT for how in ('log', 'yarn')]
    names = [*KEPT, *temperatures]
    if run.position == 'axial':
        names += ['by_parts:ntk', 'by_parts:ntk16']
    larger = [Point(factor, how) for how in names for factor in (1.5, 2.0)]
    return [Point(1.0), *larger]
