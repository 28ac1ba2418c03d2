"""mmseg's data preprocessor for images of any number of channels."""

from mmengine.registry import MODELS
from mmseg.models.data_preprocessor import SegDataPreProcessor

from .channel_preprocessors import AnyChannels


@MODELS.register_module()
class ChannelSegDataPreProcessor(AnyChannels, SegDataPreProcessor):
    """mmseg's ``SegDataPreProcessor`` for any number of channels, see ``AnyChannels``."""
