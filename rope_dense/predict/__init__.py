"""Predict files: images, folders and videos, also in tiles, and write what is found.

Others import::

    files: class_scores, coco_annotations
    images: predict
    inferencer: build_inferencer, predict_batch
    large: LargeRequest, predict_large
    request: Request
    thresholds: DEFAULT, REPORT, read_score
"""
