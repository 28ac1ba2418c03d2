"""The report of a backbone that was trained on pictures without labels."""

from __future__ import annotations

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.model import BaseModel
from torch import Tensor

from ..datasets.unlabelled import effective_rank
from ..project.model import build_model
from .page import Page
from .predictions import ReadPicture, build_loader, picture_reader

QUERIES, NEAREST, KEPT = 12, 3, 5
SIDE = 128  # pixels of a small picture


def add_features(page: Page, cfg: Config, model: BaseModel) -> None:
    """Add figures and nearest neighbours, before and after the training, of a sample of pictures.

    Before it the backbone has the weights that the config names.
    """
    first = build_model(cfg).to(next(model.parameters()).device)
    first.init_weights()
    paths, after, named = features_of(model, cfg)
    _, before, _ = features_of(first.eval(), cfg)
    near = [nearest(features) for features in (before, after)]
    pairs = zip(*(some[:, :KEPT].tolist() for some in near), strict=True)
    kept = np.mean([len({*a} & {*b}) / KEPT for a, b in pairs])
    page.section(
        'Features',
        'Of a sample of the training pictures. Directions: the effective rank of the features; few '
        'mean that they collapsed. Nearest: by cosine similarity.',
    )
    rows = [
        dict(features=name, directions=effective_rank(x))
        for name, x in (('before', before), ('after', after))
    ]
    page.add_table('directions', rows)
    page.figures['about'] |= {
        'pictures looked at': len(paths),
        f'of {KEPT} nearest pictures, the same as before': float(kept),
    }
    if named is not None:
        page.figures['about']['pictures that the classifier names'] = float(named.mean())
    read = picture_reader(cfg)
    queries = range(0, len(paths), max(1, len(paths) // QUERIES))[:QUERIES]
    lines = [
        line(paths, [*(some[q, :NEAREST].tolist() for some in near)], q, read) for q in queries
    ]
    page.add_picture(
        'neighbours',
        np.concatenate(lines),
        f'A picture, its {NEAREST} nearest before the training, and its {NEAREST} nearest after.',
    )


@torch.inference_mode()
def features_of(model: BaseModel, cfg: Config) -> tuple[list[str], Tensor, np.ndarray | None]:
    """Paths, features [N, C] on the CPU, and whether each is named, of the test pictures."""
    paths, found = list[str](), list[dict[str, Tensor]]()
    for batch in build_loader(cfg):
        paths += [sample.img_path for sample in batch['data_samples']]
        found += model.test_step(batch)
    features = torch.stack([x['feature'].cpu() for x in found])
    named = np.array([x['is_named'].item() for x in found]) if 'is_named' in found[0] else None
    return paths, features, named


def nearest(features: Tensor) -> Tensor:
    """The indices of all others, from the most similar on, [N, N - 1]."""
    normed = F.normalize(features, dim=1)
    return (normed @ normed.T).fill_diagonal_(-2).argsort(1, descending=True)[:, :-1]


def line(paths: list[str], groups: list[list[int]], query: int, read: ReadPicture) -> np.ndarray:
    """A row of small pictures, BGR: a picture, and groups of others with a gap before each."""
    tiles = [small(read(paths[query])[..., ::-1])]
    for group in groups:
        tiles.append(np.full((SIDE, SIDE // 8, 3), 255, np.uint8))
        tiles += [small(read(paths[index])[..., ::-1]) for index in group]
    return np.concatenate(tiles, axis=1)


def small(picture: np.ndarray) -> np.ndarray:
    """The square in the middle of a picture, of ``SIDE`` pixels."""
    side = min(picture.shape[:2])
    top, left = ((length - side) // 2 for length in picture.shape[:2])
    square = picture[top : top + side, left : left + side]
    return cv2.resize(square, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
