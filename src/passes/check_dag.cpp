// The rules are a table: each names the pass from which on it holds.
#include "passes/check_dag.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ir/shares.h"
#include "passes/chunks.h"
#include "passes/pipeline.h"
#include "passes/replicate.h"
#include "support/error.h"

namespace piper::passes {

using ir::Node;
using ir::NodeId;
using ir::NodeKind;
using ir::Pass;

namespace {

using Rule = std::string (*)(const TrainingDag&);  // what is wrong, or ""

std::string every_op_in_one_chunk(const TrainingDag& dag) {
  std::vector<char> seen(dag.model.ops.size(), false);
  for (const ir::Chunk& chunk : dag.chunks) {
    for (ir::OpId op : chunk.forward) {
      if (seen[op.index()]) return "an operation is in two chunks";
      seen[op.index()] = true;
    }
  }
  return "";
}

std::string chunk_inputs_come_from_earlier_chunks(const TrainingDag& dag) {
  std::set<ir::ValueId> made;
  for (const ir::Chunk& chunk : dag.chunks) {
    for (const ir::Exchange& e : dag.exchanges) {
      if (made.count(e.from)) made.insert(e.to);
    }
    for (ir::ValueId v : chunk.inputs) {
      if (!made.count(v)) return fmt::format("chunk {} reads {} before it is made", chunk.name, dag.model.value(v).name);
    }
    made.insert(chunk.outputs.begin(), chunk.outputs.end());
  }
  return "";
}

std::string gradients_have_their_values_type(const TrainingDag& dag) {
  for (const ir::Chunk& chunk : dag.chunks) {
    for (const auto& [v, g] : chunk.gradients_out) {
      if (dag.model.value(v).type != dag.model.value(g).type) return "a boundary gradient has another type than its value";
    }
    for (const auto& [p, g] : chunk.param_gradients) {
      if (dag.model.params[p.index()].type != dag.model.value(g).type) return "a parameter's gradient has another type";
      if (!dag.model.params[p.index()].trainable && !dag.statistics.count(p)) return "a frozen parameter has a gradient";
    }
  }
  return "";
}

std::string each_chunk_runs_once_per_microbatch(const TrainingDag& dag) {
  std::set<std::tuple<int32_t, int32_t, Pass>> seen;
  for (const Node& n : dag.nodes) {
    if (n.kind != NodeKind::kCompute || n.pass == Pass::kCount || n.part > 0) continue;
    if (!seen.insert({n.chunk.value, n.microbatch, n.pass}).second) return "a chunk runs twice for one microbatch";
  }
  for (int32_t c = 0; c < static_cast<int32_t>(dag.chunks.size()); ++c) {
    for (int32_t mb = 0; mb < dag.microbatches; ++mb) {
      const bool whole = seen.count({c, mb, Pass::kBackward}), inputs = seen.count({c, mb, Pass::kInputGrad}),
                 weights = seen.count({c, mb, Pass::kWeightGrad});
      if (!seen.count({c, mb, Pass::kForward})) return "a chunk has no forward for a microbatch";
      if (inputs != weights || whole == inputs) return "a chunk has no backward for a microbatch, or two";
    }
  }
  return "";
}

std::string compute_is_placed(const TrainingDag& dag) {
  for (const Node& n : dag.nodes) {
    if (n.kind == NodeKind::kCompute && !n.placement.valid()) return "a compute node has no placement";
  }
  return "";
}

std::string backward_is_where_forward_is(const TrainingDag& dag) {
  std::set<std::tuple<int32_t, int32_t, int32_t>> forward;
  for (const Node& n : dag.nodes) {
    if (n.pass == Pass::kForward) forward.insert({n.chunk.value, n.microbatch, n.placement.value});
  }
  for (const Node& n : dag.nodes) {
    if (ir::is_backward(n.pass) && !forward.count({n.chunk.value, n.microbatch, n.placement.value})) {
      return "a backward is not where its forward is";
    }
  }
  return "";
}

// A backward list runs in its order, and of its forward reads only what a recomputed chunk keeps.
std::string backwards_read_what_is_there(const TrainingDag& dag) {
  for (const ir::Chunk& chunk : dag.chunks) {
    const std::set<ir::OpId> forward(chunk.forward.begin(), chunk.forward.end());
    const std::set<ir::ValueId> inputs(chunk.inputs.begin(), chunk.inputs.end()), kept(chunk.kept.begin(), chunk.kept.end());
    std::set<ir::OpId> to_come(chunk.backward.begin(), chunk.backward.end());
    for (ir::OpId id : chunk.backward) {
      for (ir::ValueId v : dag.model.op(id).inputs) {
        if (!v.valid()) continue;
        if (to_come.count(dag.model.value(v).producer)) return fmt::format("the backward of {} reads {} before it is made", chunk.name, dag.model.value(v).name);
        const ir::ValueId memory = memory_of(dag.model, v, inputs);
        const bool saved = forward.count(dag.model.value(memory).producer) > 0;
        if (chunk.recomputed_segments > 0 && saved && !kept.count(memory)) {
          return fmt::format("the backward of {} reads {}, which is not kept", chunk.name, dag.model.value(v).name);
        }
      }
      to_come.erase(id);
    }
  }
  return "";
}

std::string each_used_param_is_in_one_bucket(const TrainingDag& dag) {
  std::vector<int> count(dag.model.params.size(), 0);
  for (const ir::Bucket& b : dag.buckets) {
    for (ir::ParamId p : b.params) ++count[p.index()];
  }
  for (size_t p = 0; p < count.size(); ++p) {
    const int want = dag.param_holders[p].empty() ? 0 : 1;
    if (count[p] != want) return fmt::format("parameter {} is in {} buckets", dag.model.params[p].name, count[p]);
  }
  return "";
}

// The distribution of gradients: partial(sum) over a bucket's holders, sharded by its stages, until reduced. An update
// must read a complete shard (or the whole), and nothing may be reduced twice or when it is complete.
std::string updates_read_complete_gradients(const TrainingDag& dag) {
  std::map<std::tuple<ir::BucketId, ir::PlacementId, bool>, int> scatters;
  for (const Node& n : dag.nodes) {
    if (n.kind == NodeKind::kReduceScatter) ++scatters[{n.bucket, n.placement, n.per_run}];
  }
  for (const Node& n : dag.nodes) {
    if (n.kind != NodeKind::kUpdate) continue;
    const ir::Bucket& b = dag.buckets[n.bucket.index()];
    const bool partial = holder_count(dag, b) > b.degree();
    int reductions = 0;
    for (NodeId in : n.inputs) {
      const Node& from = dag.node(in);
      if (from.kind != NodeKind::kAllReduce || from.bucket != n.bucket) continue;
      ++reductions;
      if (from.holders != b.holders) return fmt::format("bucket {} is reduced over the wrong devices", b.name);
    }
    if (partial && reductions != 1) return fmt::format("the gradient of bucket {} is partial and reduced {} times", b.name, reductions);
    if (!partial && reductions != 0) return fmt::format("the gradient of bucket {} is complete and reduced", b.name);
    for (ir::PlacementId h : b.holders) {
      const int runs = scatters[{n.bucket, h, true}], once = scatters[{n.bucket, h, false}];
      if (runs > 0 && !b.scatters()) return fmt::format("the gradient of bucket {} is scattered {} times in runs", b.name, runs);
      if (once != (b.depth(1) > b.depth(2) ? 1 : 0)) return fmt::format("the gradient of bucket {} is scattered {} times in the end", b.name, once);
    }
  }
  return "";
}

// Parameters that live as shards are gathered, on the same devices, for every compute that reads them.
std::string computes_read_gathered_parameters(const TrainingDag& dag) {
  for (const Node& n : dag.nodes) {
    if (n.kind != NodeKind::kCompute || n.pass == Pass::kCount) continue;
    const std::vector<ir::Part>& parts = ir::parts_of(dag.chunk(n.chunk), n.pass);
    for (size_t k = 0; k < parts.size(); ++k) {
      if (n.part >= 0 && static_cast<size_t>(n.part) != k) continue;
      for (ir::BucketId b : parts[k].reads) {
        const auto gathers = std::count_if(n.inputs.begin(), n.inputs.end(), [&](NodeId in) {
          const Node& from = dag.node(in);
          return from.kind == NodeKind::kAllGather && from.bucket == b && from.placement == n.placement;
        });
        if (gathers != 1) return fmt::format("bucket {} is gathered {} times for a compute that reads it", dag.buckets[b.index()].name, gathers);
      }
    }
  }
  return "";
}

std::string values_are_local_or_received(const TrainingDag& dag) {
  for (const Node& n : dag.nodes) {
    if (n.kind != NodeKind::kCompute && n.kind != NodeKind::kSend) continue;
    for (NodeId in : n.inputs) {
      const Node& from = dag.node(in);
      const bool moves = from.kind == NodeKind::kCompute || from.kind == NodeKind::kRecv;
      if (moves && from.pass != Pass::kCount && from.placement != n.placement) return "a node reads what is on another device";
    }
  }
  return "";
}

std::string order_is_complete_and_topological(const TrainingDag& dag) {
  std::vector<size_t> position(dag.nodes.size(), dag.nodes.size());
  for (size_t i = 0; i < dag.global_order.size(); ++i) position[dag.global_order[i].index()] = i;
  if (dag.global_order.size() != dag.nodes.size()) return "the global order misses nodes";
  for (size_t i = 0; i < dag.nodes.size(); ++i) {
    for (NodeId in : dag.nodes[i].inputs) {
      if (position[in.index()] >= position[i]) {
        return fmt::format("{} is ordered before its input {}", describe(dag, NodeId(static_cast<int64_t>(i))), describe(dag, in));
      }
    }
  }
  for (const ir::OrderEdge& e : dag.orders) {
    if (position[e.before.index()] >= position[e.after.index()]) return "an order of the strategy does not hold";
  }
  return "";
}

struct RuleRow {
  const char* from_pass;
  Rule rule;
};
constexpr RuleRow kRules[] = {
    {"annotate", every_op_in_one_chunk},
    {"annotate", chunk_inputs_come_from_earlier_chunks},
    {"build", gradients_have_their_values_type},
    {"microbatch", each_chunk_runs_once_per_microbatch},
    {"place", compute_is_placed},
    {"place", backward_is_where_forward_is},
    {"recompute", backwards_read_what_is_there},
    {"bucket", each_used_param_is_in_one_bucket},
    {"replicate", updates_read_complete_gradients},
    {"replicate", computes_read_gathered_parameters},
    {"communicate", values_are_local_or_received},
    {"schedule", order_is_complete_and_topological},
};

}  // namespace

void check_dag(const TrainingDag& dag, const std::string& after_pass) {
  const std::vector<std::string> passes = pass_names();
  const auto index = [&](const std::string& name) { return std::find(passes.begin(), passes.end(), name) - passes.begin(); };
  for (const RuleRow& row : kRules) {
    if (index(row.from_pass) > index(after_pass)) continue;
    const std::string wrong = row.rule(dag);
    PIPER_CHECK(wrong.empty(), fmt::format("after pass {}: {}", after_pass, wrong));
  }
}

}  // namespace piper::passes
