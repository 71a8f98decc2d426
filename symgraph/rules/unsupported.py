"""Operators that have no law, and why: what they touch is pinned, and said so in the spec.

A name stands for one overload (``aten.item.default``), for all overloads of an operator (``aten.arange``), or for a function
of Python (``operator.add``). Laws and this table together cover every operator of the core set of ATen and every one
that was met in the traced models; the tests refuse a name that is in both.
"""

from __future__ import annotations

CREATES = "makes a tensor from numbers alone: a constant, which is folded before any law is asked for"
CHECKS = "checks something and returns nothing that is computed with"
NUMBERS = "computes with Python numbers, not with tensors"
RANDOM = "random: the function of the model is not one function"
DATA = "the shape of the result, or which entries are read, depends on the data"
STRIDES = "speaks of the layout in memory, which index spaces do not have"
BACKWARD = "part of a derivative, which a forward graph does not have"
POINTERS = "reads or writes at indices that depend on the data, in a way that is not followed"
TRANSFORMS = "bookkeeping of function transforms"
NOT_YET = "has a law in principle that nobody has written"

REASONS: dict[str, tuple[str, ...]] = {
    CREATES: (
        "aten.arange", "aten.full.default", "aten.zeros.default", "aten.ones.default", "aten.eye.default",
        "aten.linspace.default",
        "aten.scalar_tensor.default", "aten.empty.memory_format", "aten.empty_permuted.default", "aten.empty_strided.default",
    ),
    CHECKS: (
        "aten._assert_tensor_metadata.default", "aten._assert_scalar.default", "aten._assert_async.msg",
        "aten.sym_is_contiguous.default",
    ),
    NUMBERS: (
        "_operator.add", "_operator.and_", "_operator.eq", "_operator.floordiv", "_operator.ge", "_operator.getitem",
        "_operator.gt", "_operator.le", "_operator.mul", "_operator.or_", "_operator.pow", "torch.sym_ite", "torch.sym_max",
        "torch.sym_not", "aten.sym_size.int", "aten.sym_numel.default", "flat_apply",
    ),
    RANDOM: (
        "aten.rand.default", "aten.randn.default", "aten.randn.generator", "aten.randn_like.default", "aten.randperm.default",
    ),
    DATA: (
        "aten.nonzero.default", "aten.item.default", "aten._local_scalar_dense.default", "aten.repeat_interleave.Tensor",
        "aten.repeat_interleave.self_Tensor", "aten._is_all_true.default",
    ),
    STRIDES: (
        "aten.as_strided.default", "aten.resize_.default", "aten.sym_stride.int", "aten.sym_storage_offset.default",
    ),
    BACKWARD: (
        "aten._adaptive_avg_pool2d_backward.default", "aten.avg_pool2d_backward.default", "aten.convolution_backward.default",
        "aten.embedding_dense_backward.default", "aten.max_pool2d_with_indices_backward.default",
        "aten.native_group_norm_backward.default", "aten.native_layer_norm_backward.default",
    ),
    POINTERS: (
        "aten.one_hot.default", "aten.scatter_.src", "aten.scatter_.value", "aten.scatter_add.default",
        "aten.scatter_reduce.two",
        "aten.embedding_bag.padding_idx", "aten._embedding_bag.default", "aten._embedding_bag_forward_only.default",
    ),
    TRANSFORMS: (
        "torch._functorch.predispatch._add_batch_dim", "torch._functorch.predispatch._remove_batch_dim",
        "torch._functorch.predispatch._vmap_decrement_nesting", "torch._functorch.predispatch._vmap_increment_nesting",
        "torch._functorch.predispatch.lazy_load_decompositions",
    ),
    NOT_YET: ("aten._pdist_forward.default", "aten.atan2.out"),
}  # fmt: skip
"""Names by reason."""

UNSUPPORTED: dict[str, str] = {name: reason for reason, names in REASONS.items() for name in names}
"""Reason by name."""


def reason_for(target: object) -> str:
    """Why an operator has no law; empty where the table does not say."""
    name = str(target)
    return UNSUPPORTED.get(name) or UNSUPPORTED.get(name.rpartition(".")[0], "")
