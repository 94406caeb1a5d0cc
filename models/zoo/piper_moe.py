"""Experts with a capacity, as nodes `piper::MoEDispatch` and `piper::MoECombine` of an ONNX file.

    rows, slot = dispatch(x, index, experts, capacity)  # [X, G, C, W], [G, S, K]
    ... one matrix for each of the X experts: rows @ weight[:, None] ...
    y = combine(rows, slot, gates)  # [G, S, W]

Of the S tokens of a group (a sample, say), an expert takes at most `capacity`: those that come
first, and of a token's choices the first ones.  Others give nothing.  Capacity 0 takes all, C = S.

In PyTorch both are ordinary code with gradients.  Both exporters write one node for each; files
have `functions(opset)` added, so that any ONNX runtime can run them.
"""

import onnx.parser
import torch
import torch.nn.functional as F


def dispatch(x, index, experts, capacity=0):  # [G, S, W], [G, S, K]
    if torch.onnx.is_in_onnx_export():
        return _export_dispatch(x, index, experts, capacity)
    groups, tokens, choices = index.shape
    width, room = x.shape[-1], capacity or tokens
    slot = slots(index, experts, room)
    rows = x.new_zeros(experts * groups * room + 1, width)  # the last one is for what is dropped
    pairs = x.unsqueeze(2).expand(-1, -1, choices, -1).reshape(-1, width)
    place = torch.where(slot < 0, len(rows) - 1, slot).reshape(-1)
    rows = rows.index_copy(0, place, pairs)[:-1]
    return rows.view(experts, groups, room, width), slot


def slots(index, experts, room):  # [G, S, K]
    """The place of each pair among [experts, groups, room] rows, or -1."""
    groups = index.shape[0]
    flat = index.flatten(1)  # [G, SK], a token's choices side by side
    chosen = F.one_hot(flat, experts)  # [G, SK, X]
    position = ((chosen.cumsum(1) - 1) * chosen).sum(-1)  # of those with the same expert
    group = torch.arange(groups).unsqueeze(1)
    place = (flat * groups + group) * room + position
    return torch.where(position < room, place, -1).view_as(index)


def combine(rows, slot, gates):  # [X, G, C, W], [G, S, K], [G, S, K]
    if torch.onnx.is_in_onnx_export():
        return _export_combine(rows, slot, gates)
    flat = F.pad(rows.flatten(0, 2), (0, 0, 0, 1))  # a last row of zeros
    picked = flat[torch.where(slot < 0, len(flat) - 1, slot)]  # [G, S, K, W]
    return (picked * gates.unsqueeze(-1)).sum(2)


class _Dispatch(torch.autograd.Function):
    """What the TorchScript exporter writes."""

    @staticmethod
    def forward(ctx, x, index, experts, capacity):
        room = capacity or x.shape[1]
        return x.new_zeros(experts, x.shape[0], room, x.shape[2]), torch.zeros_like(index)

    @staticmethod
    def symbolic(g, x, index, experts, capacity):
        rows, slot = g.op("piper::MoEDispatch", x, index, num_experts_i=experts,
                          capacity_i=capacity, outputs=2)
        rows.setType(x.type().with_sizes([experts, None, capacity or None, None]))
        slot.setType(index.type())
        return rows, slot


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, slot, gates, width):
        return rows.new_zeros(*slot.shape[:2], width)

    @staticmethod
    def symbolic(g, rows, slot, gates, width):
        y = g.op("piper::MoECombine", rows, slot, gates)
        y.setType(gates.type().with_sizes([None, None, width]))
        return y


def _export_dispatch(x, index, experts, capacity):
    if not torch.compiler.is_exporting():
        return _Dispatch.apply(x, index, experts, capacity)
    groups, tokens, width = x.shape
    return torch.onnx.ops.symbolic_multi_out(
        "piper::MoEDispatch", (x, index), {"num_experts": experts, "capacity": capacity},
        dtypes=(x.dtype, index.dtype),
        shapes=((experts, groups, capacity or tokens, width), index.shape), version=1)


def _export_combine(rows, slot, gates):
    if not torch.compiler.is_exporting():
        return _Combine.apply(rows, slot, gates, int(rows.shape[3]))
    return torch.onnx.ops.symbolic(
        "piper::MoECombine", (rows, slot, gates), {}, dtype=rows.dtype,
        shape=(*slot.shape[:2], rows.shape[3]), version=1)


def functions(opset):
    """The two as functions of standard operators."""
    head = f'<domain: "piper", opset_import: ["" : {opset}]>\n'
    return [onnx.parser.parse_function(head + text) for text in (_DISPATCH, _COMBINE)]


_DISPATCH = """
MoEDispatch <num_experts, capacity> (x, index) => (rows, slot) {
  first = Constant <value_ints: ints = [0]> ()
  second = Constant <value_ints: ints = [1]> ()
  minus_one = Constant <value_ints: ints = [-1]> ()
  hot_values = Constant <value_ints: ints = [0, 1]> ()
  zero = Constant <value_int: int = 0> ()
  one = Constant <value_int: int = 1> ()
  two = Constant <value_ints: ints = [2]> ()
  experts_0 = Constant <value_int: int = @num_experts> ()
  capacity_0 = Constant <value_int: int = @capacity> ()
  experts = Reshape (experts_0, minus_one)
  limit = Reshape (capacity_0, minus_one)
  groups = Shape <start: int = 0, end: int = 1> (index)
  tokens = Shape <start: int = 1, end: int = 2> (index)
  width = Shape <start: int = 2, end: int = 3> (x)
  shape = Shape (index)
  no_limit = Equal (limit, first)
  room = Where (no_limit, tokens, limit)

  list_shape = Concat <axis: int = 0> (groups, minus_one)
  flat = Reshape (index, list_shape)
  chosen = OneHot <axis: int = -1> (flat, experts, hot_values)
  before = CumSum <exclusive: int = 1> (chosen, one)
  before_own = Mul (before, chosen)
  position = ReduceSum <keepdims: int = 0> (before_own, two)
  groups_0 = Squeeze (groups)
  group_list = Range (zero, groups_0, one)
  group = Unsqueeze (group_list, second)
  expert_start = Mul (flat, groups)
  list_start = Add (expert_start, group)
  row_start = Mul (list_start, room)
  place = Add (row_start, position)
  kept = Less (position, room)
  slot_list = Where (kept, place, minus_one)
  slot = Reshape (slot_list, shape)

  lists = Mul (experts, groups)
  total = Mul (lists, room)
  target_list = Where (kept, place, total)
  column = Constant <value_ints: ints = [-1, 1]> ()
  target = Reshape (target_list, column)
  rows_and_dropped = Add (total, second)
  all_shape = Concat <axis: int = 0> (rows_and_dropped, width)
  float_zero = CastLike (zero, x)
  zeros = Expand (float_zero, all_shape)
  each = Unsqueeze (x, two)
  pair_shape = Concat <axis: int = 0> (shape, width)
  pairs = Expand (each, pair_shape)
  pair_list_shape = Concat <axis: int = 0> (minus_one, width)
  pair_list = Reshape (pairs, pair_list_shape)
  all = ScatterND (zeros, target, pair_list)
  row_list = Slice (all, first, total, first)
  rows_shape = Concat <axis: int = 0> (experts, groups, room, width)
  rows = Reshape (row_list, rows_shape)
}
"""

_COMBINE = """
MoECombine (rows, slot, gates) => (y) {
  first = Constant <value_ints: ints = [0]> ()
  minus_one = Constant <value_ints: ints = [-1]> ()
  one = Constant <value_ints: ints = [1]> ()
  two = Constant <value_ints: ints = [2]> ()
  zero = Constant <value_int: int = 0> ()
  width = Shape <start: int = 3, end: int = 4> (rows)
  list_shape = Concat <axis: int = 0> (minus_one, width)
  list = Reshape (rows, list_shape)
  row_shape = Concat <axis: int = 0> (one, width)
  float_zero = CastLike (zero, rows)
  no_row = Expand (float_zero, row_shape)
  all = Concat <axis: int = 0> (list, no_row)
  total = Shape <start: int = 0, end: int = 1> (list)
  dropped = Less (slot, first)
  at = Where (dropped, total, slot)
  picked = Gather <axis: int = 0> (all, at)
  gate = Unsqueeze (gates, minus_one)
  weighted = Mul (picked, gate)
  y = ReduceSum <keepdims: int = 0> (weighted, two)
}
"""
