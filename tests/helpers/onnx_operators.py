"""The operators of exported files, with what other programs say that they take.

TensorRT: https://github.com/onnx/onnx-tensorrt/blob/10.1-GA/docs/operators.md, types and
restrictions. OpenVINO has each operator in
https://github.com/openvinotoolkit/openvino/blob/master/src/frontends/onnx/docs/supported_ops.md,
and ONNX Runtime in
https://github.com/microsoft/onnxruntime/blob/main/docs/OperatorKernels.md without restrictions that
matter here; the tests run both. MNN refuses Max and its kind with one input;
onnxslim stopped where slices of whole axes lay between others.
Absent on purpose: GridSample (https://github.com/onnx/onnx-tensorrt/pull/1060,
https://github.com/NVIDIA/TensorRT/issues/4813).
"""

from __future__ import annotations

import numpy as np
import onnx

BOOL = {'BOOL'}
HALF = {'FLOAT', 'FLOAT16'}
FLOATS = HALF | {'BFLOAT16'}
NUMBERS = FLOATS | {'INT32', 'INT64'}
ALL = NUMBERS | BOOL
# Of each operator the types of its input, of Where of its second one.
TENSORRT = {
    'And Not Or Xor': BOOL,
    'NonMaxSuppression NonZero RoiAlign': HALF,
    'Atan AveragePool BatchNormalization Ceil Clip Conv ConvTranspose Cos Cosh CumSum Einsum '
    'Erf Exp Floor Gelu Gemm GlobalAveragePool HardSigmoid HardSwish InstanceNormalization '
    'LayerNormalization LeakyRelu Log MatMul MaxPool Pow Reciprocal Resize Round Sigmoid Sin '
    'Sinh Softmax Softplus Sqrt Tanh': FLOATS,
    'Abs Add ArgMax Div Equal Greater GreaterOrEqual IsNaN Less LessOrEqual Max Min Mod Mul '
    'Neg Pad Range ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu '
    'ScatterElements ScatterND Sign Sub Sum TopK': NUMBERS,
    # And of BOOL, which ONNX Runtime does not have.
    'Where': NUMBERS,
    'CastLike Concat ConstantOfShape Expand Gather GatherElements GatherND Identity Reshape '
    'Shape Slice Split Squeeze Tile Transpose Unsqueeze': ALL,
    'Cast': ALL | {'UINT8'},
}
TYPES = {name: types for names, types in TENSORRT.items() for name in names.split()}
# Inputs that have to be constants.
CONSTANT = dict(Slice=3, Squeeze=1, Unsqueeze=1, CumSum=1, Pad=3)
CONSTANT |= dict.fromkeys(['ReduceL2', 'ReduceMax', 'ReduceMean'], 1)
CONSTANT |= dict.fromkeys(['ReduceMin', 'ReduceProd', 'ReduceSum'], 1)
VARIADIC = 'Concat', 'Max', 'Mean', 'Min', 'Sum'
RESIZE = dict(
    mode=('nearest', 'linear'),
    coordinate_transformation_mode=('half_pixel', 'asymmetric', 'align_corners'),
    nearest_mode=('floor', 'round_prefer_floor'),
    keep_aspect_ratio_policy=('stretch',),
    antialias=(0,),
)
LARGEST_K = 3840
WHOLE = np.iinfo(np.int64).max  # the end of an axis


def refused(model: onnx.ModelProto) -> list[str]:
    """What a program may refuse of a file, a line for each operator."""
    types, constants = {}, {}
    for value in onnx.shape_inference.infer_shapes(model).graph.value_info:
        types[value.name] = value.type.tensor_type.elem_type
    for value in (*model.graph.input, *model.graph.output):
        types[value.name] = value.type.tensor_type.elem_type
    for tensor in model.graph.initializer:
        types[tensor.name] = tensor.data_type
        constants[tensor.name] = tensor
    found = set()
    dims = [
        dim for value in model.graph.input for dim in value.type.tensor_type.shape.dim
    ]
    is_fixed = all(dim.HasField('dim_value') for dim in dims)
    for node in model.graph.node:
        kind = node.op_type
        name = node.input[kind == 'Where'] if node.input else ''
        number = types.get(name, 0)
        type_name = onnx.TensorProto.DataType.Name(number)
        if (number and type_name not in TYPES.get(kind, ())) or kind not in TYPES:
            found.add(f'{kind} of {type_name}')
        if kind in VARIADIC and len(node.input) == 1:
            found.add(f'{kind} of one input')
        place = CONSTANT.get(kind, len(node.input))
        for name in node.input[place : place + 1]:
            if name and name not in constants:
                found.add(f'{kind} with computed axes')
        if kind == 'Slice' and all(name in constants for name in node.input[1:]):
            numbers = [onnx.numpy_helper.to_array(constants[x]) for x in node.input[1:]]
            if numbers[:2] == [0, WHOLE] and numbers[3:] in ([], [1]):
                found.add('Slice of a whole axis')
        if kind == 'TopK' and is_fixed and node.input[1] not in constants:
            found.add('TopK of a computed K')
        if kind == 'TopK' and node.input[1] in constants:
            largest = onnx.numpy_helper.to_array(constants[node.input[1]]).item()
            if largest >= LARGEST_K:
                found.add(f'TopK of {largest}')
        for attribute in node.attribute:
            value = onnx.helper.get_attribute_value(attribute)
            value = value.decode() if isinstance(value, bytes) else value
            wrong = kind == 'Resize' and value not in RESIZE.get(
                attribute.name, (value,)
            )
            wrong |= attribute.name in ('reduction', 'sorted') and value not in (
                'none',
                1,
            )
            if wrong:
                found.add(f'{kind} with {attribute.name} {value}')
    return sorted(found)
