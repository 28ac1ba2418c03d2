"""Parameter groups: learning-rate factors by module path, weight decay by a parameter's role.

mmengine's own constructor matches keys as substrings, and a matching key disables its other rules
for that parameter. Here a path matches whole components, the role follows from the module that owns
the parameter, and every trained parameter is in one group, named after its path and role. The
schedule of EoMT, in which the backbone waits until the head has warmed up, needs these names.
"""

import re
from collections.abc import Callable, Collection

from mmengine.logging import print_log
from mmengine.optim import DefaultOptimWrapperConstructor
from mmengine.optim.scheduler.param_scheduler import OptimizerType, _ParamScheduler
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS, PARAM_SCHEDULERS
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from ..backbones.base import backbone_of
from ..backbones.layers import PositionConv
from ..rope import RotaryEmbedding
from ..utils.validation import (
    check_choice,
    checked_integer,
    checked_number,
    checked_settings,
)

# _NormBase: all batch and instance norms
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, _NormBase)
POSITION_NAMES = ('pos_embed', 'rel_pos_h', 'rel_pos_w', 'relative_position_bias_table')

# Role -> does it apply to this parameter of this module? The first in this order counts.
ROLES: dict[str, Callable[[nn.Module, str, nn.Parameter], bool]] = {
    'frequency': lambda owner, name, param: isinstance(owner, RotaryEmbedding),
    'norm': lambda owner, name, param: isinstance(owner, NORMS),
    'embedding': lambda owner, name, param: isinstance(owner, nn.Embedding),
    'position': lambda owner, name, param: (
        name in POSITION_NAMES or isinstance(owner, PositionConv)
    ),
    'bias': lambda owner, name, param: name.rpartition('_')[2] == 'bias',
    'one_dim': lambda owner, name, param: param.ndim <= 1,
}


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class NamedGroupsConstructor(DefaultOptimWrapperConstructor):
    """Puts every trained parameter in one named group and logs the groups as a table.

    ``paramwise_cfg`` takes

    - ``lr_mult`` (dict): dotted module or parameter path -> learning-rate factor; the longest path
      that contains a parameter counts, by whole components (``neck.1`` is not part of ``neck.10``).
    - ``layer_decay`` (float): factor of the learning rate from one backbone block to the block
      before it, on top of ``lr_mult``, as in BEiT. ``Backbone.layer_of`` says where a parameter
      belongs: 0 before the first block, i + 1 in block i, N + 1 after the last of N blocks.
    - ``no_decay`` (sequence of str): the roles in ``ROLES`` that get no weight decay. ``norm``
      means torch's norm layers, as in detectron2; ``embedding`` ``nn.Embedding``; ``position``
      learned position tables and convolutions; ``frequency`` the parameters of a rotary embedding;
      ``bias`` every bias; ``one_dim`` vectors and scalars (every bias too).

    Groups are called ``<path>/<role>``, with ``/layer_<id>`` between for layer-wise decay;
    ``(rest)`` stands for what no path contains and ``decay`` for what no role exempts. Frozen
    parameters are left out.

    Raises:
        ValueError: an unknown option or role, a path without parameters, a factor out of range, an
            optimizer without ``lr`` or ``weight_decay``, or layer decay for a model without a
            backbone of this package.
    """

    def _validate_cfg(self) -> None:
        super()._validate_cfg()
        options = ('lr_mult', 'layer_decay', 'no_decay')
        if not checked_settings('paramwise_cfg', self.paramwise_cfg, options):
            raise ValueError(
                'paramwise_cfg is empty: give lr_mult, layer_decay or no_decay, or no `constructor`'
            )
        self.lr_mult: dict[str, float] = dict(self.paramwise_cfg.get('lr_mult', {}))
        self.layer_decay: float | None = self.paramwise_cfg.get('layer_decay')
        self.no_decay: tuple[str, ...] = tuple(self.paramwise_cfg.get('no_decay', ()))
        for role in self.no_decay:
            check_choice('no_decay role', role, tuple(ROLES))
        if self.layer_decay is not None and not 0 < self.layer_decay <= 1:
            raise ValueError(f'layer_decay must be in (0, 1], got {self.layer_decay}')
        if self.base_lr is None or self.base_wd is None:
            raise ValueError(
                'the optimizer must state `lr` and `weight_decay`: groups are factors of them'
            )

    def add_params(self, params: list[dict], module: nn.Module) -> None:
        """Append the groups of ``module``, sorted by name, to ``params``."""
        names = list(dict(module.named_parameters()))
        for path in self.lr_mult:
            check_parameter_path(path, names)
        learning_rates = self.learning_rates(module)
        groups: dict[str, dict] = {}
        for name, param in module.named_parameters():
            if not param.requires_grad:
                continue
            part, lr_factor = learning_rates[name]
            role = role_of(module, name, param, self.no_decay)
            group_name = f'{part}/{role or "decay"}'
            new = dict(
                name=group_name,
                params=[],
                lr=self.base_lr * lr_factor,
                weight_decay=0.0 if role else self.base_wd,
            )
            group = groups.setdefault(group_name, new)
            group['params'].append(param)
        params += [groups[name] for name in sorted(groups)]
        settings = f'lr {self.base_lr:g}, weight decay {self.base_wd:g}'
        table = group_table_text(params, self.base_lr)
        print_log(f'Parameter groups of {settings}:\n{table}', logger='current')

    def learning_rates(self, model: nn.Module) -> dict[str, tuple[str, float]]:
        """From each parameter's name to the first part of its group's name and its lr factor."""
        factors = dict(self.lr_mult)
        names = list(dict(model.named_parameters()))
        if self.layer_decay is None:
            return {name: longest_path(name, factors) for name in names}
        factors.setdefault('backbone', 1.0)
        backbone = backbone_of(model)
        last_layer = len(backbone.ordered_blocks) + 1
        rates = {}
        for name in names:
            part, factor = longest_path(name, factors)
            if name.startswith('backbone.'):
                layer = backbone.layer_of(name.removeprefix('backbone.'))
                part = f'{part}/layer_{layer:02d}'
                factor *= self.layer_decay ** (last_layer - layer)
            rates[name] = part, factor
        return rates


def role_of(
    model: nn.Module, name: str, param: nn.Parameter, roles: Collection[str]
) -> str | None:
    """The first of ``ROLES``, among some roles, of a parameter; None if it has none of them."""
    path, _, leaf = name.rpartition('.')
    owner = model.get_submodule(path)
    for role, applies in ROLES.items():
        if role in roles and applies(owner, leaf, param):
            return role
    return None


def longest_path(name: str, factors: dict[str, float]) -> tuple[str, float]:
    """The longest path of ``factors`` that contains a parameter, and its factor; or '(rest)', 1."""
    paths = [path for path in factors if f'{name}.'.startswith(f'{path}.')]
    if not paths:
        return '(rest)', 1.0
    path = max(paths, key=len)
    return path, factors[path]


def check_parameter_path(path: str, names: list[str]) -> None:
    """Raise ValueError, with the paths beside it, unless ``path`` contains a parameter."""
    if any(f'{name}.'.startswith(f'{path}.') for name in names):
        return
    parent = path
    while parent and not any(name.startswith(f'{parent}.') for name in names):
        parent = parent.rpartition('.')[0]
    start = f'{parent}.' if parent else ''
    children = set()
    for name in names:
        if name.startswith(start):
            children.add(start + name.removeprefix(start).split('.')[0])
    raise ValueError(
        f'lr_mult path {path!r} contains no parameter of the model; there are '
        f'{sorted(children)}'
    )


def group_table_text(groups: list[dict], base_lr: float) -> str:
    """A row for each parameter group; groups that differ in the number of a layer share one.

    Columns are the name, the factor of the learning rate ``base_lr``, weight decay, parameters.
    """
    rows: dict[tuple[str, float], list[dict]] = {}
    for group in groups:
        name = re.sub(r'(layer_|blocks\.)\d+', r'\1*', group.get('name', '(no name)'))
        rows.setdefault((name, group['weight_decay']), []).append(group)
    width = max(len(name) for name, _ in rows)
    lines = [f'{"":{width}}  {"lr":>17}  weight decay  parameters']
    for (name, decay), members in rows.items():
        rates = {group['lr'] / base_lr for group in members}
        ends = sorted({min(rates), max(rates)})
        factor = ' to '.join(f'x {rate:.4g}' for rate in ends)
        count = 0
        for group in members:
            count += sum(param.numel() for param in group['params'])
        lines.append(f'{name:{width}}  {factor:>17}  {decay:12g}  {count:10,d}')
    return '\n'.join(lines)


@PARAM_SCHEDULERS.register_module()
class TwoStageWarmupPolyLR(_ParamScheduler):
    """Linear warm-up and polynomial decay to 0, with a later start for the backbone.

    The learning rate of the backbone is 0 for the first ``warmup`` iterations, while the others
    grow; then it grows for ``backbone_warmup`` iterations. Each decays after its own warm-up.
    ``NamedGroupsConstructor`` names the groups of the backbone if ``lr_mult`` has a path
    'backbone'. Source: tue-mps/eomt at 7bd19dd, training/two_stage_warmup_poly_schedule.py; checked
    against its formula at fixed iterations in tests/models/test_eomt_training.py.

    Args:
        optimizer: its groups have names.
        warmup, backbone_warmup: iterations.
        end: iterations of the training.
        power: of the polynomial.
        last_step: see mmengine's schedulers.
        by_epoch: False; mmengine's schedulers have this argument.
    """

    def __init__(
        self,
        optimizer: OptimizerType,
        warmup: int,
        backbone_warmup: int,
        end: int,
        power: float = 0.9,
        last_step: int = -1,
        by_epoch: bool = False,
    ) -> None:
        if by_epoch:
            raise ValueError(
                'TwoStageWarmupPolyLR counts iterations: set by_epoch=False'
            )
        self.warmup = checked_integer('warmup', warmup, 0)
        self.backbone_warmup = checked_integer('backbone_warmup', backbone_warmup, 0)
        checked_integer('end', end, warmup + backbone_warmup + 1)
        self.power = checked_number('power', power, 0)
        super().__init__(optimizer, 'lr', end=end, last_step=last_step, by_epoch=False)

    def _get_value(self) -> list[float]:
        step = self.last_step
        groups = zip(self.base_values, self.optimizer.param_groups, strict=True)
        return [value * self.factor_at(step, group) for value, group in groups]

    def factor_at(self, step: int, group: dict) -> float:
        """The factor of the learning rate of a parameter group in an iteration."""
        start = 0
        warmup = self.warmup
        if in_backbone(group):
            start = self.warmup
            warmup = self.backbone_warmup
        begun = step - start
        if begun < warmup or begun < 0:
            return max(begun, 0) / max(warmup, 1)
        return (1 - (begun - warmup) / (self.end - start - warmup)) ** self.power


def in_backbone(group: dict) -> bool:
    """True if a group of parameters, by its name, belongs to the backbone."""
    return group.get('name', '').replace('/', '.').startswith('backbone.')
