"""Arrays of the host on a device, in one copy."""

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from rope_dense.utils.upload import can_upload, upload

ARRAYS = dict(
    flags=np.arange(15).reshape(3, 5) % 2 == 0,
    moved=np.arange(6, dtype=np.int32).reshape(2, 3).T,
    places=np.arange(4),
    none=np.empty((0, 2), np.int64),
)


def test_arrays_have_their_values_and_share_one_memory():
    sent = upload(ARRAYS, torch.device('cpu'))
    for name, array in ARRAYS.items():
        expected = torch.from_numpy(array.copy())
        assert sent[name].dtype == expected.dtype and torch.equal(sent[name], expected)
    assert len({x.untyped_storage().data_ptr() for x in sent.values()}) == 1


def test_nothing_but_empty_arrays():
    (sent,) = upload(dict(none=ARRAYS['none']), torch.device('cpu')).values()
    assert sent.shape == (0, 2) and sent.dtype == torch.int64


def test_a_device_without_values():
    assert upload(ARRAYS, torch.device('meta'))['moved'].shape == (3, 2)


def test_not_while_tracing_or_with_fake_tensors():
    seen: list[bool] = []

    def function(x: Tensor) -> Tensor:
        seen.append(can_upload())
        return x

    function(torch.ones(2))
    torch.func.vmap(function)(torch.ones(2))
    torch.jit.trace(function, torch.ones(2), check_trace=False)
    with FakeTensorMode():
        function(torch.ones(2))
    assert seen == [True, False, False, False]
