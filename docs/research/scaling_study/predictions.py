"""The predictions of README.md as quantities and bounds."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

from plan import PARTS
from scores import LEAST, Scores, Values, less
from verdicts import Check

ROTARY = ('axial', 'mixed')
WAYS = ('finer', 'extent')
PARTS_NAMES = ('by_parts', *(f'by_parts {alpha:g} {beta:g}' for alpha, beta in PARTS))
OF_GRID = ('none', 'linear')  # follow the grid
TEMPERATURES = ('none+log', 'none+yarn', 'by_parts+log', 'by_parts+yarn')


def checks(scores: Scores) -> Iterator[Check]:
    for position in ROTARY:
        yield from claim_of_the_paper(scores, position)
        yield from ways_to_grow(scores, position)
        yield from by_parts(scores, position)
        yield from temperatures_and_ntk(scores, position)
        yield from rescaled(scores, position)
        yield from augmented(scores, position)
        yield from in_windows(scores, position)
        yield from tuned(scores, position)
        yield from shrunk(scores, position)
        yield from grown_both_ways(scores, position)
    yield Check(1, 'finer, APE: change', scores.change('finer', 'ape'), low=-2)
    yield Check(3, 'extent, APE: change', scores.change('extent', 'ape'), high=-2)
    yield from fitting_the_grid(scores)
    for way in WAYS:
        for how in ('none', 'linear', 'by_parts'):
            both = less(scores(way, 'mixed', 2, how), scores(way, 'axial', 2, how))
            yield Check(11, f'{way} at 2, {how}: mixed less axial', both, nothing=True)


def claim_of_the_paper(scores: Scores, position: str) -> Iterator[Check]:
    change = scores.change('finer', position)
    behind = less(change, scores.change('finer', 'ape'))
    yield Check(
        1, f'finer, {position}, none: change less that of APE', behind, high=-LEAST
    )
    yield Check(1, f'finer, {position}, none: change', change, high=-5)


def ways_to_grow(scores: Scores, position: str) -> Iterator[Check]:
    linear = scores('finer', position, 2, 'linear')
    ahead = less(linear, scores('finer', position, 2))
    yield Check(2, f'finer at 2, {position}: linear less none', ahead, low=4)
    change = scores.change('finer', position, 'linear')
    for other, name in (('none', 'no positions'), ('ape', 'APE')):
        quantity = f'finer, {position}, linear: change less that of {name}'
        yield Check(
            2, quantity, less(change, scores.change('finer', other)), low=-2, high=2
        )
    none, linear = (scores('extent', position, 2, how) for how in ('none', 'linear'))
    yield Check(
        3, f'extent at 2, {position}: none less linear', less(none, linear), low=2
    )
    yield Check(
        3,
        f'extent, {position}, none: change',
        scores.change('extent', position),
        low=-1,
    )


def by_parts(scores: Scores, position: str) -> Iterator[Check]:
    for way in WAYS:
        yield between(scores, 4, way, position, 'by_parts')
        for how in ('by_parts 2 4', 'by_parts 1 32'):
            quantity = f'{way} at 2, {position}: {how} less linear'
            values = less(
                scores(way, position, 2, how), scores(way, position, 2, 'linear')
            )
            yield Check(4, quantity, values, low=-0.5, high=0.5)
    either = (worst_loss(scores, position, how) for how in ('none', 'linear'))
    extremes = smallest(either)
    compromise = {how: worst_loss(scores, position, how) for how in PARTS_NAMES}
    if not all(compromise.values()):
        return
    best = min(compromise, key=lambda how: mean(compromise[how].values()))
    quantity = (
        f'{position} at 2: worst loss of {best} less the smaller one of none and linear'
    )
    yield Check(4, quantity, less(compromise[best], extremes), high=-LEAST)


def shrunk(scores: Scores, position: str) -> Iterator[Check]:
    stretched, none = (
        scores('finer', position, 0.5, how) for how in ('linear:0.5', 'none')
    )
    quantity = f'finer at 0.5, {position}: linear by 0.5 less none'
    yield Check(12, quantity, less(stretched, none), low=4)


def grown_both_ways(scores: Scores, position: str) -> Iterator[Check]:
    def at(way: str, tested: str, factor: float, how: str) -> Values:
        return scores(way, position, factor, how, tested=tested)

    for factor, of_objects, others in (
        (1, 'linear:0.5', ('none',)),
        (3, 'linear:1.5', OF_GRID),
    ):
        for other in others:
            quantity = f'crops, tested finer at {factor}, {position}: {of_objects} less {other}'
            ahead = less(
                at('extent', 'finer', factor, of_objects),
                at('extent', 'finer', factor, other),
            )
            yield Check(13, quantity, ahead, low=2 if factor == 1 else LEAST)
    quantity = f'whole, tested as quarters alone, {position}: linear:2 less none'
    ahead = less(at('finer', 'extent', 1, 'linear:2'), at('finer', 'extent', 1, 'none'))
    yield Check(13, quantity, ahead, low=2)


def between(
    scores: Scores, prediction: int, way: str, position: str, how: str
) -> Check:
    """How far a scaling lies outside none and linear: 0 between them."""
    value, none, linear = (
        scores(way, position, 2, name) for name in (how, 'none', 'linear')
    )
    outside = {
        seed: max(min(none[seed], linear[seed]) - value[seed], 0)
        + max(value[seed] - max(none[seed], linear[seed]), 0)
        for seed in value.keys() & none.keys() & linear.keys()
    }
    quantity = f'{way} at 2, {position}: {how} outside none and linear, by'
    return Check(prediction, quantity, outside, low=0, high=LEAST)


def worst_loss(scores: Scores, position: str, how: str) -> Values:
    """Points behind the better one of none and linear at 2, in the way where they are more."""
    losses = []
    for way in WAYS:
        none, linear = scores(way, position, 2), scores(way, position, 2, 'linear')
        better = {
            seed: max(none[seed], linear[seed]) for seed in none.keys() & linear.keys()
        }
        losses.append(less(better, scores(way, position, 2, how)))
    common = losses[0].keys() & losses[1].keys()
    return {seed: max(loss[seed] for loss in losses) for seed in common}


def smallest(several: Iterator[Values]) -> Values:
    first, second = several
    return {
        seed: min(first[seed], second[seed]) for seed in first.keys() & second.keys()
    }


def temperatures_and_ntk(scores: Scores, position: str) -> Iterator[Check]:
    for way in WAYS:
        if position == 'axial':
            yield between(scores, 5, way, position, 'ntk')
        for how in TEMPERATURES:
            without = how.partition('+')[0]
            values = less(
                scores(way, position, 2, how), scores(way, position, 2, without)
            )
            yield Check(
                5, f'{way} at 2, {position}: {how} less {without}', values, nothing=True
            )


def fitting_the_grid(scores: Scores) -> Iterator[Check]:
    for fitting, position in (
        ('log_axial', 'axial'),
        ('axial_reference', 'axial'),
        ('mixed_reference', 'mixed'),
    ):
        quantity = f'finer, {fitting}: change less that of {position} with linear'
        linear = scores.change('finer', position, 'linear')
        values = less(scores.change('finer', fitting), linear)
        yield Check(6, quantity, values, low=-2, high=2)
        change = scores.change('extent', fitting)
        yield Check(6, f'extent, {fitting}: change', change, high=-2)


def rescaled(scores: Scores, position: str) -> Iterator[Check]:
    augmented = f'{position}_rescale'
    for way, wrong in (('finer', 'none'), ('extent', 'linear')):
        values = less(scores(way, augmented, 1), scores(way, position, 1))
        quantity = f'{way} at 1, {position}: with rescaling less without'
        yield Check(7, quantity, values, low=-1)
        plain = scores.change(way, position, wrong)
        half = {seed: value / 2 for seed, value in plain.items()}
        values = less(scores.change(way, augmented, wrong), half)
        quantity = f'{way}, {position}, {wrong}: change with rescaling less half of that without'
        yield Check(7, quantity, values, low=0)


def augmented(scores: Scores, position: str) -> Iterator[Check]:
    none, linear = (scores('augmented', position, 2, how) for how in ('none', 'linear'))
    quantity = f'augmented at 2, {position}: none less linear'
    yield Check(8, quantity, less(none, linear), low=LEAST)
    change = scores.change('augmented', position)
    yield Check(8, f'augmented, {position}, none: change', change, low=-2, high=2)


def in_windows(scores: Scores, position: str) -> Iterator[Check]:
    everywhere = scores.change('finer', position)
    windows, swin = (
        scores.change('finer', position, backbone=backbone)
        for backbone in ('vit_windows', 'swin')
    )
    quantity = f'finer, {position}, none: change of'
    values = less(windows, everywhere)
    yield Check(9, f'{quantity} ViT in windows less global ViT', values, low=LEAST)
    yield Check(
        9, f'{quantity} Swin less ViT in windows', less(swin, windows), low=LEAST
    )
    none, linear = (
        scores('finer', position, 2, how, backbone='swin', windows='grown')
        for how in ('none', 'linear')
    )
    quantity = f'finer at 2, {position}, Swin with grown windows: linear less none'
    yield Check(9, quantity, less(linear, none), low=LEAST)


def tuned(scores: Scores, position: str) -> Iterator[Check]:
    def ahead(*, after: bool) -> Values:
        linear, none = (
            scores('finer', position, 2, how, tuned=how if after else '')
            for how in ('linear', 'none')
        )
        return less(linear, none)

    half = {seed: value / 2 for seed, value in ahead(after=False).items()}
    quantity = f'finer at 2, {position}: linear less none after fine-tuning, less half of before'
    yield Check(10, quantity, less(ahead(after=True), half), high=0)
