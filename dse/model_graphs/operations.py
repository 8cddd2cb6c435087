"""Kinds of operators of ONNX and PyTorch graphs by their names, and vector operations on an element."""

import re
from typing import NamedTuple

VIEW, CREATE, PRODUCT, ATTENTION, NORM, GATHER, EXPERTS, ELEMENTS, SOFTMAX, UNKNOWN = (
    "view", "create", "product", "attention", "norm", "gather", "experts", "elements", "softmax", "unknown",
)  # fmt: skip
"""Kinds of operators: what only moves values, makes constants or counts shapes is free."""

ROTATION = "rotary"
"""Name of a rotation by positions (RoPE) that is one operator."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NAMES: dict[str, frozenset[str]] = {
    VIEW: _words(
        """view reshape transpose permute t expand unsqueeze squeeze slice select split split_with_sizes chunk cat concat
        contiguous clone to copy to_copy cast castlike alias flatten unflatten detach dropout identity getitem narrow movedim
        repeat_interleave repeat tile unbind stack lift_fresh_copy unsafe_view view_as expand_as type_as float half bfloat16
        swapaxes adjoint mt numpy_t
        view_as_real view_as_complex native_dropout dequantizelinear split_to_sequence sequenceat pad constant_pad_nd"""
    ),
    CREATE: _words(
        """sym_size sym_numel assert_tensor_metadata assert_scalar assert_async sym_constrain_range_for_size arange range shape
        size new_ones new_zeros new_empty new_full ones zeros full empty ones_like zeros_like empty_like full_like rand_like
        scalar_tensor constant constantofshape eyelike eye tril_indices triu_indices rangelike
        operator.mul operator.add operator.sub operator.floordiv operator.truediv operator.mod operator.eq operator.ge
        operator.le operator.lt operator.gt operator.ne operator.neg operator.pow operator.and_ sym_max sym_min sym_not"""
    ),
    PRODUCT: _words("linear mm matmul bmm addmm baddbmm gemm einsum matmulinteger"),
    ATTENTION: _words(
        """scaled_dot_product_attention scaled_dot_product_flash_attention scaled_dot_product_flash_attention_for_cpu
        scaled_dot_product_efficient_attention scaled_dot_product_cudnn_attention attention groupqueryattention"""
    ),
    NORM: _words(
        """layer_norm native_layer_norm rms_norm fused_rms_norm layernormalization rmsnormalization
        simplifiedlayernormalization group_norm native_group_norm"""
    ),
    GATHER: _words("embedding gather index index_select gathernd gatherelements take_along_dim"),
    EXPERTS: _words("grouped_mm grouped_mm_fallback"),
    SOFTMAX: _words("softmax safe_softmax"),
}  # fmt: skip

OPERATIONS: dict[str, float] = {
    **dict.fromkeys(
        _words(
            """add sub mul div neg sqrt reciprocal abs sign relu floor ceil round where masked_fill eq ne lt le gt ge equal
            greater greaterorequal less lessorequal not and or xor logical_not logical_and logical_or bitwise_not bitwise_and
            bitwise_or
            isnan isinf max maximum min minimum sum reducesum mean reducemean reducemax reducemin amax amin prod reduceprod
            scatter scatter_add scatternd scatterelements scatter_reduce index_put index_add index_copy cumsum histc triu tril
            trilu
            floor_divide remainder mod fmod any all argmax argmin diff bincount one_hot onehot copysign rsub square softcap
            nan_to_num threshold roll flip resize cumprod nonzero_static"""
        ),
        1.0,
    ),
    **dict.fromkeys(_words("pow rsqrt exp exp2 log log2 log1p expm1 clamp clip leaky_relu leakyrelu"), 2.0),
    **dict.fromkeys(_words("sigmoid hardsigmoid hardswish softplus cos sin lerp var var_mean std norm logsumexp"), 3.0),
    **dict.fromkeys(_words("silu swish tanh topk sort argsort log_softmax logsoftmax elu celu selu mish softsign"), 4.0),
    **dict.fromkeys(_words("gelu quickgelu fastgelu biasgelu erf"), 8.0),
    "reglu": 2.0,
    "swiglu": 5.0,
    ROTATION: 3.0,
    "geglu": 9.0,
    "softmax": 4.0,
}  # fmt: skip
"""Vector operations on an element of elementwise operators; assumed, like those of `evaluators.graph.elementwise_costs`."""


class Operation(NamedTuple):
    """What an operator does, its name in a common form, and its vector operations on an element."""

    kind: str
    name: str
    operations: float = 1.0


def operation_of(target: str) -> Operation:
    """Operation of an operator by its name in ONNX or PyTorch.

    >>> operation_of("torch.ops.aten.mul_.Tensor"), operation_of("RotaryEmbedding").kind
    (Operation(kind='elements', name='mul', operations=1.0), 'unknown')
    """
    name = common_name(target)
    kind = next((kind for kind, names in NAMES.items() if name in names), None)
    if kind is not None:
        return Operation(kind, name, OPERATIONS.get(name, 1.0))
    return Operation(ELEMENTS if name in OPERATIONS else UNKNOWN, name, OPERATIONS.get(name, 1.0))


def common_name(target: str) -> str:
    """Name of an operator in lower case, without its package, its overload and underscores around."""
    text = re.sub(r"^torch\.ops\.", "", target)
    if text.startswith(("_operator.", "operator.")):
        return text.lstrip("_").lower()
    parts = text.split(".")
    name = parts[1] if len(parts) > 2 or (len(parts) == 2 and parts[0] in ("aten", "prims", "prim")) else parts[-1]
    return re.sub(r"^_+|_+$", "", name.lower()) or name.lower()
