"""Compare the schedule of a training run with its length."""

from mmengine.config import Config, ConfigDict
from mmengine.optim.scheduler.param_scheduler import INF

from ..project.errors import UsageError


def scheduler_settings(cfg: Config) -> list[ConfigDict]:
    """The schedulers of a config, one or several or none."""
    given = cfg.get('param_scheduler') or []
    return [given] if isinstance(given, dict) else given


def check_schedule(cfg: Config) -> None:
    """Raise UsageError for schedulers, a first validation or checkpoint behind the end."""
    loop = cfg.train_cfg
    unit = 'max_iters' if loop.get('max_iters') else 'max_epochs'
    length = loop.get(unit)
    if length is None:
        return
    late = []
    for index, part in enumerate(scheduler_settings(cfg)):
        if part.get('by_epoch', True) != (unit == 'max_epochs'):
            continue  # in other units
        for name in ('begin', 'end', 'milestones'):
            given = part.get(name) or 0
            last = max(given, default=0) if isinstance(given, (list, tuple)) else given
            if last != INF and last > (length + 1 if name == 'end' else length - 1):
                late.append(f'param_scheduler.{index}.{name}={given}')
    if cfg.get('val_cfg') is not None and loop.get('val_interval', 1) > length:
        late.append(f'train_cfg.val_interval={loop.val_interval}')
    checkpoint = (cfg.get('default_hooks') or {}).get('checkpoint') or ConfigDict()
    in_unit = checkpoint.get('by_epoch', True) == (unit == 'max_epochs')
    interval = checkpoint.get('interval', -1)
    if in_unit and interval > length and not checkpoint.get('save_last', True):
        late.append(f'default_hooks.checkpoint.interval={interval}')
    if late:
        raise UsageError(
            f'{", ".join(late)}: after the end of the training, train_cfg.{unit}={length}; change '
            'them by --cfg-options, too'
        )
