"""The report of a backbone that was trained on pictures without labels."""

from __future__ import annotations

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.model import BaseModel
from torch import Tensor

from ..project.model import build_model
from .page import ReportPage
from .predictions import build_loader, picture_reader, side_by_side

QUERIES, NEAREST = 12, 3
SIDE = 128  # pixels of a small picture


def add_features(page: ReportPage, cfg: Config, model: BaseModel) -> None:
    """Add nearest neighbours of pictures of a sample, before and after the training.

    Before it the backbone has the weights that the config names.
    """
    first = build_model(cfg).to(next(model.parameters()).device)
    first.init_weights()
    paths, after = features_of(model, cfg)
    before = nearest(features_of(first.eval(), cfg)[1])
    now = nearest(after)
    same = [len({*a} & {*b}) / NEAREST for a, b in zip(before, now, strict=True)]
    page.record.about |= {
        'pictures looked at': len(paths),
        f'of {NEAREST} nearest pictures, the same as before': float(np.mean(same)),
    }
    text = 'By the cosine of their features, among the pictures of test.'
    page.section('Nearest pictures', text)
    read = picture_reader(cfg)

    def small(indices: list[int]) -> np.ndarray:
        """Squares from the middle of pictures, beside each other, BGR [SIDE, n SIDE, 3]."""
        squares = []
        for index in indices:
            picture = read(paths[index], None)[..., ::-1]
            height, width = picture.shape[:2]
            side = min(height, width)
            top = (height - side) // 2
            left = (width - side) // 2
            square = picture[top : top + side, left : left + side]
            area = cv2.INTER_AREA
            squares.append(cv2.resize(square, (SIDE, SIDE), interpolation=area))
        return np.hstack(squares)

    rows = list[np.ndarray]()
    for x in range(0, len(paths), -(-len(paths) // QUERIES)):
        with page.drawing(paths[x]):
            rows.append(side_by_side(small([x]), small(before[x]), small(now[x])))
    if rows:
        caption = (
            f'A picture, its {NEAREST} nearest before the training, '
            f'and its {NEAREST} nearest now.'
        )
        page.add_picture('neighbours', np.concatenate(rows), caption)


@torch.inference_mode()
def features_of(model: BaseModel, cfg: Config) -> tuple[list[str], Tensor]:
    """Paths of the test pictures, and their features [N, C] on the CPU."""
    paths = []
    features = []
    for batch in build_loader(cfg):
        paths += [sample.img_path for sample in batch['data_samples']]
        features += [x['feature'].cpu() for x in model.test_step(batch)]
    return paths, torch.stack(features)


def nearest(features: Tensor) -> list[list[int]]:
    """The indices of the most similar others of each of features [N, C]."""
    normed = F.normalize(features, dim=1)
    similar = (normed @ normed.T).fill_diagonal_(-2)
    return similar.topk(min(NEAREST, len(features) - 1)).indices.tolist()
