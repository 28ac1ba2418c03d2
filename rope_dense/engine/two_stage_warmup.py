"""The learning rate of EoMT: the backbone waits until the head has warmed up."""

from mmengine.optim.scheduler.param_scheduler import OptimizerType, _ParamScheduler
from mmengine.registry import PARAM_SCHEDULERS

from ..utils.validation import checked_integer, checked_number


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
            raise ValueError('TwoStageWarmupPolyLR counts iterations: set by_epoch=False')
        self.warmup = checked_integer('warmup', warmup, 0)
        self.backbone_warmup = checked_integer('backbone_warmup', backbone_warmup, 0)
        checked_integer('end', end, warmup + backbone_warmup + 1)
        self.power = checked_number('power', power, 0)
        super().__init__(optimizer, 'lr', end=end, last_step=last_step, by_epoch=False)

    def _get_value(self) -> list[float]:
        groups = zip(self.base_values, self.optimizer.param_groups, strict=True)
        return [value * self.factor_at(self.last_step, group) for value, group in groups]

    def factor_at(self, step: int, group: dict) -> float:
        """The factor of the learning rate of a parameter group in an iteration."""
        start, warmup = 0, self.warmup
        if in_backbone(group):
            start, warmup = self.warmup, self.backbone_warmup
        begun = step - start
        if begun < warmup or begun < 0:
            return max(begun, 0) / max(warmup, 1)
        return (1 - (begun - warmup) / (self.end - start - warmup)) ** self.power


def in_backbone(group: dict) -> bool:
    """True if a group of parameters, by its name, belongs to the backbone."""
    return group.get('name', '').replace('/', '.').startswith('backbone.')
