"""Memory of FineFeatures in inference, counted on tensors without values.

    python benchmarks/fine_memory.py [CSV]

One image of as many pixels as the output has positions, or 4 for each along an axis; bytes that are
alive at once, without the image and the weights.
"""

from __future__ import annotations

import csv
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from rope_dense.models.fine_features import FineFeatures

RESULTS = Path(__file__).with_name('results') / 'fine_memory.csv'
# Output sides, pixels of an image for a position, patches.
CASES = ((512, 1, 16), (1024, 1, 16), (2048, 1, 16), (256, 4, 16), (512, 4, 16))
CHANNELS = 768


class AliveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that operations make until they are freed."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.seen: set[int] = set()

    def __torch_dispatch__(
        self,
        function: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: dict | None = None,
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, Tensor):
                self.add(tensor.untyped_storage())
        return out

    def add(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self.seen:
            return
        self.seen.add(storage._cdata)
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self.remove, storage._cdata, storage.nbytes())

    def remove(self, key: int, size: int) -> None:
        self.seen.discard(key)
        self.now -= size


@torch.no_grad()
def count(
    side: int, pixels: int, patch_size: int, method: str, dtype: torch.dtype
) -> int:
    """Peak bytes for an output of ``side`` x ``side`` positions."""
    coarse = side * pixels // patch_size
    neck = FineFeatures(patch_size // pixels, method).eval().to(dtype)
    with FakeTensorMode(allow_non_fake_inputs=True):
        image = torch.empty(1, 3, side * pixels, side * pixels, dtype=dtype)
        features = torch.empty(1, CHANNELS, coarse, coarse, dtype=dtype)
        with AliveBytes() as alive:
            neck((features, image))
        return alive.peak


def main(path: Path) -> None:
    rows = []
    for side, pixels, patch_size in CASES:
        for dtype in (torch.float32, torch.bfloat16):
            for method in ('bilinear', 'attention'):
                peak = count(side, pixels, patch_size, method, dtype)
                output = CHANNELS * side**2 * dtype.itemsize
                name = str(dtype).removeprefix('torch.')
                row = dict(
                    output=side, stride=pixels, patch=patch_size, channels=CHANNELS
                )
                row |= dict(dtype=name, method=method, output_MB=round(output / 1e6))
                rows.append(dict(row, peak_MB=round(peak / 1e6)))
                print(rows[-1], flush=True)
    with path.open('w', newline='') as file:
        writer = csv.DictWriter(file, rows[0], lineterminator='\n')
        writer.writeheader()
        writer.writerows(rows)


if __name__ == '__main__':
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)
