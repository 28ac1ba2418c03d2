"""Evaluate a published classifier at many image sizes, by the protocol of its publication."""

import re
from collections.abc import Sequence
from pathlib import Path

from mmengine.config import Config

from rope_dense.measure.results import ResultRow, headline
from rope_dense.measure.settings import FROM_CONFIG, combine
from rope_dense.measure.sweep import Sweep
from rope_dense.project.load import load_config
from rope_dense.utils.errors import UsageError

from .classifier import PROTOCOLS, classifier_config
from .comparison import Comparison
from .papers import expand_sizes


def evaluate_classifier(
    checkpoint: str,
    folder: str,
    *,
    config: str | None = None,
    model: str | None = None,
    rope: str | None = None,
    rpb_resize: str | None = None,
    crop_ratio: float | None = None,
    class_index: str | None = None,
    subset: bool = False,
    real_labels: str | None = None,
    sizes: Sequence[str] | None = None,
    scaling: Sequence[str] = (FROM_CONFIG,),
    window: Sequence[str] | None = None,
    train_size: str = '224',
    metric: str | None = None,
    label: str | None = None,
    overlay: Sequence[str] = (),
    relative_to: str | None = None,
    overwrite: bool = False,
    batch_size: int = 64,
    workers: int = 2,
    work_dir: str | None = None,
) -> list[ResultRow]:
    """Test a classifier at many sizes, as ``evaluate_sizes`` does for detectors and segmentors.

    The work folder also gets classifier.py, the config of the evaluation.

    Args:
        checkpoint, rope, model: see ``classifier_config``.
        folder: class folders of images.
        config: of a classifier without a name.
        rpb_resize: see ``Backbone``; by default as published.
        crop_ratio: see ``ResizeCentreCrop``; by default as published.
        class_index, real_labels: see ``ClassFolderDataset``.
        subset: only the classes that have a folder compete.
        sizes: as for ``evaluate_sizes``, and names of tables of papers; by default as published.
        scaling, window, train_size, metric, label, overwrite: see ``evaluate_sizes``.
        overlay, relative_to: see ``Comparison``.
        batch_size, workers: of the data loader.
        work_dir: by default work_dirs/NAME of the checkpoint.

    Returns:
        A row for each setting, see ``Evaluator.evaluate``.

    Raises:
        UsageError, CheckpointError, ValueError: settings, files or data that cannot be used.
    """
    name = re.split(r'[/:]', checkpoint.rstrip('/'))[-1]
    given = model_of(checkpoint, config, model, rope)
    protocol = protocol_of(given, config, sizes, crop_ratio)
    backbone = given['model']['backbone']
    fit_backbone(backbone, protocol, rpb_resize, checkpoint)
    data = dict(data_root=folder, class_index=class_index, real_labels=real_labels)
    cfg = evaluation_config(given['model'], protocol, data, subset)
    cfg.test_dataloader.update(
        batch_size=batch_size, num_workers=workers, persistent_workers=workers > 0
    )
    cfg.work_dir = work_dir or f'work_dirs/{name}'
    if window is None:
        window = ['auto' if backbone['type'] == 'RoPESwin' else FROM_CONFIG]
    settings = combine(expand_sizes(protocol['sizes']), scaling, window)
    comparison = Comparison.read(overlay, relative_to)
    sweep = Sweep.prepare(cfg, checkpoint, settings, name, label, train_size, overwrite)
    comparison.check(sweep.results.content(), sweep.planned())
    Path(cfg.work_dir).mkdir(parents=True, exist_ok=True)
    cfg.dump(Path(cfg.work_dir) / 'classifier.py')
    print(f'crop ratio {protocol["crop_ratio"]}')
    rows = sweep.run()
    path, metric = sweep.results.path, metric or headline(rows[0]['metrics'])
    files = comparison.draw(path, sweep.results.content(), metric)
    print(f'\n{path}, {path.stem}.csv, {", ".join(file.name for file in files)}')
    return rows


def model_of(
    checkpoint: str, config: str | None, name: str | None, rope: str | None
) -> dict:
    """The model of a config, and its evaluation if known; UsageError for no classifier."""
    if config is None:
        return classifier_config(checkpoint, rope, name)
    if name is not None:
        raise UsageError(f'--model {name} and --config {config}: give one of them')
    given = load_config(config).to_dict()
    if given.get('model', {}).get('type') != 'RoPEClassifier':
        raise UsageError(f'--config {config}: its model must be a RoPEClassifier')
    return given


def protocol_of(
    given: dict,
    config: str | None,
    sizes: Sequence[str] | None,
    crop_ratio: float | None,
) -> dict:
    """Sizes and crop ratio as given, of the config, or published; UsageError if none says it."""
    chosen = dict(sizes=sizes, crop_ratio=crop_ratio)
    protocol = PROTOCOLS.get(given['model']['backbone']['type'], {}) | given.get(
        'evaluation', {}
    )
    protocol |= {key: value for key, value in chosen.items() if value is not None}
    if chosen.keys() - protocol.keys():
        raise UsageError(
            f'--config {config}: has no evaluation; give --sizes, --crop-ratio'
        )
    if not 0 < protocol['crop_ratio'] <= 1:
        raise UsageError(
            f'--crop-ratio {protocol["crop_ratio"]}: give a number over 0 and up to 1'
        )
    return dict(protocol, sizes=[str(size) for size in protocol['sizes']])


def fit_backbone(
    backbone: dict, protocol: dict, rpb_resize: str | None, checkpoint: str
) -> None:
    """Let windows follow the image, and set ``rpb_resize``, in place; UsageError without a bias."""
    if backbone['type'] == 'RoPESwin':
        backbone['window_size'] = 'auto'
    arch = backbone['arch'] if isinstance(backbone.get('arch'), dict) else {}
    attention = backbone.get('attention', arch.get('attention')) or {}
    has_bias = attention.get('type') == 'TableBias'
    if rpb_resize:
        if not has_bias:
            raise UsageError(
                f'--rpb-resize {rpb_resize}: {checkpoint} has no such bias'
            )
        backbone['attention'] = dict(attention, resize=rpb_resize)
    elif has_bias and 'rpb_resize' in protocol:
        backbone['attention'] = {'resize': protocol['rpb_resize'], **attention}


def evaluation_config(
    model: dict, protocol: dict, data: dict, subset: bool = False
) -> Config:
    """The config of an evaluation on a ``ClassFolderDataset`` of these settings."""
    read = dict(
        type='LoadImageFromFile',
        imdecode_backend='pillow',
        color_type='color_ignore_orientation',  # as torchvision's reader
    )
    crop = dict(
        type='ResizeCentreCrop', scale=(224, 224), crop_ratio=protocol['crop_ratio']
    )
    pipeline = [read, crop, dict(type='PackClassInputs')]
    loader = dict(
        batch_size=64,
        num_workers=2,
        persistent_workers=True,
        sampler=dict(type='DefaultSampler', shuffle=False),
        dataset=dict(type='ClassFolderDataset', **data, pipeline=pipeline),
    )
    return Config(
        dict(
            default_scope='mmengine',
            custom_imports=dict(imports=['research']),
            model=model,
            test_dataloader=loader,
            test_evaluator=dict(type='TopKAccuracy', subset=subset),
            test_cfg=dict(),
            evaluation=protocol,
        )
    )
