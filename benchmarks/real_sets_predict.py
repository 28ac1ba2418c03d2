"""Predict the validation images of real_sets.py by one tool, in the environment of that tool.

    python real_sets_predict.py TOOL CHECKPOINT SIZE FOLDER

FOLDER/images.json lists the images. FOLDER/predictions.json gets the CPU seconds of all images
after a warm-up, and for each image boxes (left, top, right, bottom), scores, class numbers and
masks, also of rotated boxes, as run lengths; FOLDER/N.png the class numbers of image N of a
segmentor. Objects are those above a score of 0.001, at most 300 of an image, as ultralytics
evaluates.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

Found = dict[str, np.ndarray]
SCORE, MOST = 0.001, 300


def main() -> None:
    tool, checkpoint, size, folder = sys.argv[1:]
    images = json.loads(Path(folder, 'images.json').read_text())
    predict = loader_of(tool)(checkpoint, int(size))
    predict(images[0])
    cpu, answers = 0.0, []
    for index, image in enumerate(images):
        started = time.process_time()
        found = predict(image)
        cpu += time.process_time() - started
        if 'boxes' in found:
            answers.append(as_json(found))
        else:
            Image.fromarray(found['labels'].astype(np.uint8)).save(
                Path(folder, f'{index}.png')
            )
    Path(folder, 'predictions.json').write_text(
        json.dumps(dict(cpu_s=cpu, images=answers))
    )


def loader_of(tool: str) -> Callable[[str, int], Callable[[str], Found]]:
    if tool.startswith('yolo11'):
        return ultralytics
    if tool.startswith('ltdetr'):
        return lightly
    return (
        libreyolo if tool.startswith('yolo9') else rope_dense
    )  # also runs of mmdet and mmseg


def rope_dense(run: str, size: int) -> Callable[[str], Found]:
    """A run of rope-dense train, whose config has the size."""
    import rope_dense

    model = rope_dense.load(run)

    def predict(image: str) -> Found:
        [sample] = model([image])
        found = model.plain(sample, SCORE)
        if 'boxes' not in found or found['boxes'].shape[1] == 4:
            return found
        x, y, width, height, angle = found['boxes'].T[..., None]
        along = (
            np.array([-0.5, 0.5, 0.5, -0.5]) * width
        )  # of four corners, before the rotation
        across = np.array([-0.5, -0.5, 0.5, 0.5]) * height
        cos, sin = np.cos(angle), np.sin(angle)
        corners = np.stack(
            [x + along * cos - across * sin, y + along * sin + across * cos], -1
        )
        boxes = np.concatenate([corners.min(1), corners.max(1)], 1)
        return found | dict(
            boxes=boxes, corners=corners, size=np.array(sample.ori_shape[:2])
        )

    return predict


def ultralytics(checkpoint: str, size: int) -> Callable[[str], Found]:
    from ultralytics import YOLO

    model = YOLO(checkpoint)
    settings = dict(
        imgsz=size, conf=SCORE, max_det=MOST, retina_masks=True, device='cpu'
    )

    def predict(image: str) -> Found:
        [result] = model.predict(image, verbose=False, **settings)
        return arrays(result)

    return predict


def libreyolo(checkpoint: str, size: int) -> Callable[[str], Found]:
    from libreyolo import LibreYOLO

    model = LibreYOLO(checkpoint, device='cpu')
    return lambda image: arrays(model(image, imgsz=size, conf=SCORE, max_det=MOST))


def lightly(checkpoint: str, size: int) -> Callable[[str], Found]:
    """Of lightly-train; the checkpoint has the size."""
    import lightly_train

    model = lightly_train.load_model(checkpoint, device='cpu')

    def predict(image: str) -> Found:
        found = {
            key: value.numpy() for key, value in model.predict(image, SCORE).items()
        }
        return dict(
            boxes=found['bboxes'], scores=found['scores'], labels=found['labels']
        )

    return predict


def arrays(result: object) -> Found:
    """A result of ultralytics' or libreyolo's form."""
    if getattr(result, 'obb', None) is not None:
        boxes = result.obb.cpu().numpy()
        found = dict(boxes=boxes.xyxy, scores=boxes.conf, labels=boxes.cls.astype(int))
        return found | dict(corners=boxes.xyxyxyxy, size=np.array(result.orig_shape))
    boxes = result.boxes.cpu().numpy()
    found = dict(boxes=boxes.xyxy, scores=boxes.conf, labels=boxes.cls.astype(int))
    if getattr(result, 'masks', None) is not None:
        found['masks'] = result.masks.data.cpu().numpy().astype(bool)
    return found


def as_json(found: Found) -> dict:
    """Lists, and masks as COCO's run lengths."""
    from faster_coco_eval.core import mask

    lists = {key: found[key].tolist() for key in ('boxes', 'scores', 'labels')}
    masks = np.asarray(found.get('masks', []), np.uint8)
    runs = [mask.encode(np.asfortranarray(item)) for item in masks]
    if len(corners := found.get('corners', [])):
        polygons = corners.reshape(-1, 8).astype(float).tolist()
        runs = mask.frPyObjects(polygons, *found['size'].tolist())
    return lists | dict(
        masks=[dict(run, counts=run['counts'].decode()) for run in runs]
    )


if __name__ == '__main__':
    main()
