"""The share of pixels that is missed at promised thresholds, over many splits of evaluated images.

    python docs/research/promised_pixels.py work_dirs/semantic

Thresholds are taken on half of the images, and judged on the others. docs/report.md has the
figures, and says what is promised.
"""

import argparse
from collections.abc import Sequence

import numpy as np

from rope_dense.predict.files import class_scores
from rope_dense.project.load import find_model
from rope_dense.project.ready import ready
from rope_dense.report.predictions import build_loader, predict_samples
from rope_dense.report.promise import found_pixels, promised_level, shares_of

SPLITS = 200
SHARES = (0.1, 0.2, 0.3)
BINS = 1024  # of scores, to count masks


def missed(found: np.ndarray, threshold: float) -> float:
    """The mean over images of the share of pixels below a threshold."""
    lost = shares_of(found) @ (found['score'] < threshold)
    return float(lost) / len(np.unique(found['image']))


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for each share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('run')
    args = parser.parse_args(argv)
    cfg, weights = find_model(args.run, None, (), None, None, False, None)
    model = ready(cfg, 'test', weights=weights, has_runner=False)[0].eval()
    parts = []
    masks = np.zeros(BINS + 1)
    for number, sample in enumerate(predict_samples(model, build_loader(cfg))):
        scores = class_scores(sample)
        truth = sample.gt_sem_seg.data[0].numpy()
        parts.append(found_pixels(scores, truth, number))
        known = scores[:, truth < len(scores)].astype(np.float32)
        masks += np.bincount((known * BINS).astype(int).ravel(), minlength=BINS + 1)
    found = np.concatenate(parts)
    generator = np.random.default_rng(0)
    for share in SHARES:
        shares = []
        for _ in range(SPLITS):
            chosen = generator.permutation(len(parts))[: len(parts) // 2]
            is_chosen = np.isin(found['image'], chosen)
            level = promised_level(-found['score'][is_chosen], found[is_chosen], share)
            shares.append(1.0 if level is None else missed(found[~is_chosen], -level))
        level = promised_level(-found['score'], found, share)
        start = 0 if level is None else int(-level * BINS)
        number = masks[start:].sum() / found['size'].sum()
        above = np.mean(np.array(shares) > share)
        print(
            f'{share}: missed {np.mean(shares):.3f}, more in {above:.2f} of the splits; '
            f'{number:.1f} masks a pixel'
        )


if __name__ == '__main__':
    main()
