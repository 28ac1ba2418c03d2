"""Draw docs/sizes.png: top-1 of the paper's ViT-B against image size, for each kind of position.

    PYTHONPATH=. python docs/research/sizes.py

The numbers are Table A.4 of Heo et al. (ECCV 2024), from research/paper_tables.yml.
"""

from __future__ import annotations

from pathlib import Path

from research.papers import as_run
from rope_dense.measure.plot import plot_resolutions

PICTURE = Path(__file__).parents[1] / 'sizes.png'
LABELS = {
    'vit-b_rope-mixed': 'RoPE, mixed',
    'vit-b_rope-axial': 'RoPE, axial',
    'vit-b_ape': 'absolute positions',
}


def main(out: Path = PICTURE) -> None:
    runs = [
        dict(as_run('table-a.4', row), label=label) for row, label in LABELS.items()
    ]
    figure = plot_resolutions(runs, 'accuracy/top1')
    figure.axes[0].set_ylabel('ImageNet top-1 accuracy (%)')
    figure.savefig(out, dpi=150)


if __name__ == '__main__':
    main()
