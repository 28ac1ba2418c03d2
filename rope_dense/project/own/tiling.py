"""Settings of tiles applied to data and recipes of own data."""

import contextlib
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mmengine.registry import DefaultScope

from ...utils.config_parts import kind, nodes
from . import data as own_data
from .settings import DEEP_TILES, Own, OwnObjects

MODULES = ('rope_dense.data.tiles.dataset', 'rope_dense.data.tiles.evaluation')
# The data sets of tasks without objects.
MAPS = dict(depth='ImageDepthDataset', semantic='ImageMaskDataset')


def tiles_of(own: Own) -> dict[str, Any]:
    """The arguments of ``TiledDataset`` that settings give."""
    assert own.tile is not None
    found = dict(type='TiledDataset', tile=own.tile, scales=[*own.scales])
    found['overlap'] = own.tile // 4 if own.overlap is None else own.overlap
    found['copies'] = str((own_data.CONVERTED / 'tiles').absolute())
    if isinstance(own, OwnObjects):
        found['least_share'] = own.least_share
        found['empty'] = own.empty_tiles * own.negatives
    return found


def with_tiles(own: Own, data: own_data.OwnData, task: str) -> own_data.OwnData:
    """Data whose images are tiles: their number, and what the recipe says about them.

    ValueError if no tile has an object or label.
    """
    if own.tile is None or not data.text:
        return data
    from ...data.images.copies import remove_outdated
    from ...data.tiles.dataset import TiledDataset

    if task in MAPS:
        from ...data import map_datasets as depth  # noqa: F401, registered

    scope = DefaultScope.overwrite_default_scope('mmseg' if task in MAPS else 'mmdet')
    quiet = contextlib.redirect_stdout(io.StringIO())  # what pycocotools prints
    with scope, quiet:
        given = tiles_of(own) | data.files['train']
        given |= dict(metainfo=dict(classes=tuple(data.classes)), lazy_init=True)
        given['kind'] = MAPS.get(task, 'CocoDataset')
        del given['type']
        dataset = TiledDataset(**given)
        number = len(dataset.load_data_list())
    if not number:
        raise ValueError(f'own.tile={own.tile}: no tile has an object or a label')
    lines = [data.text, *tile_lines(own, data.images, dataset.counts)]
    outdated = remove_outdated(Path(dataset.copies))
    if outdated:
        lines.append(
            f'{outdated} copies of images that have changed or are gone were removed'
        )
    text = '\n'.join(lines)
    return replace(data, images=number, text=text, most_objects=dataset.counts['most'])


def tile_lines(own: Own, images: int, counts: Mapping[str, int]) -> list[str]:
    """Lines of the recipe on the tiles of a training."""
    scales = ', '.join(f'{scale:g}' for scale in own.scales)
    at = '' if scales == '1' else f' at scales {scales}'
    line = (
        f'{images} training images are {counts["tiles"]} tiles of {own.tile} pixels{at}, '
        f'resized to {own.size}'
    )
    if counts['empty'] or counts['left_out']:
        line += f'; {counts["empty"]} have no object, {counts["left_out"]} such are left out'
    found = [line]
    if counts['ignored']:
        found.append(f'{counts["ignored"]} tiles without a labelled pixel are left out')
    if counts['never_whole']:
        found.append(
            f'{counts["never_whole"]} of {counts["all"]} objects are whole in no tile: a larger '
            'own.overlap or own.tile, or another of own.scales, such as 0.5, shows them'
        )
    return found


def set_tiles(cfg: dict, own: Own) -> None:
    """Let a complete recipe train on tiles and test whole images by their tiles, in place."""
    if own.tile is None:
        return
    for name in ('train', 'val', 'test'):
        loader = cfg[f'{name}_dataloader']
        is_train = name == 'train'
        dataset = loader['dataset']
        if any(kind(step) == 'LoadDeepImage' for _, step in nodes(dataset['pipeline'])):
            raise ValueError(f'own.tile={own.tile}: {DEEP_TILES}')
        # Tiles are loaded by ``LoadWindow``.
        inner = dataset['type'].replace('MosaicCoco', 'Coco')
        dataset |= tiles_of(own) | dict(kind=inner, test_mode=not is_train)
        loader['sampler'] = dict(type='TileSampler', shuffle=is_train)
        if is_train:
            continue
        metrics = [cfg[f'{name}_evaluator']]
        cfg[f'{name}_evaluator'] = dict(type='TiledEvaluator', metrics=metrics)
    for name in ('tta_model', 'tta_pipeline'):  # views of tiles are not joined
        cfg.pop(name, None)
    cfg['custom_imports']['imports'] += MODULES
