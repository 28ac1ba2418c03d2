"""Images of own data: what pipelines need to know of pictures or of other channels, and its use."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ...data.images.band_files import BandHeader, read_band_header
from ...data.images.headers import Header
from ...data.images.pictures import check_picture
from ...data.labels.objects import Report
from ...utils.config_parts import kind, nodes
from ...utils.validation import is_integer
from .augment import all_pipelines
from .settings import Own

Survey = dict[str, Any]  # of images, as JSON
Files = Sequence[Path]
READ = 50  # images at most, for mean and deviation
HEADERS = 10_000  # images at most: 1,000 take 0.6 s
BY_OPENCV = {'JPEG', 'MPO', 'PNG', 'TIFF', 'BMP', 'WEBP'}
COLOUR_STEPS = ('PhotometricJitter', 'PhotoMetricDistortion', 'RandomColourGain')
LABEL_STEPS = ('LoadClassMask', 'LoadDepth')
LOAD, MOSAIC = 'LoadImageFromFile', 'AffineMosaic'  # what reads images
MODULES = 'rope_dense.data.images'
PAGES = 'image of several pages, of which the first is taken'
LEFT_OUT = 'colour augmentation: brightness, contrast and noise of each channel, no hue, saturation'


def settings_of_images(own: Own) -> object:
    """The settings that ``survey_images`` depends on."""
    of_channels = own.channels, own.separate_files, own.mean, own.std, own.show
    return *of_channels, own.max_value, own.tile is None


def survey_images(
    own: Own, header: Callable[[Path], Header], images: Mapping[str, Files]
) -> Survey:
    """The values of the images of each split that ``fit_images`` needs, as JSON.

    ValueError for an image that is no picture, or not of ``own.channels``.
    """
    train = images.get('train', images['val'])  # an evaluation has one split
    if own.channels is not None:
        return survey_channels(own, train, images['val'])
    is_whole = own.tile is None  # else windows are read by GDAL, of images of any size
    both = *train, *images['val']
    headers = {path: header(path) for path in both}
    return survey_pictures(headers, own.max_value, is_whole)


def fit_images(cfg: dict, own: Own, survey: Survey | None) -> None:
    """Let the pipelines load, and the model take, images of a survey, in place; None: no images."""
    if own.channels is None:
        lines = fit_pictures(cfg, survey or survey_pictures({}, own.max_value))
    else:
        lines = fit_channels(cfg, own, survey or survey_channels(own, (), ()))
    if lines:
        cfg['own_data'] = '; '.join(filter(None, [cfg.get('own_data'), *lines]))


def survey_pictures(
    headers: Mapping[Path, Header], max_value: int | None, is_whole: bool = True
) -> Survey:
    """``survey_images`` of pictures.

    Args:
        is_whole: see ``check_picture``, by OpenCV.

    Returns:
        ``white``: value that becomes white in 16-bit images, or None; ``deep``: whether there are
        such; ``backend``: 'pillow' if OpenCV cannot read some images that Pillow can, such as
        .heic, else None; ``notes``: list of (kind, file) for the report.
    """
    needs_pillow = False
    is_deep = False
    notes = []
    for path, header in headers.items():
        check_picture(path, header, is_whole)
        is_deep |= header.is_deep
        is_known = header.format in BY_OPENCV or cv2.haveImageReader(str(path))
        needs_pillow |= header.compression == 'odd tiles' or not is_known
        if header.pages > 1:
            notes.append([PAGES, path.name])
    white = max_value
    if is_deep and white is None:
        from ...data.images.bands import read_white_value

        white = read_white_value(headers)
    backend = 'pillow' if needs_pillow else None
    return dict(white=white, deep=is_deep, backend=backend, notes=notes)


def fit_pictures(cfg: dict, survey: Survey) -> list[str]:
    """Let pipelines scale 16-bit images by their range, and read by Pillow where OpenCV cannot."""
    white = survey['white']
    backend = survey['backend']
    report = Report()
    for pipeline in all_pipelines(cfg):
        names = list(map(kind, pipeline))
        if white is not None and LOAD in names:
            place = names.index(LOAD) + 1
            pipeline.insert(place, dict(type='LoadDeepImage', max_value=white))
        for _, step in nodes(pipeline):
            if white is not None and kind(step) == MOSAIC:
                step['max_value'] = white
            if backend is not None and kind(step) in (LOAD, MOSAIC):
                step['imdecode_backend'] = backend
    for note, place in survey['notes']:
        report.note(note, place)
    modules = cfg['custom_imports']['imports']
    if backend is not None:
        modules.append(f'{MODULES}.plug_ins')
    if white is None:
        return report.lines()
    modules.append(f'{MODULES}.bands')
    said = f'16-bit images are scaled: {white} is white'
    if not survey['deep']:
        said = (
            f'no image has 16 bits; in those that are predicted, {white} will be white'
        )
    return [*report.lines(), said]


def survey_channels(own: Own, train: Files, val: Files) -> Survey:
    """``survey_images`` of images of ``own.channels``.

    Returns:
        ``load``: arguments of ``LoadBands``; ``mean`` and ``std`` of each channel; ``text`` for the
        recipe.
    """
    from ...checkpoints.channels import RGB  # PyTorch, which pictures do without
    from ...data.images.bands import LoadBands

    names = own.channel_names
    chosen = own.channels
    show = [0, 1, 2] if len(names) > 2 else [0, 0, 0]
    if own.show is not None:
        show = [x - 1 if is_integer(x) else names.index(str(x)) for x in own.show]
        show *= 3 // len(show)
    elif {*RGB} <= {*names}:
        show = [names.index(name) for name in RGB]
    is_choice = isinstance(chosen, Sequence) and is_integer(chosen[0])
    load: dict[str, Any] = dict(
        channels=len(names),
        bands=[*chosen] if is_choice else None,  # type: ignore[misc]
        names=names if own.separate_files else None,
        show=show,
    )
    if train:
        loader = LoadBands(**load)
        headers = {}
        firsts = []
        for image in sample_files([*train, *val], HEADERS):
            files = {file: read_band_header(file) for file in loader.files(image)}
            headers[image] = files
            firsts.append(next(iter(files.items())))
        if names == chosen and not own.separate_files:
            load['bands'] = bands_of(names, *firsts[0])
        dtypes = Counter(header.dtype for _, header in firsts)
        load['dtype'] = dtypes.most_common(1)[0][0]
        loader = LoadBands(**load)
        for image, files in headers.items():
            loader.check_headers(image, files)
    mean, std, text = read_statistics(own, sample_files(train, READ), load)
    return dict(load=dict(load, fill=mean), mean=mean, std=std, text=text)


def bands_of(names: list[str], file: Path, header: BandHeader) -> list[str] | None:
    """The names if they are of bands of a file; None if they are of all bands in their order."""
    absent = [name for name in names if not header.find(name)]
    is_unnamed = header.bands == len(names) or not any(header.names)
    if absent and not (len(absent) == len(names) and is_unnamed):
        bands = ', '.join(name or 'without a name' for name in header.names)
        raise ValueError(
            f'{file}: its bands are {bands}, and own.channels has {", ".join(absent)}: give names '
            'of the file, or numbers of bands'
        )
    return None if absent else names


def sample_files(files: Files, number: int) -> Files:
    """Up to so many of the files, evenly."""
    return files[:: -(-len(files) // number)] if files else []


def read_statistics(
    own: Own, files: Files, load: Survey
) -> tuple[list[float], list[float], str]:
    """Mean and deviation of each channel by settings or files, and a text about them.

    0 and 1 without files. Missing pixels do not count.
    """
    from ...data.images.bands import LoadBands

    number = load['channels']
    if (own.mean and own.std) or not files:
        mean = own.mean or [0.0] * number
        std = own.std or [1.0] * number
        return list(mean), list(std), ''
    sums = np.zeros((3, number))  # of known pixels, values and squares
    constant: list[list[Path]] = [[] for _ in range(number)]  # files of each channel
    loader = LoadBands(**load)
    for file in files:
        values: np.ndarray = loader.load(file).reshape(-1, number).astype(np.float64)
        known = ~np.isnan(values)
        low = np.where(known, values, np.inf).min(0)
        high = np.where(known, values, -np.inf).max(0)
        for channel in np.flatnonzero(low >= high):  # or without a known value
            constant[channel].append(file)
        values = np.where(known, values, 0)
        sums += known.sum(0), values.sum(0), (values**2).sum(0)
    centres, square = sums[1:] / np.maximum(sums[0], 1)
    spread = np.sqrt(np.maximum(square - centres**2, 0))
    flat = spread <= 1e-6 * np.maximum(np.abs(centres), 1e-6)
    if flat.any():
        index = int(flat.argmax())
        name = own.channel_names[index]
        value = centres[index]
        raise ValueError(
            f'{files[0]}: channel {name} is constant, {value:g}, in all {len(files)} images that '
            'were read: leave it out of own.channels'
        )
    means = list(own.mean or [float(f'{x:.5g}') for x in centres])
    deviations = list(own.std or [float(f'{x:.5g}') for x in spread])
    text = (
        f'{number} channels of {load["dtype"]}, mean {means} and deviation {deviations} of '
        f'{len(files)} images'
    )
    for name, those in zip(own.channel_names, constant, strict=True):
        if those:
            text += f'; {name} is constant or missing in {len(those)} of them, such as {those[0]}'
    return means, deviations, text


def fit_channels(cfg: dict, own: Own, survey: Survey) -> list[str]:
    """Let the pipelines load, and the model take, images of ``own.channels``."""
    load = dict(type='LoadBands', **survey['load'])
    mean = survey['mean']
    for pipeline in all_pipelines(cfg):
        for _, step in nodes(pipeline):
            name = kind(step)
            if name == LOAD:
                step.clear()
                step.update(load)
            elif name in COLOUR_STEPS:
                step.clear()
                step['type'] = 'BandJitter'
            elif name == MOSAIC:
                step['load'] = dict(load)
            elif name == 'Expand':  # its black is far from any value of some channels
                step['mean'] = load['fill']
            if step.get('backend') == 'pillow':
                del step['backend']
        for place in reversed(range(len(pipeline))):
            if pipeline[place]['type'] in LABEL_STEPS:
                pipeline.insert(place + 1, dict(type='IgnoreNoData'))
    from ...checkpoints.channels import RGB

    # The source of each channel in RGB weights: colours by their names, else the mean.
    sources: list[str | int] | str = 'mean'
    if {*RGB} <= {*own.channel_names}:
        sources = [name if name in RGB else 0 for name in own.channel_names]
    model = cfg['model']
    preprocessor = cfg['model']['data_preprocessor']
    preprocessor.update(mean=list(mean), std=list(survey['std']), bgr_to_rgb=False)
    preprocessor['type'] = f'Channel{kind(preprocessor)}'
    model['backbone']['in_channels'] = len(mean)
    start = model['backbone'].get('init_cfg')
    if start:
        start['channels'] = sources
    for _, part in nodes(model):
        if part.get('type') == 'SpatialTuningAdapter':
            part['image_channels'] = len(mean)
    cfg['load_channels'] = sources
    cfg['custom_imports']['imports'].append(f'{MODULES}.bands')
    return [survey['text'], LEFT_OUT]
