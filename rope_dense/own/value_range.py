"""Value range of 16-bit images in the pipelines of configs/own."""

from __future__ import annotations

from pathlib import Path

from ..datasets.deep_images import range_of
from ..datasets.labels.files import IMAGE_SUFFIXES, list_files
from ..utils.config_parts import nodes


def fit_range(cfg: dict, max_value: int | None) -> None:
    """Let all pipelines scale 16-bit images by their range, where they do not use all bits.

    Args:
        max_value: value that becomes white, or None for the range of the training images.
    """
    dataset = cfg['train_dataloader']['dataset']
    prefix = dataset['data_prefix']
    folder = Path(dataset['data_root'], prefix.get('img') or prefix.get('img_path') or '')
    white = max_value or range_of(list_files(folder, IMAGE_SUFFIXES))
    if white is None:
        return
    parts = [cfg[f'{name}_dataloader']['dataset']['pipeline'] for name in ('train', 'val', 'test')]
    for pipeline in (*parts, cfg.get('tta_pipeline') or []):
        types = [step['type'].rpartition('.')[2] for step in pipeline]
        if 'LoadImageFromFile' in types:
            place = types.index('LoadImageFromFile') + 1
            pipeline.insert(place, dict(type='LoadDeepImage', max_value=white))
        for _, step in nodes(pipeline):
            if step.get('type') == 'AffineMosaic':
                step['max_value'] = white
    cfg['custom_imports']['imports'].append('rope_dense.datasets.deep_images')
    said = [cfg.get('own_data'), f'16-bit images are scaled: {white} is white']
    cfg['own_data'] = '; '.join(filter(None, said))
