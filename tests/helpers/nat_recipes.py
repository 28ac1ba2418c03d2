"""Drop paths, learning rates and results of NAT and DiNAT, as test_nat_configs.py has the rest.

Transcribed from SHI-Labs/Neighborhood-Attention-Transformer at d334f5b, detection/ and
segmentation/; keys are (head, family, size), as in the names of the configs.
"""

from pathlib import Path

from helpers.grid import CONFIGS

Key = tuple[str, str, str]
NAT = CONFIGS / 'nat'
# Drop path, learning rate, and the published results: box and mask AP, or mIoU at one scale and at
# several.
MASK, CASCADE, UPERNET = 'mask-rcnn', 'cascade-mask-rcnn', 'upernet'
RECIPES = {
    (MASK, 'nat', 'mini'): (0.2, 1e-4, 46.5, 41.7),
    (MASK, 'nat', 'tiny'): (0.2, 1e-4, 47.7, 42.6),
    (MASK, 'nat', 'small'): (0.35, 1e-4, 48.4, 43.2),
    (MASK, 'dinat', 'mini'): (0.2, 1e-4, 47.2, 42.5),
    (MASK, 'dinat', 'tiny'): (0.2, 1e-4, 48.6, 43.5),
    (MASK, 'dinat', 'small'): (0.35, 1e-4, 49.3, 44.0),
    (MASK, 'dinat-s', 'tiny'): (0.2, 1e-4, 46.6, 42.1),
    (MASK, 'dinat-s', 'small'): (0.35, 1e-4, 48.6, 43.5),
    (CASCADE, 'nat', 'mini'): (0.2, 1e-4, 50.3, 43.6),
    (CASCADE, 'nat', 'tiny'): (0.3, 1e-4, 51.4, 44.5),
    (CASCADE, 'nat', 'small'): (0.3, 1e-4, 52.0, 44.9),
    (CASCADE, 'nat', 'base'): (0.5, 1e-4, 52.3, 45.1),
    (CASCADE, 'dinat', 'mini'): (0.2, 1e-4, 51.2, 44.4),
    (CASCADE, 'dinat', 'tiny'): (0.3, 1e-4, 52.2, 45.1),
    (CASCADE, 'dinat', 'small'): (0.5, 1e-4, 52.9, 45.8),
    (CASCADE, 'dinat', 'base'): (0.6, 7.5e-5, 53.4, 46.2),
    (CASCADE, 'dinat-s', 'tiny'): (0.3, 1e-4, 51.0, 44.1),
    (CASCADE, 'dinat-s', 'small'): (0.5, 1e-4, 52.3, 45.2),
    (CASCADE, 'dinat-s', 'base'): (0.6, 7.5e-5, 52.6, 45.3),
    (UPERNET, 'nat', 'mini'): (0.2, 6e-5, 45.1, 46.4),
    (UPERNET, 'nat', 'tiny'): (0.3, 6e-5, 47.1, 48.4),
    (UPERNET, 'nat', 'small'): (0.5, 6e-5, 48.0, 49.5),
    (UPERNET, 'nat', 'base'): (0.5, 6e-5, 48.5, 49.7),
    (UPERNET, 'dinat', 'mini'): (0.2, 6e-5, 45.8, 47.2),
    (UPERNET, 'dinat', 'tiny'): (0.3, 6e-5, 47.8, 48.8),
    (UPERNET, 'dinat', 'small'): (0.5, 6e-5, 48.9, 49.9),
    (UPERNET, 'dinat', 'base'): (0.5, 6e-5, 49.6, 50.4),
    (UPERNET, 'dinat-s', 'tiny'): (0.3, 6e-5, 46.0, 47.4),
    (UPERNET, 'dinat-s', 'small'): (0.3, 6e-5, 48.6, 49.9),
    (UPERNET, 'dinat-s', 'base'): (0.3, 6e-5, 49.4, 50.2),
}


def path_of(key: Key) -> Path:
    head, family, size = key
    tail = '160k_ade20k-512x512' if head == UPERNET else '264k_coco'
    return NAT / f'{head}_{family}-{size}_rpb_8xb2-{tail}.py'
