// Plan -> protobuf. One function a struct, fields in the order of plan.h; decode.cpp mirrors it.
#include <limits>
#include <type_traits>

#include "plan.pb.h"
#include "plan/codec.h"

namespace piper::plan {

namespace {

// Enumerators have equal numbers on both sides, checked at both ends.
static_assert(static_cast<int>(DType::kU8) == pb::DTYPE_U8 && pb::DType_ARRAYSIZE == pb::DTYPE_U8 + 1);
static_assert(static_cast<int>(Access::kReadWrite) == pb::ACCESS_READ_WRITE);
static_assert(static_cast<int>(BufferKind::kStats) == pb::BUFFER_STATS);
static_assert(static_cast<int>(Opcode::kWaitHost) == pb::OPCODE_WAIT_HOST);
static_assert(static_cast<int>(StreamKind::kLoad) == pb::STREAM_LOAD);
static_assert(static_cast<int>(InitKind::kConstant) == pb::INIT_CONSTANT);
static_assert(static_cast<int>(OptimizerKind::kAdamW) == pb::OPTIMIZER_ADAMW);
static_assert(static_cast<int>(ScheduleKind::kCosine) == pb::SCHEDULE_COSINE);

template <class To, class From>
To number(From value) {
  return static_cast<To>(static_cast<int>(value));
}

template <class Field, class Values>
void put_all(Field* field, const Values& values) {
  field->Reserve(static_cast<int>(values.size()));
  for (const auto& value : values) field->Add(value);
}

struct PutAttr {
  pb::Attr* out;
  void operator()(int64_t v) const { out->set_i(v); }
  void operator()(double v) const { out->set_f(v); }
  void operator()(const std::string& v) const { out->set_s(v); }
  void operator()(const std::vector<int64_t>& v) const { put_all(out->mutable_ints()->mutable_values(), v); }
  void operator()(const std::vector<double>& v) const { put_all(out->mutable_floats()->mutable_values(), v); }
  void operator()(const ir::Shape& v) const {
    pb::Dims* dims = out->mutable_shape();
    for (const ir::Dim& dim : v) {
      dims->add_constants(dim.constant);
      dims->add_batches(dim.batch);
    }
  }
};

void put(const Operand& operand, pb::Operand* out) {
  out->set_slot(operand.slot);
  out->set_offset(operand.offset);
  out->set_dtype(number<pb::DType>(operand.dtype));
  put_all(out->mutable_shape(), operand.shape);
}

void put(const KernelCall& call, pb::KernelCall* out) {
  out->set_op(call.op);
  for (const auto& [name, value] : call.attrs.map()) {
    pb::Attr* attr = out->add_attrs();
    attr->set_name(name);
    std::visit(PutAttr{attr}, value);
  }
  for (const Operand& input : call.inputs) put(input, out->add_inputs());
  for (const Operand& output : call.outputs) put(output, out->add_outputs());
  out->set_path(call.path);
}

void put(const Chunk& chunk, pb::Chunk* out) {
  out->set_name(chunk.name);
  for (const Slot& slot : chunk.slots) {
    pb::Slot* to = out->add_slots();
    to->set_name(slot.name);
    to->set_access(number<pb::Access>(slot.access));
  }
  for (const KernelList& variant : chunk.variants) {
    pb::KernelList* to = out->add_variants();
    to->set_samples(variant.samples);
    for (const KernelCall& call : variant.calls) put(call, to->add_calls());
    put_all(to->mutable_slot_bytes(), variant.slot_bytes);
  }
  out->set_hash(chunk.hash);
  out->set_flops_per_sample(chunk.flops_per_sample);
}

void put(const Buffer& buffer, pb::Buffer* out) {
  out->set_name(buffer.name);
  out->set_kind(number<pb::BufferKind>(buffer.kind));
  out->set_dtype(number<pb::DType>(buffer.dtype));
  out->set_offset(buffer.offset);
  out->set_size(buffer.bytes);
  out->set_persistent(buffer.persistent);
}

void put(const BufferRange& range, pb::BufferRange* out) {
  out->set_buffer(range.buffer);
  out->set_offset(range.offset);
  out->set_fixed(range.fixed);
  out->set_per_sample(range.per_sample);
  out->set_access(number<pb::Access>(range.access));
}

void put(const Stream& stream, pb::Stream* out) {
  out->set_name(stream.name);
  out->set_kind(number<pb::StreamKind>(stream.kind));
  out->set_logical(stream.logical);
  out->set_high_priority(stream.high_priority);
}

void put(const Instruction& instruction, pb::Instruction* out) {
  out->set_opcode(number<pb::Opcode>(instruction.opcode));
  out->set_stream(instruction.stream);
  put_all(out->mutable_waits(), instruction.waits);
  for (const BufferRange& range : instruction.ranges) put(range, out->add_ranges());
  out->set_chunk(instruction.chunk);
  out->set_microbatch(instruction.microbatch);
  out->set_share(instruction.share);
  out->set_peer(instruction.peer);
  out->set_piece(instruction.piece);
  out->set_group(instruction.group);
  out->set_tag(instruction.tag);
  out->set_input(instruction.input);
  out->set_update(instruction.update);
  out->set_segment(instruction.segment);
  out->set_row_bytes(instruction.row_bytes);
  out->set_limit(instruction.limit);
  out->set_dtype(number<pb::DType>(instruction.dtype));
  out->set_scale(instruction.scale);
  out->set_tensor(instruction.tensor);
  out->set_source(instruction.source);
}

void put(const Program& program, pb::Program* out) {
  out->set_name(program.name);
  for (const Stream& stream : program.streams) put(stream, out->add_streams());
  for (const Buffer& buffer : program.buffers) put(buffer, out->add_buffers());
  for (const Instruction& instruction : program.instructions) put(instruction, out->add_instructions());
  for (const ParamHome& home : program.params) {
    pb::ParamHome* to = out->add_params();
    to->set_param(home.param);
    to->set_buffer(home.buffer);
    to->set_offset(home.offset);
    to->set_owner(home.owner);
    to->set_segment(home.segment);
  }
  for (const auto& [constant, buffer] : program.constants) {
    pb::ConstantHome* to = out->add_constants();
    to->set_constant(constant);
    to->set_buffer(buffer);
  }
  out->set_stats_buffer(program.stats_buffer);
  out->set_arena_bytes(program.arena_bytes);
}

void put(const RankEntry& rank, pb::RankEntry* out) {
  out->set_program(rank.program);
  put_all(out->mutable_coordinates(), rank.coordinates);
  put_all(out->mutable_peers(), rank.peers);
  put_all(out->mutable_groups(), rank.groups);
  for (const std::vector<Share>& shares : rank.shares) {
    pb::Shares* to = out->add_shares();
    for (const Share& share : shares) {
      pb::Share* one = to->add_of_microbatch();
      one->set_start(share.start);
      one->set_count(share.count);
    }
  }
  for (const Piece& piece : rank.pieces) {
    pb::Piece* to = out->add_pieces();
    to->set_offset(piece.offset);
    to->set_count(piece.count);
  }
  for (const Segment& segment : rank.segments) {
    pb::Segment* to = out->add_segments();
    to->set_start(segment.start);
    to->set_count(segment.count);
  }
}

void put(const Param& param, pb::Param* out) {
  out->set_name(param.name);
  out->set_dtype(number<pb::DType>(param.dtype));
  put_all(out->mutable_shape(), param.shape);
  out->set_trainable(param.trainable);
  out->set_statistics(param.statistics);
  out->set_kept(param.kept);
  out->set_transposed(param.transposed);
  out->set_initializer(param.initializer);
  out->set_init(number<pb::InitKind>(param.init));
  out->set_init_a(param.init_a);
  out->set_init_b(param.init_b);
}

void put(const ConstantData& constant, pb::ConstantData* out) {
  out->set_name(constant.name);
  out->set_dtype(number<pb::DType>(constant.dtype));
  put_all(out->mutable_shape(), constant.shape);
  out->set_data(constant.bytes.data(), constant.bytes.size());
}

void put(const Input& input, pb::Input* out) {
  out->set_name(input.name);
  out->set_dtype(number<pb::DType>(input.dtype));
  put_all(out->mutable_sample_shape(), input.sample_shape);
  out->set_is_target(input.is_target);
  out->set_vocabulary(input.vocabulary);
  out->set_ignore_index(input.ignore_index);
  out->set_has_ignore_index(input.has_ignore_index);
}

void put(const Update& update, pb::Update* out) {
  out->set_name(update.name);
  for (const UpdateRun& run : update.runs) {
    pb::UpdateRun* to = out->add_runs();
    to->set_begin(run.begin);
    to->set_end(run.end);
    to->set_decay(run.decay);
    to->set_kept(run.kept);
  }
  out->set_statistics(update.statistics);
}

void put_training(const Plan& plan, pb::Plan* out) {
  for (const LossTerm& term : plan.loss) {
    pb::LossTerm* to = out->add_loss();
    to->set_name(term.name);
    to->set_weight(term.weight);
    to->set_sum_index(term.sum_index);
    to->set_count_index(term.count_index);
  }
  out->set_stats_count(plan.stats_count);
  pb::OptimizerConfig* optimizer = out->mutable_optimizer();
  optimizer->set_kind(number<pb::OptimizerKind>(plan.optimizer.kind));
  optimizer->set_lr(plan.optimizer.lr);
  optimizer->set_beta1(plan.optimizer.beta1);
  optimizer->set_beta2(plan.optimizer.beta2);
  optimizer->set_eps(plan.optimizer.eps);
  optimizer->set_weight_decay(plan.optimizer.weight_decay);
  optimizer->set_momentum(plan.optimizer.momentum);
  optimizer->set_nesterov(plan.optimizer.nesterov);
  pb::LrScheduleConfig* schedule = out->mutable_schedule();
  schedule->set_kind(number<pb::ScheduleKind>(plan.schedule.kind));
  schedule->set_warmup(plan.schedule.warmup);
  schedule->set_total(plan.schedule.total);
  schedule->set_floor(plan.schedule.floor);
  out->set_clip_norm(plan.clip_norm);
  out->set_skip_nonfinite(plan.skip_nonfinite);
  for (const Update& update : plan.updates) put(update, out->add_updates());
}

void put(const Contract& contract, pb::Contract* out) {
  put_all(out->mutable_chunk_hashes(), contract.chunk_hashes);
  for (const std::string& name : contract.chunk_names) out->add_chunk_names(name);
  for (const Contribution& contribution : contract.contributions) {
    pb::Contribution* to = out->add_contributions();
    to->set_param(contribution.param);
    to->set_chunk(contribution.chunk);
  }
  put_all(out->mutable_loss_weights(), contract.loss_weights);
  out->set_microbatches(contract.microbatches);
}

void put(const Plan& plan, pb::Plan* out) {
  out->set_device(plan.device);
  out->set_model_file(plan.model_file);
  out->set_model_hash(plan.model_hash);
  out->set_strategy_hash(plan.strategy_hash);
  out->set_strategy_file(plan.strategy_file);
  out->set_strategy_text(plan.strategy_text);
  for (const MeshAxis& axis : plan.mesh) {
    pb::MeshAxis* to = out->add_mesh();
    to->set_name(axis.name);
    to->set_size(axis.size);
  }
  out->set_batch(plan.batch);
  out->set_microbatches(plan.microbatches);
  out->set_seed(plan.seed);
  for (const Param& param : plan.params) put(param, out->add_params());
  for (const ConstantData& constant : plan.constants) put(constant, out->add_constants());
  for (const Input& input : plan.inputs) put(input, out->add_inputs());
  put_training(plan, out);
  for (const Chunk& chunk : plan.chunks) put(chunk, out->add_chunks());
  for (const Program& program : plan.programs) put(program, out->add_programs());
  for (const RankEntry& rank : plan.ranks) put(rank, out->add_ranks());
  for (const Group& group : plan.groups) {
    pb::Group* to = out->add_groups();
    to->set_name(group.name);
    put_all(to->mutable_ranks(), group.ranks);
  }
  for (const std::string& source : plan.sources) out->add_sources(source);
  put(plan.contract, out->mutable_contract());
}

}  // namespace

support::Expected<std::string> encode(const Plan& plan) {
  google::protobuf::Arena arena;
  auto* message = google::protobuf::Arena::CreateMessage<pb::Plan>(&arena);
  put(plan, message);
  // The envelope has to fit too.
  constexpr size_t kLimit = std::numeric_limits<int32_t>::max() - 1024;
  size_t size = message->ByteSizeLong();
  if (size > kLimit) {
    return support::user_error("the plan takes " + std::to_string(size) + " bytes; a plan file holds at most 2 GiB",
                               "keep large constants of the model out of the graph");
  }
  return message->SerializeAsString();
}

}  // namespace piper::plan
