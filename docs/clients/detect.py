"""Boxes of a picture in OpenVINO: python detect.py model.onnx picture.jpg."""

import json
import sys
from pathlib import Path

import numpy as np
import openvino
from PIL import Image, ImageOps


def read(picture):
    """Upright, RGB of 8 bits."""
    image = ImageOps.exif_transpose(Image.open(picture))
    if image.mode.startswith('I'):  # grey of 16 bits
        image = Image.fromarray((np.asarray(image) // 256).astype(np.uint8))
    return image.convert('RGB')


if len(sys.argv) != 3:
    sys.exit(__doc__)
file, picture = map(Path, sys.argv[1:])
about = json.loads(file.with_suffix('.json').read_text())
if not about['resized'] or not about['rgb']:
    sys.exit('export the model with --resize --rgb')
settings = {
    'INFERENCE_PRECISION_HINT': 'f32'
}  # else bfloat16 where the processor has it
model = openvino.Core().compile_model(file, 'CPU', settings)

found = model(np.asarray(read(picture)).transpose(2, 0, 1)[None])  # [1, 3, H, W]
detections = (found[name][0] for name in ('scores', 'boxes', 'labels'))
for score, box, label in zip(*detections, strict=True):
    if score == 0:  # no detection
        continue
    name = about['classes'][label] if about['classes'] else label
    print(name, f'{score:.3f}', *(f'{x:.1f}' for x in box), sep='\t')
