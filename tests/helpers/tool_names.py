"""Names that the tests of the tools share."""

from collections.abc import Callable, Sequence
from pathlib import Path

Main = Callable[[Sequence[str]], int]
Fails = Callable[..., str]
TOOLS = Path(__file__).parents[2] / 'tools'
TOOL_NAMES = sorted(
    path.name for path in TOOLS.glob('*.py') if path.stem != 'command_line'
)
TRAIN_DATA = 'train_dataloader.dataset'
