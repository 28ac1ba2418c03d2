"""Names that the tests of the tools share."""

from collections.abc import Callable, Sequence
from pathlib import Path

Main = Callable[[Sequence[str]], int]
Fails = Callable[..., str]
TOOLS = Path(__file__).parents[2] / 'tools'
TRAIN_DATA = 'train_dataloader.dataset'
