// Protobuf -> Plan. Mirrors encode.cpp. Memory follows the size of the input: nothing is allocated by a number that
// the file states.
#include <limits>

#include "plan.pb.h"
#include "plan/codec.h"

namespace piper::plan {

namespace {

// Thrown and caught in this file only: an enumerator outside the schema ends the reading wherever it is nested.
struct UnknownEnumerator {
  std::string what;
};

template <class To, class From>
To enumerator(From value, bool known, const char* what) {
  if (!known) throw UnknownEnumerator{std::string(what) + " " + std::to_string(static_cast<int>(value))};
  return static_cast<To>(static_cast<int>(value));
}

DType get_dtype(pb::DType v) { return enumerator<DType>(v, pb::DType_IsValid(v), "element type"); }

Access get_access(pb::Access v) {
  return enumerator<Access>(v, pb::Access_IsValid(v) && v != pb::ACCESS_UNKNOWN, "access");
}

template <class Field>
auto all(const Field& field) {
  return std::vector<typename Field::value_type>(field.begin(), field.end());
}

// A list of messages, each converted by `convert`.
template <class Field, class Convert>
auto each(const Field& field, Convert convert) {
  std::vector<decltype(convert(*field.begin()))> out;
  out.reserve(static_cast<size_t>(field.size()));
  for (const auto& message : field) out.push_back(convert(message));
  return out;
}

ir::AttrValue get_attr(const pb::Attr& in) {
  switch (in.value_case()) {
    case pb::Attr::kI: return in.i();
    case pb::Attr::kF: return in.f();
    case pb::Attr::kS: return in.s();
    case pb::Attr::kInts: return std::vector<int64_t>(in.ints().values().begin(), in.ints().values().end());
    case pb::Attr::kFloats: return std::vector<double>(in.floats().values().begin(), in.floats().values().end());
    case pb::Attr::kShape: break;
    case pb::Attr::VALUE_NOT_SET: throw UnknownEnumerator{"kind of attribute"};
  }
  const pb::Dims& dims = in.shape();
  if (dims.constants_size() != dims.batches_size()) throw UnknownEnumerator{"form of shape"};
  ir::Shape shape;
  for (int i = 0; i < dims.constants_size(); i++) shape.push_back(ir::Dim(dims.constants(i), dims.batches(i)));
  return shape;
}

Operand get_operand(const pb::Operand& in) {
  return {in.slot(), in.offset(), get_dtype(in.dtype()), {in.shape().begin(), in.shape().end()}};
}

KernelCall get_call(const pb::KernelCall& in) {
  KernelCall call;
  call.op = in.op();
  for (const pb::Attr& attr : in.attrs()) call.attrs.set(attr.name(), get_attr(attr));
  call.inputs = each(in.inputs(), get_operand);
  call.outputs = each(in.outputs(), get_operand);
  call.path = in.path();
  return call;
}

KernelList get_variant(const pb::KernelList& in) {
  return {in.samples(), each(in.calls(), get_call), {in.slot_bytes().begin(), in.slot_bytes().end()}};
}

Slot get_slot(const pb::Slot& in) { return {in.name(), get_access(in.access())}; }

Chunk get_chunk(const pb::Chunk& in) {
  return {in.name(), each(in.slots(), get_slot), each(in.variants(), get_variant), in.hash(), in.flops_per_sample()};
}

Buffer get_buffer(const pb::Buffer& in) {
  Buffer buffer;
  buffer.name = in.name();
  buffer.kind = enumerator<BufferKind>(in.kind(), pb::BufferKind_IsValid(in.kind()), "kind of buffer");
  buffer.dtype = get_dtype(in.dtype());
  buffer.offset = in.offset();
  buffer.bytes = in.size();
  buffer.persistent = in.persistent();
  return buffer;
}

BufferRange get_range(const pb::BufferRange& in) {
  return {in.buffer(), in.offset(), in.fixed(), in.per_sample(), get_access(in.access())};
}

Stream get_stream(const pb::Stream& in) {
  return {in.name(), enumerator<StreamKind>(in.kind(), pb::StreamKind_IsValid(in.kind()), "kind of stream"), in.logical(),
          in.high_priority()};
}

Instruction get_instruction(const pb::Instruction& in) {
  Instruction out;
  out.opcode = enumerator<Opcode>(in.opcode(), pb::Opcode_IsValid(in.opcode()), "instruction");
  out.stream = in.stream();
  out.waits = all(in.waits());
  out.ranges = each(in.ranges(), get_range);
  out.chunk = in.chunk();
  out.microbatch = in.microbatch();
  out.share = in.share();
  out.peer = in.peer();
  out.piece = in.piece();
  out.group = in.group();
  out.tag = in.tag();
  out.input = in.input();
  out.update = in.update();
  out.segment = in.segment();
  out.row_bytes = in.row_bytes();
  out.limit = in.limit();
  out.dtype = get_dtype(in.dtype());
  out.scale = in.scale();
  out.tensor = in.tensor();
  out.source = in.source();
  return out;
}

Program get_program(const pb::Program& in) {
  Program program;
  program.name = in.name();
  program.streams = each(in.streams(), get_stream);
  program.buffers = each(in.buffers(), get_buffer);
  program.instructions = each(in.instructions(), get_instruction);
  for (const pb::ParamHome& home : in.params()) {
    program.params.push_back({home.param(), home.buffer(), home.offset(), home.owner(), home.segment()});
  }
  for (const pb::ConstantHome& home : in.constants()) program.constants.emplace_back(home.constant(), home.buffer());
  program.stats_buffer = in.stats_buffer();
  program.arena_bytes = in.arena_bytes();
  return program;
}

RankEntry get_rank(const pb::RankEntry& in) {
  RankEntry rank;
  rank.program = in.program();
  rank.coordinates = {in.coordinates().begin(), in.coordinates().end()};
  rank.peers = all(in.peers());
  rank.groups = all(in.groups());
  rank.shares = each(in.shares(), [](const pb::Shares& shares) {
    return each(shares.of_microbatch(), [](const pb::Share& share) { return Share{share.start(), share.count()}; });
  });
  rank.segments = each(in.segments(), [](const pb::Segment& segment) { return Segment{segment.start(), segment.count()}; });
  rank.pieces = each(in.pieces(), [](const pb::Piece& piece) { return Piece{piece.offset(), piece.count()}; });
  return rank;
}

Param get_param(const pb::Param& in) {
  Param param;
  param.name = in.name();
  param.dtype = get_dtype(in.dtype());
  param.shape = {in.shape().begin(), in.shape().end()};
  param.trainable = in.trainable();
  param.statistics = in.statistics();
  param.kept = in.kept();
  param.transposed = in.transposed();
  param.initializer = in.initializer();
  param.init = enumerator<InitKind>(in.init(), pb::InitKind_IsValid(in.init()), "kind of initial value");
  param.init_a = in.init_a();
  param.init_b = in.init_b();
  return param;
}

ConstantData get_constant(const pb::ConstantData& in) {
  ConstantData constant;
  constant.name = in.name();
  constant.dtype = get_dtype(in.dtype());
  constant.shape = {in.shape().begin(), in.shape().end()};
  const auto* data = reinterpret_cast<const std::byte*>(in.data().data());
  constant.bytes.assign(data, data + in.data().size());
  return constant;
}

Input get_input(const pb::Input& in) {
  Input input;
  input.name = in.name();
  input.dtype = get_dtype(in.dtype());
  input.sample_shape = {in.sample_shape().begin(), in.sample_shape().end()};
  input.is_target = in.is_target();
  input.vocabulary = in.vocabulary();
  input.ignore_index = in.ignore_index();
  input.has_ignore_index = in.has_ignore_index();
  return input;
}

OptimizerConfig get_optimizer(const pb::OptimizerConfig& in) {
  OptimizerConfig out;
  out.kind = enumerator<OptimizerKind>(in.kind(), pb::OptimizerKind_IsValid(in.kind()), "optimizer");
  out.lr = in.lr();
  out.beta1 = in.beta1();
  out.beta2 = in.beta2();
  out.eps = in.eps();
  out.weight_decay = in.weight_decay();
  out.momentum = in.momentum();
  out.nesterov = in.nesterov();
  return out;
}

Update get_update(const pb::Update& in) {
  return {in.name(), each(in.runs(), [](const pb::UpdateRun& run) {
            return UpdateRun{run.begin(), run.end(), run.decay(), run.kept()};
          }), in.statistics()};
}

void get_training(const pb::Plan& in, Plan* plan) {
  plan->loss = each(in.loss(), [](const pb::LossTerm& term) {
    return LossTerm{term.name(), term.weight(), term.sum_index(), term.count_index()};
  });
  plan->stats_count = in.stats_count();
  plan->optimizer = get_optimizer(in.optimizer());
  const pb::LrScheduleConfig& schedule = in.schedule();
  plan->schedule.kind = enumerator<ScheduleKind>(schedule.kind(), pb::ScheduleKind_IsValid(schedule.kind()), "lr schedule");
  plan->schedule.warmup = schedule.warmup();
  plan->schedule.total = schedule.total();
  plan->schedule.floor = schedule.floor();
  plan->clip_norm = in.clip_norm();
  plan->skip_nonfinite = in.skip_nonfinite();
  plan->updates = each(in.updates(), get_update);
}

Contract get_contract(const pb::Contract& in) {
  Contract contract;
  contract.chunk_hashes = {in.chunk_hashes().begin(), in.chunk_hashes().end()};
  contract.chunk_names = {in.chunk_names().begin(), in.chunk_names().end()};
  contract.contributions = each(in.contributions(), [](const pb::Contribution& contribution) {
    return Contribution{contribution.param(), contribution.chunk()};
  });
  contract.loss_weights = {in.loss_weights().begin(), in.loss_weights().end()};
  contract.microbatches = in.microbatches();
  return contract;
}

Plan get_plan(const pb::Plan& in) {
  Plan plan;
  plan.device = in.device();
  plan.model_file = in.model_file();
  plan.model_hash = in.model_hash();
  plan.strategy_hash = in.strategy_hash();
  plan.strategy_file = in.strategy_file();
  plan.strategy_text = in.strategy_text();
  plan.mesh = each(in.mesh(), [](const pb::MeshAxis& axis) { return MeshAxis{axis.name(), axis.size()}; });
  plan.batch = in.batch();
  plan.microbatches = in.microbatches();
  plan.seed = in.seed();
  plan.params = each(in.params(), get_param);
  plan.constants = each(in.constants(), get_constant);
  plan.inputs = each(in.inputs(), get_input);
  get_training(in, &plan);
  plan.chunks = each(in.chunks(), get_chunk);
  plan.programs = each(in.programs(), get_program);
  plan.ranks = each(in.ranks(), get_rank);
  plan.groups = each(in.groups(), [](const pb::Group& group) { return Group{group.name(), all(group.ranks())}; });
  plan.sources = {in.sources().begin(), in.sources().end()};
  plan.contract = get_contract(in.contract());
  return plan;
}

}  // namespace

support::Expected<Plan> decode(std::string_view bytes) {
  google::protobuf::Arena arena;
  auto* message = google::protobuf::Arena::CreateMessage<pb::Plan>(&arena);
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()) ||
      !message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return support::user_error("its content cannot be decoded");
  }
  try {
    return get_plan(*message);
  } catch (const UnknownEnumerator& unknown) {
    return support::user_error("it has an unknown " + unknown.what);
  }
}

}  // namespace piper::plan
