#include "codegen/program_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/memory_plan.h"
#include "ir/shares.h"
#include "support/error.h"

namespace piper::codegen {

using ir::Node;
using ir::NodeId;
using ir::NodeKind;
using ir::Pass;
using ir::PlacementId;
using ir::ValueId;
using plan::Access;
using plan::BufferKind;
using plan::BufferRange;
using plan::Instruction;
using plan::Opcode;
using plan::StreamKind;

bool ProgramBuilder::mine(PlacementId placement) const {
  return std::binary_search(class_.placements.begin(), class_.placements.end(), placement);
}

int32_t ProgramBuilder::share_of(PlacementId placement) const {
  const auto it = std::lower_bound(class_.placements.begin(), class_.placements.end(), placement);
  return static_cast<int32_t>(it - class_.placements.begin());
}

ProgramBuilder::ProgramBuilder(const ir::TrainingDag& dag, const ir::Strategy& strategy, const RankClass& rank_class,
                               plan::Plan& plan, ChunkTable& chunks, Transfers& transfers, SourceTable& sources)
    : dag_(dag), strategy_(strategy), class_(rank_class), plan_(plan), chunks_(chunks), transfers_(transfers), sources_(sources) {}

// ---- Streams and buffers ----

int32_t ProgramBuilder::stream(const std::string& name, StreamKind kind, const std::string& logical) {
  const auto [it, fresh] = stream_index_.try_emplace(name, static_cast<int32_t>(program_.streams.size()));
  if (fresh) {
    plan::Stream s{name, kind, logical, false};
    for (const ir::StreamProperties& p : strategy_.streams) s.high_priority = s.high_priority || (p.name == logical && p.high_priority);
    program_.streams.push_back(std::move(s));
    sends_.emplace_back();
    last_on_stream_.push_back(-1);
    for (auto& clock : clock_) clock.push_back(0);
  }
  return it->second;
}

int32_t ProgramBuilder::buffer(const std::string& key, BufferKind kind, ir::DType dtype, int64_t bytes, bool persistent) {
  const auto [it, fresh] = buffer_index_.try_emplace(key, static_cast<int32_t>(program_.buffers.size()));
  if (fresh) {
    program_.buffers.push_back({key, kind, dtype, 0, bytes, persistent});
    writer_.push_back(-1);
    readers_.emplace_back();
  }
  return it->second;
}

int32_t ProgramBuilder::boundary_buffer(ValueId value, int32_t mb, PlacementId placement, BufferKind kind) {
  const ir::Value& v = dag_.model.value(value);
  const int64_t largest = chunks_.sizes(placement).back();
  const int64_t bytes = ir::num_elements(ir::at(v.type.shape, largest)) * ir::dtype_size(v.type.dtype);
  std::string key = fmt::format("{} mb={}", v.name, mb);
  if (class_.placements.size() > 1) key += fmt::format(" on {}", dag_.placements[placement.index()].name);
  return buffer(key, kind, v.type.dtype, bytes, false);
}

BufferRange ProgramBuilder::whole(int32_t buffer, Access access) const {
  return {buffer, 0, program_.buffers[static_cast<size_t>(buffer)].bytes, 0, access};
}

BufferRange ProgramBuilder::tensor_range(int32_t buffer, const ir::TensorType& type, Access access) const {
  const ir::Dim n = ir::num_elements(type.shape);
  const int64_t size = ir::dtype_size(type.dtype);
  return {buffer, 0, n.constant * size, n.batch * size, access};
}

BufferRange ProgramBuilder::bind(const SlotRef& slot, Access access, NodeId id, const LoweredPasses& passes) {
  const Node& node = dag_.node(id);
  const std::string where = class_.placements.size() > 1 ? " on " + dag_.placements[node.placement.index()].name : "";
  switch (slot.kind) {
    case SlotRef::Kind::kBoundary:
      return tensor_range(boundary_buffer(slot.value, node.microbatch, node.placement, BufferKind::kActivation),
                          dag_.model.value(slot.value).type, access);
    case SlotRef::Kind::kData:
      return tensor_range(boundary_buffer(slot.value, node.microbatch, node.placement, BufferKind::kInput),
                          dag_.model.value(slot.value).type, access);
    case SlotRef::Kind::kParam: return bind_params(static_cast<size_t>(slot.index), access, node);
    case SlotRef::Kind::kGrad: return bind_gradients(static_cast<size_t>(slot.index), access, id);
    case SlotRef::Kind::kConstant: {
      const ir::Constant& c = dag_.model.constants[static_cast<size_t>(slot.index)];
      const int32_t index = constants_->at(slot.index);
      const int32_t b = buffer(fmt::format("constant {}", index), BufferKind::kConstant, c.type.dtype, static_cast<int64_t>(c.bytes.size()), true);
      const std::pair<int32_t, int32_t> entry{index, b};
      if (std::find(program_.constants.begin(), program_.constants.end(), entry) == program_.constants.end()) {
        program_.constants.push_back(entry);
      }
      return whole(b, access);
    }
    case SlotRef::Kind::kSaved:
      return whole(buffer(fmt::format("saved{} {} mb={}{}", slot.index == 1 ? " for W" : "", dag_.chunk(node.chunk).name, node.microbatch, where),
                          BufferKind::kActivation, ir::DType::kU8, passes.saved_bytes[static_cast<size_t>(slot.index)], false), access);
    case SlotRef::Kind::kCarried:
      return whole(buffer(fmt::format("carried {} mb={}{}", dag_.chunk(node.chunk).name, node.microbatch, where),
                          BufferKind::kActivation, ir::DType::kU8, passes.carried_bytes, false), access);
    case SlotRef::Kind::kScratch: {
      // One for all chunks: they run one after the other. It grows to the largest.
      const int32_t b = buffer("scratch", BufferKind::kScratch, ir::DType::kU8, 0, false);
      int64_t& bytes = program_.buffers[static_cast<size_t>(b)].bytes;
      bytes = std::max(bytes, passes.scratch_bytes);
      return {b, 0, passes.scratch_bytes, 0, access};
    }
    case SlotRef::Kind::kStats: return whole(stats_, access);
    case SlotRef::Kind::kValid: return whole(valid_, access);
  }
  return {};
}

// ---- Instructions ----

int32_t ProgramBuilder::emit(Instruction instruction, std::vector<int32_t> extra_waits) {
  const int32_t id = static_cast<int32_t>(program_.instructions.size());
  const size_t s = static_cast<size_t>(instruction.stream);
  std::vector<int32_t> needs = std::move(extra_waits);
  for (const BufferRange& r : instruction.ranges) {
    const size_t b = static_cast<size_t>(r.buffer);
    if (writer_[b] >= 0) needs.push_back(writer_[b]);
    if (r.access != Access::kRead) needs.insert(needs.end(), readers_[b].begin(), readers_[b].end());
  }
  std::vector<int32_t> clock(program_.streams.size(), 0);
  if (last_on_stream_[s] >= 0) {
    clock = clock_[static_cast<size_t>(last_on_stream_[s])];
    clock[s] = position_[static_cast<size_t>(last_on_stream_[s])];
  }
  // Latest first: what it implies need not be waited for.
  std::sort(needs.begin(), needs.end(), std::greater<>());
  for (int32_t need : needs) {
    const size_t other = static_cast<size_t>(program_.instructions[static_cast<size_t>(need)].stream);
    if (clock[other] >= position_[static_cast<size_t>(need)]) continue;
    instruction.waits.push_back(need);
    const auto& theirs = clock_[static_cast<size_t>(need)];
    for (size_t k = 0; k < clock.size(); ++k) clock[k] = std::max(clock[k], theirs[k]);
    clock[other] = std::max(clock[other], position_[static_cast<size_t>(need)]);
  }
  std::sort(instruction.waits.begin(), instruction.waits.end());
  for (const BufferRange& r : instruction.ranges) {
    const size_t b = static_cast<size_t>(r.buffer);
    if (r.access != Access::kRead) {
      writer_[b] = id;
      readers_[b].clear();
    }
  }
  for (const BufferRange& r : instruction.ranges) {
    if (r.access == Access::kRead) readers_[static_cast<size_t>(r.buffer)].push_back(id);
  }
  position_.push_back(last_on_stream_[s] < 0 ? 1 : position_[static_cast<size_t>(last_on_stream_[s])] + 1);
  clock_.push_back(std::move(clock));
  last_on_stream_[s] = id;
  program_.instructions.push_back(std::move(instruction));
  return id;
}

std::vector<int32_t> ProgramBuilder::throttle() const {
  constexpr size_t kAhead = 2;
  return computes_.size() >= kAhead ? std::vector<int32_t>{computes_[computes_.size() - kAhead]} : std::vector<int32_t>{};
}

std::vector<int32_t> ProgramBuilder::old_sends() const {
  std::vector<int32_t> waits;
  if (computes_.size() < 2) return waits;
  const int32_t before = computes_[computes_.size() - 2];
  for (const auto& list : sends_) {
    const auto it = std::lower_bound(list.begin(), list.end(), before);
    if (it != list.begin()) waits.push_back(*std::prev(it));
  }
  return waits;
}

void ProgramBuilder::emit_load(ValueId value, int32_t mb, PlacementId placement) {
  if (!loaded_.insert({value, mb, placement}).second) return;
  const int32_t b = boundary_buffer(value, mb, placement, BufferKind::kInput);
  Instruction in;
  in.opcode = Opcode::kLoadBatch;
  in.stream = stream("load", StreamKind::kLoad, "load");
  in.ranges = {tensor_range(b, dag_.model.value(value).type, Access::kWrite)};
  in.microbatch = mb;
  in.share = share_of(placement);
  in.input = inputs_->at(value);
  in.tensor = dag_.model.value(value).name;
  emit(std::move(in), throttle());
}

void ProgramBuilder::emit_compute(NodeId id) {
  const Node& node = dag_.node(id);
  const bool count = node.pass == Pass::kCount;
  const LoweredPasses& passes = count ? chunks_.count(static_cast<size_t>(node.loss_term), node.placement)
                                  : chunks_.get(node.chunk, node.placement);
  const LoweredPass& pass = node.pass == Pass::kBackward     ? passes.backward
                            : node.pass == Pass::kInputGrad  ? passes.inputs
                            : node.pass == Pass::kWeightGrad ? passes.weights
                                                             : passes.forward;
  std::vector<size_t> parts;
  for (size_t k = 0; k < pass.chunks.size(); ++k) {
    if (pass.chunks[k] >= 0 && (node.part < 0 || static_cast<size_t>(node.part) == k)) parts.push_back(k);
  }
  for (size_t k : parts) {
    for (const SlotRef& slot : pass.slots[k]) {
      if (slot.kind == SlotRef::Kind::kData) emit_load(slot.value, node.microbatch, node.placement);
    }
  }
  std::vector<int32_t> waits = old_sends();
  for (size_t k : parts) {
    const plan::Chunk& code = plan_.chunks[static_cast<size_t>(pass.chunks[k])];
    Instruction in;
    in.opcode = Opcode::kCompute;
    in.stream = stream(kComputeStream, StreamKind::kCompute, kComputeStream);
    in.chunk = pass.chunks[k];
    in.microbatch = node.microbatch;
    in.share = share_of(node.placement);
    in.source = sources_.add(node.span);
    in.tensor = code.name;
    for (size_t i = 0; i < code.slots.size(); ++i) in.ranges.push_back(bind(pass.slots[k][i], code.slots[i].access, id, passes));
    last_of_[id] = emit(std::move(in), std::move(waits));
    waits.clear();
  }
  if (!parts.empty() && !count) computes_.push_back(last_of_[id]);
}

void ProgramBuilder::emit_transfers(NodeId id) {
  const Node& node = dag_.node(id);
  const std::vector<TransferKey> keys = transfers_.of(node, class_.first_rank);
  const int32_t whole_value = boundary_buffer(node.value, node.microbatch, node.placement,
                                              node.kind == NodeKind::kSend ? BufferKind::kActivation : BufferKind::kCommunication);
  const std::string& name = dag_.model.value(node.value).name;
  if (keys.empty() && node.kind == NodeKind::kRecv) emit_zero(whole_value, name);  // a gradient without parts
  for (const TransferKey& key : keys) {
    const bool part = node.kind == NodeKind::kRecv && !key.batched && key.slot > 0;
    if (!part) {
      emit_transfer(id, key, whole_value);
      continue;
    }
    const plan::Buffer like = program_.buffers[static_cast<size_t>(whole_value)];
    const int32_t more = buffer(fmt::format("{} part {}", like.name, key.slot), BufferKind::kCommunication, like.dtype, like.bytes, false);
    Instruction add;
    add.opcode = Opcode::kAdd;
    add.stream = emit_transfer(id, key, more);
    add.ranges = {whole(more, Access::kRead), whole(whole_value, Access::kReadWrite)};
    add.microbatch = node.microbatch;
    add.tensor = name;
    emit(std::move(add));
  }
}

namespace {

int32_t index_of(const TransferKey& key, std::vector<TransferKey>& table) {
  const auto it = std::find(table.begin(), table.end(), key);
  const int32_t index = static_cast<int32_t>(it - table.begin());
  if (it == table.end()) table.push_back(key);
  return index;
}

}  // namespace

int32_t ProgramBuilder::emit_transfer(NodeId id, const TransferKey& key, int32_t b) {
  const Node& node = dag_.node(id);
  const bool send = node.kind == NodeKind::kSend;
  const ir::Value& v = dag_.model.value(node.value);
  Instruction in;
  in.opcode = send ? Opcode::kSend : Opcode::kRecv;
  const std::string name = fmt::format("{} {} {} {} {}", node.stream, send ? "to" : "from", dag_.placements[node.peer.index()].name,
                                       node.gradient ? "grad" : "act", dag_.chunk(node.channel).name);
  in.stream = stream(name, send ? StreamKind::kSend : StreamKind::kRecv, node.stream);
  in.ranges = {tensor_range(b, v.type, send ? Access::kRead : Access::kWrite)};
  in.microbatch = node.microbatch;
  in.share = share_of(node.placement);
  in.dtype = v.type.dtype;
  in.tensor = v.name;
  in.tag = (send ? id : node.inputs.front()).value;
  in.source = sources_.add(node.span);
  in.peer = index_of(key, tables_.peers);
  if (transfers_.piece(key, class_.first_rank).count >= 0) in.piece = index_of(key, tables_.pieces);
  const size_t s = static_cast<size_t>(in.stream);
  const int32_t made = emit(std::move(in), send ? std::vector<int32_t>{} : throttle());
  if (send) sends_[s].push_back(made);
  return static_cast<int32_t>(s);
}

void ProgramBuilder::emit_all_to_all(NodeId id) {
  const Node& node = dag_.node(id);
  const ir::Exchange& e = dag_.exchanges[static_cast<size_t>(node.exchange)];
  const auto range = [&](ValueId v, Access access) {
    return tensor_range(boundary_buffer(v, node.microbatch, node.placement, BufferKind::kCommunication), dag_.model.value(v).type, access);
  };
  Instruction in;
  in.opcode = Opcode::kAllToAll;
  in.stream = stream(node.stream, StreamKind::kCollective, node.stream);
  in.ranges = {range(e.from, Access::kRead), range(e.to, Access::kWrite)};
  const ir::TensorType& type = dag_.model.value(e.from).type;
  if (e.sent.valid()) {
    in.ranges.push_back(range(e.sent, Access::kRead));
    in.ranges.push_back(range(e.received, Access::kRead));
    in.row_bytes = ir::num_elements(ir::Shape(type.shape.begin() + 1, type.shape.end())).constant * ir::dtype_size(type.dtype);
  }
  GroupKey key{{node.placement}, {}};
  for (int axis : ir::spanned_axes(dag_.mesh, dag_.placements[node.placement.index()])) {
    if (axis != e.axis) key.apart.push_back(axis);
  }
  in.group = group_index(key);
  in.dtype = type.dtype;
  in.microbatch = node.microbatch;
  in.share = share_of(node.placement);
  in.tag = id.value;
  in.tensor = e.what;
  in.source = sources_.add(node.span);
  emit(std::move(in), throttle());
}

void ProgramBuilder::emit_wait_host(NodeId id) {
  const Node& node = dag_.node(id);
  const ir::Exchange& e = dag_.exchanges[static_cast<size_t>(node.exchange)];
  Instruction in;
  in.opcode = Opcode::kWaitHost;
  in.stream = stream(node.stream, StreamKind::kCollective, node.stream);
  in.ranges = {whole(boundary_buffer(e.to, node.microbatch, node.placement, BufferKind::kCommunication), Access::kRead)};
  in.microbatch = node.microbatch;
  in.share = share_of(node.placement);
  in.limit = e.limit;
  in.tensor = e.what;
  in.source = sources_.add(node.span);
  emit(std::move(in));
}

void ProgramBuilder::emit_node(NodeId id) {
  const Node& node = dag_.node(id);
  switch (node.kind) {
    case NodeKind::kCompute:
      if (mine(node.placement)) emit_compute(id);
      return;
    case NodeKind::kSend:
    case NodeKind::kRecv:
      if (mine(node.placement)) emit_transfers(id);
      return;
    case NodeKind::kAllReduce: return emit_all_reduce(id);
    case NodeKind::kReduceScatter:
      if (mine(node.placement)) emit_reduce_scatter(id);
      return;
    case NodeKind::kAllGather:
      if (mine(node.placement)) emit_all_gather(id);
      return;
    case NodeKind::kAllToAll:
      if (mine(node.placement)) emit_all_to_all(id);
      return;
    case NodeKind::kWaitHost:
      if (mine(node.placement)) emit_wait_host(id);
      return;
    case NodeKind::kNorm: return emit_norm();
    case NodeKind::kUpdate: return emit_update(node);
  }
}

plan::Program ProgramBuilder::build(const std::map<ValueId, int32_t>& inputs, const std::map<int32_t, int32_t>& constants) {
  inputs_ = &inputs;
  constants_ = &constants;
  std::vector<std::string> names;
  for (PlacementId p : class_.placements) program_.name += (program_.name.empty() ? "" : " + ") + dag_.placements[p.index()].name;
  if (class_.placements.empty()) program_.name = "idle";
  stream(kComputeStream, StreamKind::kCompute, kComputeStream);
  stats_ = buffer("stats", BufferKind::kStats, ir::DType::kF64, plan_.stats_count * 8, true);
  valid_ = buffer("valid", BufferKind::kStats, ir::DType::kF64, static_cast<int64_t>(std::max<size_t>(1, plan_.loss.size())) * 8, true);
  program_.stats_buffer = stats_;
  find_runs();
  emit_prologue();
  std::set<int32_t> counted;
  bool copied = false;
  for (NodeId id : dag_.global_order) {
    const Node& node = dag_.node(id);
    if (node.pass == Pass::kCount && mine(node.placement)) counted.insert(node.loss_term);
    if (node.pass != Pass::kCount && !copied) {
      copied = true;
      for (int32_t term : counted) {
        Instruction in;
        in.opcode = Opcode::kCopy;
        in.stream = stream(kComputeStream, StreamKind::kCompute, kComputeStream);
        in.ranges = {{stats_, loss_count_index(static_cast<size_t>(term)) * 8, 8, 0, Access::kRead},
                     {valid_, static_cast<int64_t>(term) * 8, 8, 0, Access::kWrite}};
        in.tensor = fmt::format("valid {}", term);
        emit(std::move(in));
      }
    }
    emit_node(id);
  }
  add_homes();
  plan_memory(program_, clock_, position_);
  return std::move(program_);
}

}  // namespace piper::codegen
