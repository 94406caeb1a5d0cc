#include "codegen/kernel_lists.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "codegen/best_fit.h"
#include "ops/op.h"
#include "support/error.h"

namespace piper::codegen {

using ir::Op;
using ir::OpId;
using ir::ValueId;
using ir::ValueKind;

int64_t align(int64_t bytes) { return (bytes + plan::kAlignment - 1) / plan::kAlignment * plan::kAlignment; }

namespace {

bool is_alias(const Op& op) { return op.kind == "Reshape" || op.kind == "Identity"; }

int64_t bytes_of(const ir::TensorType& type, int64_t samples) {
  return ir::num_elements(ir::at(type.shape, samples)) * ir::dtype_size(type.dtype);
}

}  // namespace

namespace {

std::map<ValueId, int32_t> sums_of(const ir::TrainingDag& dag, const ir::Chunk& chunk) {
  std::map<ValueId, int32_t> sums;
  for (int32_t t : chunk.loss_terms) sums[dag.losses[static_cast<size_t>(t)].sum] = loss_sum_index(static_cast<size_t>(t));
  return sums;
}

}  // namespace

ChunkLowering::ChunkLowering(const ir::TrainingDag& dag, ir::ChunkId chunk, std::vector<int64_t> sizes)
    : ChunkLowering(dag, dag.chunk(chunk), std::move(sizes), sums_of(dag, dag.chunk(chunk))) {}

ChunkLowering::ChunkLowering(const ir::TrainingDag& dag, const ir::Chunk& ops, std::vector<int64_t> sizes,
                             std::map<ValueId, int32_t> stats)
    : dag_(dag), chunk_(ops), sizes_(std::move(sizes)), stats_(std::move(stats)) {
  forward_calls_ = collect_calls(chunk_.forward, {chunk_.outputs.begin(), chunk_.outputs.end()});
  place_forward_values();
}

ValueId ChunkLowering::root(ValueId v) const {
  for (auto it = alias_.find(v); it != alias_.end(); it = alias_.find(v)) v = it->second;
  return v;
}

Location ChunkLowering::param_location(ir::ParamId param, SlotRef::Kind kind) const {
  for (size_t b = 0; b < dag_.buckets.size(); ++b) {
    const auto& params = dag_.buckets[b].params;
    const auto it = std::find(params.begin(), params.end(), param);
    if (it == params.end()) continue;
    const int64_t element = dag_.buckets[b].offsets[static_cast<size_t>(it - params.begin())];
    return {{kind, ValueId(), static_cast<int32_t>(b)}, element * 4};
  }
  PIPER_CHECK(false, "a parameter without a bucket");
  return {};
}

// Turns ops into calls. Reshape and Identity cost nothing where the result may live in its input's memory; a pinned value
// (one that travels) needs a tensor of its own.
std::vector<ChunkLowering::Call> ChunkLowering::collect_calls(const std::vector<OpId>& ops, const std::set<ValueId>& pinned) {
  std::vector<Call> calls;
  std::set<ValueId> made_here;
  std::map<ValueId, ValueId> pinned_of;  // root -> the pinned value whose boundary tensor it is
  for (ValueId v : pinned) pinned_of.emplace(v, v);
  for (size_t i = 0; i < ops.size(); ++i) {
    const Op& op = dag_.model.op(ops[i]);
    if (!is_alias(op)) {
      calls.push_back({&op, 0, false, i, op.inputs, op.outputs, ValueId(), {}});
      made_here.insert(op.outputs.begin(), op.outputs.end());
      continue;
    }
    const ValueId in = root(op.inputs[0]), out = op.outputs[0];
    const bool own_tensor = pinned.count(out) > 0;
    if (!own_tensor) {
      alias_[out] = in;
    } else if (made_here.count(in) && pinned_of.count(in) == 0 && places_.count(in) == 0) {
      // The value is made here: make it in the boundary tensor directly.
      pinned_of[in] = out;
      alias_[out] = in;
      places_[in].assign(sizes_.size(), {{SlotRef::Kind::kBoundary, out, -1}, 0});
    } else {
      calls.push_back({&op, 0, true, i, {op.inputs[0]}, {out}, ValueId(), {}});
      made_here.insert(out);
    }
  }
  return calls;
}

// Values of the forward that its backward reads go to the saved pack, unless they have a tensor of their own.
void ChunkLowering::place_forward_values() {
  std::set<ValueId> made;
  for (const Call& call : forward_calls_) made.insert(call.outputs.begin(), call.outputs.end());
  for (ValueId v : chunk_.outputs) {
    if (made.count(v) && !places_.count(v)) places_[v].assign(sizes_.size(), {{SlotRef::Kind::kBoundary, v, -1}, 0});
  }
  for (const auto& [sum, index] : stats_) {
    places_[sum].assign(sizes_.size(), {{SlotRef::Kind::kStats, ValueId(), -1}, index * 8});
    for (Call& call : forward_calls_) {
      if (call.op->outputs == std::vector<ValueId>{sum}) call.accumulate = 1;
    }
  }
  // What the weight half reads lives longer than what only the input half does.
  for (const size_t pack : {size_t{1}, size_t{0}}) {
    std::vector<int64_t> end(sizes_.size(), 0);
    for (OpId id : pack == 1 ? chunk_.weight_backward : chunk_.backward) {
      for (ValueId v : dag_.model.op(id).inputs) {
        if (!v.valid()) continue;
        const ValueId r = root(v);
        if (!made.count(r) || places_.count(r)) continue;
        for (size_t s = 0; s < sizes_.size(); ++s) {
          places_[r].push_back({{SlotRef::Kind::kSaved, ValueId(), static_cast<int32_t>(pack)}, end[s]});
          end[s] += align(bytes_of(dag_.model.value(r).type, sizes_[s]));
        }
      }
    }
    saved_bytes_[pack] = *std::max_element(end.begin(), end.end());
  }
  plan_scratch(forward_calls_);
}

Location ChunkLowering::locate(ValueId v, size_t size_index) const {
  const ValueId r = root(v);
  if (const auto it = places_.find(r); it != places_.end()) return it->second[size_index];
  if (const auto it = scratch_.find(r); it != scratch_.end()) {
    return {{SlotRef::Kind::kScratch, ValueId(), -1}, it->second[size_index]};
  }
  const ir::Value& value = dag_.model.value(r);
  switch (value.kind) {
    case ValueKind::kInput: return {{SlotRef::Kind::kData, r, -1}, 0};
    case ValueKind::kParameter: return param_location(value.param, SlotRef::Kind::kParam);
    case ValueKind::kConstant: return {{SlotRef::Kind::kConstant, ValueId(), value.constant}, 0};
    case ValueKind::kComputed: break;
  }
  for (size_t t = 0; t < dag_.losses.size(); ++t) {
    if (dag_.losses[t].count == r) return {{SlotRef::Kind::kValid, ValueId(), -1}, static_cast<int64_t>(t) * 8};
  }
  return {{SlotRef::Kind::kBoundary, r, -1}, 0};  // made by another chunk, or received
}

// Offsets of the values that live only between two calls of this list.
void ChunkLowering::plan_scratch(const std::vector<Call>& calls) {
  struct Life {
    ValueId value;
    size_t begin = 0, end = 0;
  };
  std::vector<Life> lives;
  std::map<ValueId, size_t> index;
  for (size_t i = 0; i < calls.size(); ++i) {
    for (ValueId v : calls[i].outputs) {
      if (!v.valid() || places_.count(root(v))) continue;
      index[root(v)] = lives.size();
      lives.push_back({root(v), i, i});
    }
    auto use = [&](ValueId v) {
      if (!v.valid()) return;
      if (const auto it = index.find(root(v)); it != index.end()) lives[it->second].end = i;
    };
    for (ValueId v : calls[i].inputs) use(v);
    use(calls[i].accumulate_from);
  }
  const auto conflicts = [&](size_t a, size_t b) { return lives[a].begin <= lives[b].end && lives[b].begin <= lives[a].end; };
  for (int64_t size : sizes_) {
    std::vector<int64_t> bytes, offsets;
    for (const Life& life : lives) bytes.push_back(align(bytes_of(dag_.model.value(life.value).type, size)));
    scratch_bytes_ = std::max(scratch_bytes_, best_fit(bytes, conflicts, offsets));
    for (size_t i = 0; i < lives.size(); ++i) scratch_[lives[i].value].push_back(offsets[i]);
  }
}

std::vector<LoweredChunk> ChunkLowering::forward() { return cut(forward_calls_, chunk_.forward_parts, "F"); }

// Parameter gradients are added to their bucket: by the kernel that makes them where it can, else by an extra kernel.
// `others`: calls of another list that read the same values.
void ChunkLowering::fuse_accumulations(std::vector<Call>& calls, const std::vector<std::pair<ir::ParamId, ValueId>>& gradients,
                                       const std::vector<Call>& others) {
  std::map<ValueId, int> uses;
  for (const std::vector<Call>* list : {static_cast<const std::vector<Call>*>(&calls), &others}) {
    for (const Call& call : *list) {
      for (ValueId v : call.inputs) {
        if (v.valid()) ++uses[root(v)];
      }
    }
  }
  for (const auto& [p, g] : chunk_.param_gradients) ++uses[root(g)];
  for (const auto& [param, gradient] : gradients) {
    const ValueId g = root(gradient);
    const Location into = param_location(param, SlotRef::Kind::kGrad);
    size_t made_at = calls.size();
    for (size_t i = 0; i < calls.size(); ++i) {
      const auto& outs = calls[i].outputs;
      const auto it = std::find(outs.begin(), outs.end(), g);
      if (it == outs.end()) continue;
      made_at = i;
      const uint32_t bit = 1u << (it - outs.begin());
      const ops::OpDef* def = ops::find_op(calls[i].op->kind);
      if (calls[i].copy || uses[g] != 1 || !(def->accumulates & bit) || places_.count(g)) break;
      calls[i].accumulate |= bit;
      places_[g].assign(sizes_.size(), into);
      made_at = calls.size() + 1;  // fused
      break;
    }
    if (made_at == calls.size() + 1) continue;
    Call add;
    add.accumulate_from = g;
    add.accumulate_into = into;
    const size_t at = made_at < calls.size() ? made_at + 1 : 0;  // a gradient that came from outside is there at once
    add.at = made_at < calls.size() ? calls[made_at].at : 0;
    calls.insert(calls.begin() + static_cast<std::ptrdiff_t>(at), std::move(add));
  }
}

// Gradients that travel have tensors of their own.
void ChunkLowering::place_gradients(const std::vector<Call>& calls) {
  std::set<ValueId> made;
  for (const Call& call : calls) made.insert(call.outputs.begin(), call.outputs.end());
  for (const auto& [v, g] : chunk_.gradients_out) {
    if (made.count(g) && !places_.count(g)) places_[g].assign(sizes_.size(), {{SlotRef::Kind::kBoundary, g, -1}, 0});
  }
}

std::vector<LoweredChunk> ChunkLowering::cut(const std::vector<Call>& calls, const std::vector<ir::Part>& parts, const char* pass) const {
  std::vector<LoweredChunk> lowered;
  auto begin = calls.begin();
  for (size_t k = 0; k < parts.size(); ++k) {
    const auto end = std::find_if(begin, calls.end(), [&](const Call& call) { return call.at >= parts[k].end; });
    lowered.push_back(finish({begin, end}, parts.size() > 1 ? fmt::format("{}.{}", pass, k) : pass));
    begin = end;
  }
  PIPER_CHECK(begin == calls.end(), "kernels that belong to no part");
  return lowered;
}

std::vector<LoweredChunk> ChunkLowering::backward() {
  std::set<ValueId> pinned;
  for (const auto& [v, g] : chunk_.gradients_out) pinned.insert(g);
  std::vector<Call> calls = collect_calls(chunk_.backward, pinned);
  place_gradients(calls);
  fuse_accumulations(calls, chunk_.param_gradients, {});
  plan_scratch(calls);
  return cut(calls, chunk_.backward_parts, "B");
}

ChunkLowering::Halves ChunkLowering::split_backward() {
  const ir::Halves halves = ir::halves_of(dag_.model, chunk_);
  std::set<ValueId> pinned;
  for (const auto& [v, g] : chunk_.gradients_out) pinned.insert(g);
  std::vector<Call> inputs = collect_calls(halves.inputs, pinned);
  std::vector<Call> weights = collect_calls(chunk_.weight_backward, {});
  place_gradients(inputs);
  fuse_accumulations(inputs, halves.input_gradients, weights);
  fuse_accumulations(weights, halves.weight_gradients, inputs);
  place_carried(inputs, weights);
  plan_scratch(inputs);
  plan_scratch(weights);
  return {cut(inputs, chunk_.input_parts, "I"), cut(weights, chunk_.weight_parts, "W")};
}

// What the weight half reads and the input half makes lives in a pack between the two.
void ChunkLowering::place_carried(const std::vector<Call>& inputs, const std::vector<Call>& weights) {
  std::set<ValueId> made;
  for (const Call& call : inputs) made.insert(call.outputs.begin(), call.outputs.end());
  std::vector<int64_t> end(sizes_.size(), 0);
  auto carry = [&](ValueId v) {
    const ValueId r = v.valid() ? root(v) : v;
    if (!r.valid() || !made.count(r) || places_.count(r)) return;
    for (size_t s = 0; s < sizes_.size(); ++s) {
      places_[r].push_back({{SlotRef::Kind::kCarried, ValueId(), -1}, end[s]});
      end[s] += align(bytes_of(dag_.model.value(r).type, sizes_[s]));
    }
  };
  for (const Call& call : weights) {
    for (ValueId v : call.inputs) carry(v);
    carry(call.accumulate_from);
  }
  carried_bytes_ = *std::max_element(end.begin(), end.end());
}

namespace {

int32_t slot_index(const SlotRef& ref, plan::Access access, std::vector<SlotRef>& slots, std::vector<plan::Slot>& plan_slots,
                   const ir::TrainingDag& dag) {
  size_t i = static_cast<size_t>(std::find(slots.begin(), slots.end(), ref) - slots.begin());
  if (i == slots.size()) {
    slots.push_back(ref);
    static constexpr const char* kNames[] = {"", "", "params ", "grads ", "constant ", "saved", "carried", "scratch", "stats", "valid"};
    std::string name = kNames[static_cast<size_t>(ref.kind)];
    if (ref.value.valid()) name = dag.model.value(ref.value).name;
    if (ref.kind == SlotRef::Kind::kParam || ref.kind == SlotRef::Kind::kGrad) name += dag.buckets[static_cast<size_t>(ref.index)].name;
    if (ref.kind == SlotRef::Kind::kConstant) name += std::to_string(ref.index);
    plan_slots.push_back({std::move(name), access});
  }
  plan::Slot& slot = plan_slots[i];
  slot.access = static_cast<plan::Access>(static_cast<uint8_t>(slot.access) | static_cast<uint8_t>(access));
  return static_cast<int32_t>(i);
}

}  // namespace

void ChunkLowering::add_call(const Call& call, size_t s, plan::KernelList& list, std::vector<SlotRef>& slots,
                             std::vector<plan::Slot>& plan_slots) const {
  auto operand = [&](const Location& at, const ir::TensorType& type, plan::Access access) {
    plan::Operand o;
    o.slot = slot_index(at.slot, access, slots, plan_slots, dag_);
    o.offset = at.offset;
    o.dtype = type.dtype;
    o.shape = ir::at(type.shape, sizes_[s]);
    list.slot_bytes.resize(slots.size(), 0);
    int64_t& used = list.slot_bytes[static_cast<size_t>(o.slot)];
    used = std::max(used, o.offset + bytes_of(type, sizes_[s]));
    return o;
  };
  plan::KernelCall k;
  if (call.accumulate_from.valid()) {
    const ir::TensorType& type = dag_.model.value(call.accumulate_from).type;
    k.op = "Accumulate";
    k.attrs.set("accumulate", int64_t{1});
    k.inputs.push_back(operand(locate(call.accumulate_from, s), type, plan::Access::kRead));
    k.outputs.push_back(operand(call.accumulate_into, type, plan::Access::kReadWrite));
  } else {
    k.op = call.copy ? "Identity" : call.op->kind;
    k.path = call.op->path;
    if (!call.copy) k.attrs = call.op->attrs;
    if (call.accumulate) k.attrs.set("accumulate", static_cast<int64_t>(call.accumulate));
    for (ValueId v : call.inputs) {
      if (!v.valid()) {
        k.inputs.emplace_back();
        continue;
      }
      const ir::TensorType type = call.copy ? dag_.model.value(call.outputs[0]).type : dag_.model.value(v).type;
      k.inputs.push_back(operand(locate(v, s), type, plan::Access::kRead));
    }
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      const bool adds = (call.accumulate >> i) & 1u;
      k.outputs.push_back(operand(locate(call.outputs[i], s), dag_.model.value(call.outputs[i]).type,
                                  adds ? plan::Access::kReadWrite : plan::Access::kWrite));
    }
    // Attributes that hold shapes become numbers.
    for (const auto& [name, value] : std::map<std::string, ir::AttrValue>(k.attrs.map())) {
      if (const ir::Shape* shape = std::get_if<ir::Shape>(&value)) k.attrs.set(name, ir::at(*shape, sizes_[s]));
    }
  }
  list.calls.push_back(std::move(k));
}

LoweredChunk ChunkLowering::finish(const std::vector<Call>& calls, std::string name) const {
  LoweredChunk out;
  out.code.name = fmt::format("{} {}", name, chunk_.name);
  for (size_t s = 0; s < sizes_.size(); ++s) {
    plan::KernelList list;
    list.samples = sizes_[s];
    for (const Call& call : calls) add_call(call, s, list, out.slots, out.code.slots);
    list.slot_bytes.resize(out.slots.size(), 0);
    out.code.variants.push_back(std::move(list));
  }
  double flops = 0;
  for (const Call& call : calls) {
    if (call.op && !call.copy) flops += ops::flops_of(dag_.model, *call.op, 1);
  }
  out.code.flops_per_sample = static_cast<int64_t>(flops / static_cast<double>(std::max<int64_t>(1, chunk_.samples)));
  return out;
}

uint64_t chunk_hash(const ir::TrainingDag& dag, const ir::Chunk& chunk) {
  std::string text;
  for (OpId id : chunk.forward) {
    const Op& op = dag.model.op(id);
    text += op.kind + ir::to_string(op.attrs) + "(";
    for (ValueId v : op.inputs) text += v.valid() ? dag.model.value(v).name + ":" + to_string(dag.model.value(v).type) + "," : "-,";
    text += ")\n";
  }
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace piper::codegen
