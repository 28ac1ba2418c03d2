"""mmdet's data preprocessor for images of any number of channels."""

from mmdet.models.data_preprocessors import DetDataPreprocessor
from mmengine.registry import MODELS

from .channel_preprocessors import AnyChannels


@MODELS.register_module()
class ChannelDetDataPreprocessor(AnyChannels, DetDataPreprocessor):
    """mmdet's ``DetDataPreprocessor`` for any number of channels, see ``AnyChannels``."""
