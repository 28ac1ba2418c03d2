"""Write a trained model as the files of a hub repository, and upload them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ..integrations.hub import push_to_hub, save_for_hub
from ..project.errors import UsageError
from ..project.load import find_model
from ..project.model import classes_and_colours, mask_numbers
from ..project.ready import ready


def push_model(
    config: str,
    checkpoint: str | None,
    name: str,
    *,
    license: str | None = None,
    metric: Sequence[tuple[str, float]] = (),
    private: bool = False,
    folder: str | Path | None = None,
    cfg_options: Iterable[str] | Mapping[str, object] = (),
) -> str:
    """Upload a trained model to the hub, or write its files.

    Args:
        config, checkpoint, cfg_options: see ``find_model``.
        name: of the repository, OWNER/NAME.
        license, metric: for the card, see ``save_for_hub``.
        private: make the repository private.
        folder: write the files here, and do not upload.

    Returns:
        The address of the commit, or the folder and its files.

    Raises:
        UsageError, CheckpointError, ValueError: the model cannot be read or stored so.
    """
    cfg, weights = find_model(config, checkpoint, cfg_options)
    if weights is None:
        raise UsageError('each of several tasks is stored by its own config')
    used = ready(cfg, 'test', weights=weights, has_runner=False, has_data=False)
    classes, colours = classes_and_colours(cfg, used.checkpoint)
    numbers = mask_numbers(cfg)
    masks = [] if numbers is None else numbers[[*range(len(classes)), -1]].tolist()
    with TemporaryDirectory() as temporary:
        written = save_for_hub(
            cfg,
            used.model.state_dict(),
            folder or temporary,
            name=name,
            classes=classes,
            colours=colours,
            license=license,
            metrics=dict(metric),
            masks=masks,
        )
        if folder is None:
            return push_to_hub(written, name, private=private)
        return f'{written}: {", ".join(sorted(path.name for path in written.iterdir()))}'
