"""Positions in metres applied to recipes of own data."""

import inspect
from statistics import geometric_mean

from mmengine.registry import TRANSFORMS

from ...backbones.archs import VIT_ARCHS, ViTArch, find_arch
from ...data.ground import GroundDistance
from ...data.images.headers import read_header
from ...utils.config_parts import kind, nodes
from .augment import all_pipelines
from .data import OwnData, files_in
from .images import MOSAIC, READ, sample_files
from .settings import Own


def set_ground(cfg: dict, own: Own, data: OwnData) -> None:
    """Let a complete recipe have positions in metres (``own.ground_distance``), in place.

    They refer to the mean distance of the training's inputs, which then have the positions of the
    pre-training's images. ValueError for a recipe with windows or mosaics.
    """
    default = own.ground_distance
    if default is None:
        return
    model = cfg['model']
    backbone = model['backbone']
    pipelines = all_pipelines(cfg)
    is_joined = any(kind(step) == MOSAIC for _, step in nodes(pipelines))
    if is_joined or 'window_block_indexes' in backbone:
        raise ValueError(
            'own.ground_distance: mosaics, which own.mosaic=False leaves out, and the windows of '
            'detection and instance take no metres'
        )
    coco = listings(data)
    ground = GroundDistance(coco, default)
    inputs = []
    number = 0
    for file in sample_files(files_in(data.files['train']), READ):
        header = read_header(file)
        side = own.tile or min(header.height, header.width)
        distance = ground.find(file)
        number += not distance
        inputs.append((distance or default) * side / own.size)
    trained = geometric_mean(inputs or [default])
    said = (
        f'positions in metres: {trained:.3g} m a pixel of the input, on average; {number} '
        f'of {len(inputs)} images that were looked at have none of their own (gsd, GeoTIFF): '
        'own.ground_distance'
    )
    cfg['own_data'] = '; '.join(filter(None, [cfg.get('own_data'), said]))
    if own.weights is not None:
        vit = find_arch(ViTArch, VIT_ARCHS, own.vit.arch)
        trained *= own.size / (min(vit.grid) * vit.patch_size)
    backbone['ground_distance'] = trained
    preprocessor = model['data_preprocessor']
    preprocessor['type'] = f'Channel{preprocessor["type"].removeprefix("Channel")}'
    if model.get('test_cfg', {}).get('mode') == 'slide':
        model['test_cfg'] = dict(mode='whole')  # crops have no distance
    for pipeline in filter(None, pipelines):
        step = dict(
            type='rope_dense.data.ground.GroundDistance', coco=coco, default=default
        )
        pack = pipeline[-1]
        if kind(pack) == 'TestTimeAug':
            *views, (pack,) = pack['transforms']
            pipeline[-1]['transforms'] = [*views, [step], [pack]]
        else:
            pipeline.insert(-1, step)
        packing = TRANSFORMS.get(f'{cfg["default_scope"]}.{kind(pack)}')
        usual = inspect.signature(packing).parameters['meta_keys'].default
        pack['meta_keys'] = (*pack.get('meta_keys', usual), 'ground_distance')


def listings(data: OwnData) -> list[list[str]]:
    """(COCO file, folder of its images) of the splits of objects."""
    parts = [files for files in data.files.values() if 'img' in files['data_prefix']]
    return [[files['ann_file'], files['data_prefix']['img']] for files in parts]
