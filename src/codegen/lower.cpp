#include "codegen/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/classes.h"
#include "codegen/program_builder.h"
#include "ir/shares.h"
#include "ops/kernel.h"
#include "passes/losses.h"
#include "support/strings.h"

namespace piper::codegen {

using ir::PlacementId;
using ir::ValueId;
using ir::ValueKind;
using support::Code;

namespace {

class Lowering {
 public:
  Lowering(const ir::TrainingDag& dag, const ir::Strategy& strategy, const std::string& device, support::Diagnostics& diagnostics)
      : dag_(dag), strategy_(strategy), diagnostics_(diagnostics), sources_(plan_, diagnostics.sources()),
        chunks_(dag, plan_, strategy.train.batch), transfers_(dag, strategy.train.batch),
        classes_(find_classes(dag, transfers_)) {
    plan_.device = device;
  }

  plan::Plan run() {
    for (const ir::LossInfo& loss : dag_.losses) {
      const std::vector<ir::OpId> ops = passes::count_ops(dag_.model, loss);
      counts_.insert(counts_.end(), ops.begin(), ops.end());
    }
    check_kernels();
    if (diagnostics_.has_errors()) return {};
    header();
    training();
    params();
    inputs();
    constants();
    updates();
    std::vector<ProgramTables> tables;
    for (const RankClass& c : classes_.classes) {
      ProgramBuilder builder(dag_, strategy_, c, plan_, chunks_, transfers_, sources_);
      plan_.programs.push_back(builder.build(input_index_, constant_index_));
      tables.push_back(builder.tables());
    }
    ranks(tables);
    contract();
    return std::move(plan_);
  }

 private:
  void check_kernels() {
    std::set<std::string> missing;
    auto check = [&](ir::OpId id) {
      const std::string& kind = dag_.model.op(id).kind;
      if (!ops::has_cpu_kernel(kind)) missing.insert(kind);
    };
    for (const ir::Chunk& chunk : dag_.chunks) {
      for (ir::OpId op : chunk.forward) check(op);
      for (ir::OpId op : chunk.backward) check(op);
    }
    for (ir::OpId op : counts_) check(op);
    for (const std::string& kind : missing) {
      diagnostics_.report(Code::E0513, fmt::format("operation `{}` has no kernel on device `{}`", kind, plan_.device));
    }
  }

  void header() {
    plan_.model_file = dag_.model.file;
    plan_.model_hash = dag_.model.hash;
    plan_.strategy_hash = strategy_.hash;
    plan_.strategy_file = strategy_.file;
    plan_.strategy_text = strategy_.text;
    for (const ir::Axis& axis : dag_.mesh.axes) plan_.mesh.push_back({axis.name, axis.size});
    plan_.batch = strategy_.train.batch;
    plan_.microbatches = dag_.microbatches;
    plan_.seed = strategy_.train.seed;
  }

  void training() {
    const ir::Train& t = strategy_.train;
    const ir::Optimizer& o = t.optimizer;
    plan_.optimizer = {static_cast<plan::OptimizerKind>(o.kind), o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.momentum, o.nesterov};
    plan_.schedule = {static_cast<plan::ScheduleKind>(t.schedule.kind), t.schedule.warmup, t.schedule.total, t.schedule.floor};
    plan_.clip_norm = t.clip_norm.value_or(0);
    plan_.skip_nonfinite = t.skip_nonfinite;
    for (size_t i = 0; i < dag_.losses.size(); ++i) {
      plan_.loss.push_back({dag_.losses[i].name, dag_.losses[i].weight, loss_sum_index(i), loss_count_index(i)});
    }
    plan_.stats_count = static_cast<int32_t>(2 + 2 * dag_.losses.size());
  }

  void params() {
    std::vector<std::string> params, buffers;  // without values
    for (const ir::Parameter& p : dag_.model.params) {
      plan::Param out;
      out.name = p.name;
      out.dtype = p.type.dtype;
      const auto divided = dag_.divided.find(ir::ParamId(static_cast<int64_t>(plan_.params.size())));
      out.shape = ir::at(divided == dag_.divided.end() ? p.type.shape : divided->second.whole.shape, 1);
      out.trainable = p.trainable;
      const auto kept = dag_.statistics.find(ir::ParamId(static_cast<int64_t>(plan_.params.size())));
      out.statistics = kept != dag_.statistics.end();
      if (out.statistics) out.kept = kept->second;
      out.transposed = p.transposed;
      out.initializer = p.initializer;
      for (const ir::InitRule& rule : strategy_.train.init) {
        // A buffer is no random number: what the file says of it stays.
        if (p.is_buffer && !p.initializer.empty()) continue;
        if (p.type.dtype != ir::DType::kF32 && p.type.dtype != ir::DType::kF64) continue;
        if (rule.glob != p.name && !support::match_path_glob(rule.glob, p.name)) continue;
        out.init = rule.kind == ir::InitRule::Kind::kNormal    ? plan::InitKind::kNormal
                   : rule.kind == ir::InitRule::Kind::kUniform ? plan::InitKind::kUniform
                                                               : plan::InitKind::kConstant;
        out.init_a = rule.a;
        out.init_b = rule.b;
      }
      if (out.init == plan::InitKind::kFromModel && p.initializer.empty()) {
        (p.is_buffer ? buffers : params).push_back("`" + p.name + "`");
      }
      plan_.params.push_back(std::move(out));
    }
    report_no_values("parameter", params);
    report_no_values("buffer", buffers);
  }

  void report_no_values(const std::string& what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    auto& d = diagnostics_.report(Code::E0512, strategy_.train.span,
                                  fmt::format("{} without values in the model file and without an `init` rule: {}",
                                              names.size() == 1 ? "a " + what : fmt::format("{} {}s", names.size(), what), support::join(names, ", ")));
    if (what == "buffer") d.help("export the buffers with their values: only parameters can be left out");
    else d.help("add rules to `train`, for example: init param \"**\" normal(std = 0.02)");
  }

  // Integer inputs that index an embedding must stay below its rows.
  int64_t vocabulary_of(ValueId input) const {
    int64_t rows = 0;
    for (const ir::Chunk& chunk : dag_.chunks) {
      for (ir::OpId id : chunk.forward) {
        const ir::Op& op = dag_.model.op(id);
        if (op.kind != "Gather" || op.inputs[1] != input) continue;
        const ir::Dim size = dag_.model.value(op.inputs[0]).type.shape[static_cast<size_t>(op.attrs.i("axis"))];
        if (size.is_static() && (rows == 0 || size.constant < rows)) rows = size.constant;
      }
    }
    return rows;
  }

  // The value whose elements these are, some of them, in another shape.
  ValueId data_behind(ValueId v) const {
    for (ir::OpId id = dag_.model.value(v).producer; id.valid(); id = dag_.model.value(v).producer) {
      const ir::Op& op = dag_.model.op(id);
      if (op.kind != "Reshape" && op.kind != "Slice" && op.kind != "Identity") break;
      v = op.inputs[0];
    }
    return v;
  }

  void inputs() {
    std::set<ValueId> used;
    for (const ir::Chunk& chunk : dag_.chunks) used.insert(chunk.data.begin(), chunk.data.end());
    for (ir::OpId id : counts_) {
      for (ValueId v : dag_.model.op(id).inputs) {
        if (v.valid() && dag_.model.value(v).kind == ir::ValueKind::kInput) used.insert(v);
      }
    }
    for (ValueId v : used) {
      const ir::Value& value = dag_.model.value(v);
      plan::Input in;
      in.name = value.name;
      in.dtype = value.type.dtype;
      in.sample_shape = ir::at(ir::Shape(value.type.shape.begin() + 1, value.type.shape.end()), 1);
      in.vocabulary = vocabulary_of(v);
      for (size_t t = 0; t < dag_.losses.size(); ++t) {
        const ir::Op& loss = dag_.model.op(dag_.losses[t].loss_op);
        if (loss.inputs.size() < 2 || data_behind(loss.inputs[1]) != v) continue;
        in.is_target = true;
        if (loss.kind != "CrossEntropyLoss") continue;
        const ir::Shape& logits = dag_.model.value(loss.inputs[0]).type.shape;
        const int64_t class_dim = loss.attrs.i("class_dim", -1);
        in.vocabulary = logits[static_cast<size_t>(class_dim < 0 ? class_dim + static_cast<int64_t>(logits.size()) : class_dim)].constant;
        in.has_ignore_index = true;
        in.ignore_index = loss.attrs.i("ignore_index");
      }
      input_index_[v] = static_cast<int32_t>(plan_.inputs.size());
      plan_.inputs.push_back(std::move(in));
    }
  }

  void constants() {
    std::set<int32_t> used;
    auto use = [&](const std::vector<ir::OpId>& ops) {
      for (ir::OpId id : ops) {
        for (ValueId v : dag_.model.op(id).inputs) {
          if (v.valid() && dag_.model.value(v).kind == ValueKind::kConstant) used.insert(dag_.model.value(v).constant);
        }
      }
    };
    for (const ir::Chunk& chunk : dag_.chunks) {
      use(chunk.forward);
      use(chunk.backward);
    }
    use(counts_);
    std::map<int32_t, std::string> names;
    for (const ir::Value& v : dag_.model.values) {
      if (v.kind == ValueKind::kConstant) names.try_emplace(v.constant, v.name);
    }
    for (int32_t c : used) {
      const ir::Constant& constant = dag_.model.constants[static_cast<size_t>(c)];
      constant_index_[c] = static_cast<int32_t>(plan_.constants.size());
      plan_.constants.push_back({names[c], constant.type.dtype, ir::at(constant.type.shape, 1), constant.bytes});
    }
  }

  // One per bucket, by bucket index: runs of elements with and without weight decay, or of statistics kept alike.
  void updates() {
    for (const ir::Bucket& b : dag_.buckets) {
      plan::Update update;
      update.name = b.name;
      update.statistics = b.statistics;
      for (size_t i = 0; i < b.params.size() && b.trainable; ++i) {
        const ir::Parameter& p = dag_.model.params[b.params[i].index()];
        const auto& globs = strategy_.train.no_decay;
        const bool decay = !b.statistics && std::none_of(globs.begin(), globs.end(), [&](const std::string& g) {
          return support::match_path_glob(g, p.name).has_value();
        });
        const double kept = b.statistics ? dag_.statistics.at(b.params[i]) : 0;
        const int64_t end = i + 1 < b.params.size() ? b.offsets[i + 1] : b.elements;
        if (!update.runs.empty() && update.runs.back().decay == decay && update.runs.back().kept == kept) {
          update.runs.back().end = end;
        } else {
          update.runs.push_back({b.offsets[i], end, decay, kept});
        }
      }
      plan_.updates.push_back(std::move(update));
    }
  }

  // The group of a rank; those that differ on the axes `apart` have their own.
  int32_t group(const GroupKey& key, int64_t rank) {
    const std::vector<int64_t> mine = ir::coordinates_of(dag_.mesh, rank);
    std::vector<int64_t> at;
    for (int axis : key.apart) at.push_back(mine[static_cast<size_t>(axis)]);
    const auto [it, fresh] = group_index_.try_emplace({key, at}, static_cast<int32_t>(plan_.groups.size()));
    if (!fresh) return it->second;
    plan::Group g;
    std::set<int32_t> members;
    if (key.holders.empty()) {
      g.name = "all";
      for (int32_t r = 0; r < dag_.mesh.world_size(); ++r) members.insert(r);
    }
    for (PlacementId p : key.holders) {
      g.name += (g.name.empty() ? "" : " + ") + dag_.placements[p.index()].name;
      const auto of = ir::ranks_of(dag_.mesh, dag_.placements[p.index()]);
      members.insert(of.begin(), of.end());
    }
    for (size_t i = 0; i < at.size(); ++i) {
      g.name += fmt::format("{}{}={}", i == 0 ? " at " : ",", dag_.mesh.axes[static_cast<size_t>(key.apart[i])].name, at[i]);
    }
    for (int32_t r : members) {
      const std::vector<int64_t> theirs = ir::coordinates_of(dag_.mesh, r);
      bool same = true;
      for (size_t i = 0; i < at.size(); ++i) same = same && theirs[static_cast<size_t>(key.apart[i])] == at[i];
      if (same) g.ranks.push_back(r);
    }
    plan_.groups.push_back(std::move(g));
    return it->second;
  }

  void ranks(const std::vector<ProgramTables>& tables) {
    std::map<int64_t, std::vector<std::vector<ir::Interval>>> cuts;  // by data degree
    for (int64_t r = 0; r < dag_.mesh.world_size(); ++r) {
      const size_t c = static_cast<size_t>(classes_.class_of[static_cast<size_t>(r)]);
      plan::RankEntry entry;
      entry.program = static_cast<int32_t>(c);
      entry.coordinates = ir::coordinates_of(dag_.mesh, r);
      for (const TransferKey& key : tables[c].peers) entry.peers.push_back(transfers_.peer(key, r));
      for (const TransferKey& key : tables[c].pieces) {
        const ir::Interval piece = transfers_.piece(key, r);
        entry.pieces.push_back({piece.start, piece.count});
      }
      for (const GroupKey& key : tables[c].groups) entry.groups.push_back(group(key, r));
      for (const ShardKey& key : tables[c].shards) {
        const ir::BucketPart part = ir::part_of(dag_.mesh, dag_.buckets[key.bucket], key.depth, r);
        entry.segments.push_back({part.start, part.count});
      }
      for (PlacementId p : classes_.classes[c].placements) {
        const ir::Placement& placement = dag_.placements[p.index()];
        const int64_t degree = ir::data_degree(dag_.mesh, placement);
        auto [it, fresh] = cuts.try_emplace(degree);
        if (fresh) it->second = ir::cut_shares(plan_.batch, plan_.microbatches, degree);
        const size_t at = static_cast<size_t>(ir::data_index(dag_.mesh, placement, r));
        std::vector<plan::Share> row;
        for (const auto& mb : it->second) row.push_back({mb[at].start, mb[at].count});
        entry.shares.push_back(std::move(row));
      }
      plan_.ranks.push_back(std::move(entry));
    }
  }

  void contract() {
    plan::Contract& c = plan_.contract;
    c.microbatches = plan_.microbatches;
    for (const ir::Chunk& chunk : dag_.chunks) {
      c.chunk_names.push_back(chunk.name);
      c.chunk_hashes.push_back(chunk_hash(dag_, chunk));
    }
    for (const ir::Contribution& k : dag_.contributions) c.contributions.push_back({k.param.value, k.chunk.value});
    for (const ir::LossInfo& t : dag_.losses) c.loss_weights.push_back(t.weight);
  }

  const ir::TrainingDag& dag_;
  const ir::Strategy& strategy_;
  support::Diagnostics& diagnostics_;
  plan::Plan plan_;
  SourceTable sources_;
  ChunkTable chunks_;
  Transfers transfers_;
  RankClasses classes_;
  std::vector<ir::OpId> counts_;  // ops that count the valid elements of the loss terms
  std::map<ValueId, int32_t> input_index_;
  std::map<int32_t, int32_t> constant_index_;
  std::map<std::pair<GroupKey, std::vector<int64_t>>, int32_t> group_index_;
};

}  // namespace

plan::Plan lower(const ir::TrainingDag& dag, const ir::Strategy& strategy, const std::string& device, support::Diagnostics& diagnostics) {
  return Lowering(dag, strategy, device, diagnostics).run();
}

}  // namespace piper::codegen
