"""Boxes, masks or labels, drawn in ONNX Runtime: python draw.py model.onnx PICTURE OUT [SCORE]."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageDraw, ImageOps

if len(sys.argv) < 4:
    sys.exit(__doc__)
file, given, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
least = float(sys.argv[4]) if len(sys.argv) > 4 else 0.3
session = onnxruntime.InferenceSession(file)
about = json.loads(session.get_modelmeta().custom_metadata_map['rope_dense'])
colours = (
    about['colours']
    or np.random.default_rng(0).integers(0, 256, (about['num_classes'], 3)).tolist()
)


def test_size(width, height):
    """Width and height of an image in the test pipeline, or those of a file of a fixed size."""
    if about['size'] != 'dynamic':
        return about['size'][::-1]
    if not (resize := about['resize']):
        return width, height
    if not resize['keep_ratio']:
        return resize['scale']
    bounds = sorted(resize['scale']), sorted((width, height))
    factor = min(bound / side for bound, side in zip(*bounds, strict=True))
    return int(width * factor + 0.5), int(height * factor + 0.5)


def read(picture):
    """Upright, RGB of 8 bits."""
    image = ImageOps.exif_transpose(Image.open(picture))
    if image.mode.startswith('I'):  # grey of 16 bits
        image = Image.fromarray((np.asarray(image) // 256).astype(np.uint8))
    return image.convert('RGB')


def padded(image):
    """The last row or column of a long image repeated, as by predict."""
    ratio = (about['resize'] or {}).get('ratio') or np.inf
    least = np.ceil(max(image.size) / ratio)
    below, right = (int(max(0, least - side)) for side in image.size[::-1])
    return Image.fromarray(
        np.pad(np.asarray(image), [(0, below), (0, right), (0, 0)], 'edge')
    )


def draw(picture, drawn):
    given = read(picture)
    image = padded(given)
    width, height = test_size(*image.size)
    smooth = (about['resize'] or {}).get('antialias')  # as the test pipeline
    pixels = np.asarray(
        image.resize((width, height), Image.BILINEAR)
        if smooth
        else image.transform(
            (width, height), Image.EXTENT, (0, 0, *image.size), Image.BILINEAR
        )
    )
    pixels = pixels if about.get('rgb') else pixels[:, :, ::-1]  # to BGR
    if min(width, height) < min(about['smallest_size']):
        sys.exit(
            f'{picture}: {width} x {height} is less than {about["smallest_size"]} pixels'
        )
    pad = [(0, -side % about['multiple_of']) for side in (height, width)]
    pixels = np.pad(pixels, [*pad, (0, 0)]).transpose(2, 0, 1)[None]  # [1, 3, H, W]
    divisor = about.get('padded_to', 1)  # of the padding within the file
    inside_size = [-(-side // divisor) * divisor for side in pixels.shape[:1:-1]]
    outputs = dict(
        zip(about['outputs'], session.run(None, {'image': pixels}), strict=True)
    )
    if about['task'] == 'segmentation':
        labels = np.array(colours, np.uint8)[outputs['labels'][0, :height, :width]]
        image = Image.blend(
            image, Image.fromarray(labels).resize(image.size, Image.NEAREST), 0.5
        )
    else:
        outputs['boxes'] = outputs.pop(
            'corners', outputs['boxes']
        )  # corners of oriented boxes
        canvas, names = (
            ImageDraw.Draw(image),
            about['classes'] or range(about['num_classes']),
        )
        scale = np.divide(image.size, (width, height))
        detections = zip(*(value[0] for value in outputs.values()), strict=True)
        for score, box, label, *masks in detections:
            if score >= least and score > 0:
                box = [*map(tuple, box.reshape(-1, 2) * scale)]
                colour = tuple(colours[label])
                for (
                    mask
                ) in masks:  # of the padded image, DEIM's at a quarter of its size
                    mask = np.float32(mask) - 0.5 * (mask.dtype == bool)
                    ends = np.divide((width, height), inside_size) * mask.shape[::-1]
                    mask = Image.fromarray(mask).resize(
                        image.size, Image.BILINEAR, (0, 0, *ends)
                    )
                    inside = (np.asarray(mask) > 0) * np.uint8(128)
                    image.paste(colour, mask=Image.fromarray(inside))
                if len(box) == 2:
                    canvas.rectangle(box, outline=colour)
                else:
                    canvas.polygon(box, outline=colour)
                canvas.text(box[0], f'{names[label]} {score:.2f}', fill=colour)
        print(
            f'{picture}: highest score {outputs["scores"].max():.2f}, drawn from {least}'
        )
    image.crop((0, 0, *given.size)).save(drawn)


if given.is_dir():
    out.mkdir(exist_ok=True)
for picture in sorted(given.iterdir()) if given.is_dir() else [given]:
    draw(picture, out / f'{picture.stem}.png' if given.is_dir() else out)
