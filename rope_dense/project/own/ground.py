"""Positions in metres applied to recipes of own data."""

import inspect
import math

import numpy as np
from mmengine.registry import TRANSFORMS

from ...backbones.archs import VIT_ARCHS, ViTArch, find_arch
from ...data.ground import file_distance
from ...data.images.headers import read_header
from ...rope.grid import build_coordinates
from ...utils.config_parts import kind, nodes
from .augment import all_pipelines
from .data import OwnData, files_in
from .images import MOSAIC, READ, sample_files
from .settings import Own

STEP = 'rope_dense.data.ground.GroundDistance'


def set_ground(cfg: dict, own: Own, data: OwnData) -> None:
    """Let a complete recipe have positions in metres (``own.ground_distance``), in place.

    The distance of the training is the mean (of logarithms) of its images, at the size of the
    model's input. ValueError for a recipe with windows or mosaics.
    """
    if own.ground_distance is None:
        return
    model = cfg['model']
    backbone = model['backbone']
    if backbone.get('window_block_indexes'):
        raise ValueError(
            'own.ground_distance: this recipe has attention in windows, which takes no metres; '
            'take realtime, realtime_masks or oriented'
        )
    pipelines = all_pipelines(cfg)
    if any(kind(step) == MOSAIC for _, step in nodes(pipelines)):
        raise ValueError(
            'own.ground_distance: a mosaic joins images of several distances; give '
            'own.mosaic=False, too'
        )
    found, seen = [], []
    for file in sample_files(files_in(data.files['train']), READ):
        found.append(file_distance(str(file)) or own.ground_distance)
        header = read_header(file)
        side = own.tile or min(header.height, header.width)
        seen.append(found[-1] * side / own.size)
    if not found:  # a recipe without its data
        found = seen = [own.ground_distance]
    trained = math.exp(np.log(seen).mean())
    said = (
        f'positions in metres: {min(found):.3g} to {max(found):.3g} m a pixel of the images, '
        f'{trained:.3g} of the input'
    )
    vit = find_arch(ViTArch, VIT_ARCHS, own.vit.arch)
    if build_coordinates((vit.rope or {}).get('coordinates')).is_normalized:
        # Of the pre-training's images, which cover as much ground.
        trained *= own.size / min(
            np.broadcast_to(backbone.get('img_size', vit.img_size), 2)
        )
    backbone['ground_distance'] = float(f'{trained:.3g}')
    preprocessor = model['data_preprocessor']
    if not preprocessor['type'].startswith('Channel'):
        preprocessor['type'] = f'Channel{preprocessor["type"]}'
    if model.get('test_cfg', {}).get('mode') == 'slide':
        model['test_cfg'] = dict(mode='whole')  # crops have no distance
    for pipeline in filter(None, pipelines):
        steps: list = pipeline
        step = dict(type=STEP, default=own.ground_distance)
        pack = steps[-1]
        if kind(pack) == 'TestTimeAug':
            steps = pack['transforms']
            pack = steps[-1][0]
            steps.insert(len(steps) - 1, [step])
        else:
            steps.insert(len(steps) - 1, step)
        keys = pack.get('meta_keys')
        if keys is None:
            packing = TRANSFORMS.get(f'{cfg["default_scope"]}.{kind(pack)}')
            keys = inspect.signature(packing).parameters['meta_keys'].default
        pack['meta_keys'] = (*keys, 'ground_distance')
    cfg['own_data'] = '\n'.join(filter(None, [cfg.get('own_data'), said]))
