"""Count the operations of a backbone that are no views, forward and backward.

    python benchmarks/launches.py                                     # all models, 256 x 352
    python benchmarks/launches.py --models rope-vit timm-vit --size 512x512
    python benchmarks/launches.py --by-operation rope-vit/mixed       # one model, in detail

Each is a kernel launch on a GPU, so the counts measure overhead where no GPU is at hand. Batch 1,
training mode without stochastic depth. `forward` and `backward` are of an image size that the model
has seen, whose plans and angles are remembered; `new size` is the forward of a size that it has
not: plans made on the host, which are sent to a GPU in one copy each, count as nothing. The loss is
the sum of the means of the maps: backward has one division for each map.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench_backbone import outputs
from measure import environment, write_csv
from peers import AXIAL, MIXED, SWIN_AXIAL, Builder, import_timm, mmdet_swin, swin, vit
from rope_dense.utils import memo

# The plug-ins of the study of kinds, which are registered when they are imported.
sys.path.insert(
    0, str(Path(__file__).parents[1] / 'docs' / 'research' / 'scaling_study')
)
importlib.import_module('kinds')

POSITIONS: dict[str, dict] = {  # of docs/positions.md and the page of the plug-ins
    'golden': dict(rope=dict(type='DirectionRoPE')),
    'simplex': dict(rope=dict(type='DirectionRoPE', directions='simplex')),
    'random': dict(rope=dict(type='DirectionRoPE', directions='random')),
    'rope-id': dict(rope=dict(type='AxialRoPE', k_rope=2, theta=2.498)),
    'axial-relative': dict(rope=AXIAL, attention=dict(type='RelativePrefix')),
    'mixed-relative': dict(rope=MIXED, attention=dict(type='RelativePrefix')),
    **{
        kind: dict(rope=None, attention=dict(type=kind))
        for kind in (
            'TableBias',
            'ALiBi2D',
            'LookHere',
            'FIRE',
            'PaPE',
            'IsotropicPaPE',
        )
    },
}


class LaunchCounter(TorchDispatchMode):
    """Counts the operations that are dispatched within it, see ``is_launch``.

    A composite operation or an autograd function counts as the operations that it calls. A kernel
    called past the dispatcher (a Triton kernel that is no custom operator) is not counted.

    Attributes:
        operations: number of calls, by name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: tuple = (),
        kwargs: dict | None = None,
    ) -> object:
        out = func(*args, **(kwargs or {}))
        if is_launch(func, (args, kwargs), out):
            self.operations[str(func)] += 1
        return out

    @property
    def total(self) -> int:
        return self.operations.total()


def is_launch(func: OpOverload, inputs: object, out: object) -> bool:
    """True for a call that writes a tensor or copies values to the host.

    A view is known by the schema, or by a result in the memory of an input (``_unsafe_view``, of
    which the schema does not tell). What returns no tensor counts if it depends on values
    (``item``), not if it asks for a dtype (``promote_types``). PyTorch has no tag for allocation:
    its operations are those with ``empty`` in their names.
    """
    if func.is_view or torch.Tag.inplace_view in func.tags or 'empty' in func.name():
        return False
    if func._schema.is_mutable or torch.Tag.data_dependent_output in func.tags:
        return True
    return not storages(out) <= storages(inputs)


def storages(tree: object) -> set[int]:
    """Identities of the memory of all tensors in a tree."""
    leaves = tree_leaves(tree)
    return {
        leaf.untyped_storage()._cdata for leaf in leaves if isinstance(leaf, Tensor)
    }


def count_passes(
    model: nn.Module, image: Tensor
) -> tuple[LaunchCounter, LaunchCounter, LaunchCounter]:
    """The operations of the forward and of the backward pass, and of the forward at a new size.

    After a warm-up, which fills caches of the model.
    """
    model.train()
    for _ in range(2):
        for key in [key for key in memo.RESULTS if key[0] not in memo.ON_HOST]:
            del memo.RESULTS[key]
        model.zero_grad(set_to_none=True)
        with LaunchCounter() as new_size:
            model(image)
        with LaunchCounter() as forward:
            maps = outputs(model(image))
        loss = sum(out.mean() for out in maps)
        gradient = torch.ones_like(loss)
        with LaunchCounter() as backward:
            loss.backward(gradient)
    return forward, backward, new_size


def models(size: tuple[int, int]) -> dict[str, Builder]:
    """Builders by model/variant."""
    return {
        'mmdet-swin/bias': partial(mmdet_swin, 'tiny'),
        'rope-swin/none': partial(swin, rope=None),
        'rope-swin/axial': partial(swin, rope=SWIN_AXIAL),
        'rope-swin/mixed': partial(swin, rope=MIXED),
        'rope-swin/bias': partial(swin, rope=None, attention=dict(type='TableBias')),
        'timm-vit/none': partial(timm_vit, 'deit3_base_patch16_224', size),
        'timm-vit/axial': partial(timm_vit, 'vit_base_patch16_rope_224', size),
        'timm-vit/mixed': partial(timm_vit, 'vit_base_patch16_rope_mixed_224', size),
        'rope-vit/none': partial(vit, rope=None),
        'rope-vit/axial': partial(vit, rope=AXIAL),
        'rope-vit/mixed': partial(vit, rope=MIXED),
        **{
            f'positions/{name}': partial(vit, **settings)
            for name, settings in POSITIONS.items()
        },
    }


def timm_vit(name: str, size: tuple[int, int]) -> nn.Module:
    """A model of timm, without its head, for one image size, which costs it fewer launches."""
    return import_timm().create_model(
        name, num_classes=0, global_pool='', img_size=size
    )


def height_x_width(text: str) -> tuple[int, int]:
    height, width = map(int, text.split('x'))
    return height, width


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    names = models((256, 352))
    families = list(dict.fromkeys(name.split('/')[0] for name in names))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        '--size', type=height_x_width, default='256x352', help='(%(default)s)'
    )
    parser.add_argument(
        '--models', nargs='+', choices=families, default=families, help='(all)'
    )
    parser.add_argument(
        '--by-operation', choices=names, metavar='MODEL', help='as rope-vit/mixed'
    )
    parser.add_argument(
        '--out', type=Path, metavar='FILE.csv', help='of the counts of the models'
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    (height, width), image = args.size, torch.randn(1, 3, *args.size)
    builders = models(args.size)
    if args.by_operation:
        passes = count_passes(builders[args.by_operation](), image)
        forward, backward, new_size = (counter.operations for counter in passes)
        print('| operation | forward | backward | new size |\n|---|---:|---:|---:|')
        for name, _ in (forward + backward | new_size).most_common():
            print(f'| {name} | {forward[name]} | {backward[name]} | {new_size[name]} |')
        return
    rows = []
    print(
        '| model | variant | forward | backward | new size |\n|---|---|---:|---:|---:|'
    )
    for name, build in builders.items():
        model, variant = name.split('/')
        if model in args.models:
            counts = [counter.total for counter in count_passes(build(), image)]
            print(
                f'| {model} | {variant} | {" | ".join(map(str, counts))} |', flush=True
            )
            row = dict(
                bench='launches',
                model=model,
                variant=variant,
                height=height,
                width=width,
            )
            names = 'forward', 'backward', 'new_size'
            row |= dict(zip(names, counts, strict=True), batch=1)
            rows.append(row | environment(image.device))
    if args.out:
        write_csv(args.out, rows)


if __name__ == '__main__':
    sys.exit(main())
