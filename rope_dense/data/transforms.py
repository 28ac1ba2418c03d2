"""Steps of pipelines that mmdet lacks."""

from mmdet.datasets.transforms import Pad
from mmengine.registry import TRANSFORMS


@TRANSFORMS.register_module()
class PadBottomRight(Pad):
    """mmdet's ``Pad``, which keeps ``img_shape`` unpadded.

    Heads that predict masks at the size of the input, such as ``EoMTHead``, cut them to
    ``img_shape``. The data preprocessor keeps it too, but pads after the normalisation, where 0 is
    the mean colour; EoMT is trained and tested with black. Takes the arguments of ``Pad``.
    """

    def _pad_img(self, results: dict) -> None:
        img_shape = results['img_shape']
        super()._pad_img(results)
        results['img_shape'] = img_shape
