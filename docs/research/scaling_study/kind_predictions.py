"""The predictions of kinds.md as quantities and bounds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from scores import LEAST, Scores, less
from verdicts import Check

DIRECTIONLESS, DIRECTED = ('fire', 'alibi'), ('lookhere', 'pape')
FOLLOWING = ('fire', 'golden', 'simplex')  # the grid, without a scaling


def checks(scores: Scores) -> Iterator[Check]:
    """Quantities of predictions 1 to 9."""
    finer = partial(scores, 'finer')
    for factor, how, bounds in (
        (4, 'none', dict(high=-10)),
        (2, 'linear', dict(low=1)),
        (4, 'linear', dict(low=1)),
    ):
        ahead = less(finer('axial', factor, how), finer('fire', factor))
        yield Check(1, f'finer at {factor}: axial, {how}, less FIRE', ahead, **bounds)
    for kind in DIRECTIONLESS + DIRECTED:
        bounds = dict(high=-1.5) if kind in DIRECTIONLESS else dict(low=-2, high=2)
        behind = less(finer(kind, 1), finer('axial', 1))
        yield Check(2, f'finer at 1: {kind} less axial', behind, **bounds)
    for kind in ('alibi', 'lookhere'):
        yield Check(
            3, f'finer, {kind}, none: change', scores.change('finer', kind), low=-2
        )
        gain = less(finer(kind, 2, 'distances'), finer(kind, 2))
        yield Check(3, f'finer at 2, {kind}: distances less none', gain, high=1.5)
    for how, bounds in (
        ('none', dict(high=-3)),
        ('distances', dict(low=-1.5, high=1.5)),
    ):
        yield Check(
            4,
            f'finer, pape, {how}: change',
            scores.change('finer', 'pape', how),
            **bounds,
        )
    for factor, bounds in ((2, dict(low=3)), (1, dict(high=-1))):
        ahead = less(finer('rope_id', factor), finer('axial', factor))
        yield Check(5, f'finer at {factor}, none: rope_id less axial', ahead, **bounds)
    yield from directions(scores)
    yield from together(scores)
    yield from rescaled(scores)
    for kind in FOLLOWING:
        yield Check(9, f'extent, {kind}: change', scores.change('extent', kind), low=2)


def directions(scores: Scores) -> Iterator[Check]:
    for kind in ('golden', 'simplex'):
        change = scores.change('finer', kind)
        yield Check(6, f'finer, {kind}: change', change, low=-1.5, high=1.5)
    for how in ('none', 'linear'):
        both = (scores('finer', kind, 2, how) for kind in ('golden_index', 'axial'))
        quantity = f'finer at 2, {how}: golden in patches less axial'
        yield Check(6, quantity, less(*both), low=-2, high=2)


def together(scores: Scores) -> Iterator[Check]:
    axial = scores('finer', 'axial', 2, 'linear')
    for kind, how in (('axial_fire', 'linear'), ('axial_alibi', 'linear+distances')):
        scaled = scores('finer', kind, 2, how)
        quantity = f'finer at 2, scaled: {kind} less axial'
        yield Check(7, quantity, less(scaled, axial), low=-1, high=1)
        if kind == 'axial_alibi':
            behind = less(scores('finer', kind, 2), scaled)
            yield Check(7, f'finer at 2, {kind}: none less scaled', behind, high=-6)


def rescaled(scores: Scores) -> Iterator[Check]:
    for kind, bounds in (('rope_id', dict(low=1)), ('golden', dict(low=-1, high=1))):
        gain = less(scores('finer', f'{kind}_rescale', 2), scores('finer', kind, 2))
        yield Check(
            8, f'finer at 2, {kind}, none: with rescaling less without', gain, **bounds
        )


def boxes(scores: Scores) -> Iterator[Check]:
    """Quantities of prediction 11; of scores whose 'way' is 'boxes'."""
    found = partial(scores, 'boxes')
    ahead = less(found('fire', 2), found('axial', 2))
    yield Check(11, 'boxes at 2, none: fire less axial', ahead, low=5)
    for kind in DIRECTIONLESS:
        ahead = less(found('axial', 1), found(kind, 1))
        yield Check(11, f'boxes at 1: axial less {kind}', ahead, low=3)
    scaled = less(found('axial', 2, 'linear'), found('fire', 2))
    yield Check(11, 'boxes at 2: axial, linear, less fire', scaled, low=LEAST)
