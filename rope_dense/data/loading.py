"""Pipelines that name the image that cannot be loaded."""

from mmengine.dataset import Compose

from ..utils.errors import message_of

# Keys of what a data set knows of an image.
FILES = ('img_path', 'seg_map_path', 'depth_map_path')


class LoadError(Exception):
    """An image or its labels cannot be loaded; the message names the files."""

    def __str__(self) -> str:
        # Workers re-raise with the whole traceback as text; keep its last line.
        return super().__str__().rpartition(f'{__name__}.LoadError: ')[2].strip()


class NamingPipeline(Compose):
    """A pipeline that raises a ``LoadError`` for an image that cannot be loaded."""

    def __call__(self, data: dict) -> dict | None:
        """The transformed image, or None for one to be replaced by another."""
        info = {name: data.get(name) for name in (*FILES, 'sample_idx')}
        try:
            return super().__call__(data)
        except LoadError:  # of another image that a transform loads
            raise
        except Exception as error:  # a damaged file can fail in any way
            given = [str(info[name]) for name in FILES if info[name]]
            files = ' or '.join(given) or f'image {info["sample_idx"]}'
            raise LoadError(f'{files} cannot be loaded: {message_of(error)}') from error
