// microbatch: `split all() into N as mb` clones every forward, backward and count N times; parameters and their updates
// stay single, and an update reads all its clones.
//
//   %1 = F(stage=0)   %5 = U(stage=0) <- %4   ->   F(stage=0, mb=0)  F(stage=0, mb=1)   U(stage=0) <- B(…mb=0), B(…mb=1)
//
// Before place, which may give the microbatches of one chunk to different devices.
#include <fmt/format.h>

#include "passes/pipeline.h"

namespace piper::passes {

using ir::Node;
using ir::NodeId;
using ir::NodeKind;

void microbatch(TrainingDag& dag, const Strategy& strategy, Diagnostics& diagnostics) {
  const int64_t count = strategy.split ? strategy.split->count : 1;
  const int64_t batch = strategy.train.batch;
  const support::SourceSpan span = strategy.split ? strategy.split->span : strategy.train.span;
  if (count > batch) {
    diagnostics.report(support::Code::E0506, span, fmt::format("{} microbatches of a batch of {} {}: some would have no sample",
                                                               count, batch, batch == 1 ? "sample" : "samples"))
        .help(fmt::format("raise the batch (`train {{ batch {} }}`) or split into at most {}", count, batch));
    return;
  }
  dag.microbatches = static_cast<int32_t>(count);

  std::vector<Node> old = std::move(dag.nodes);
  dag.nodes.clear();
  // clones[i][mb]: what became of old node i; an update has one entry.
  std::vector<std::vector<NodeId>> clones(old.size());
  for (size_t i = 0; i < old.size(); ++i) {
    const bool single = old[i].kind == NodeKind::kUpdate;
    for (int32_t mb = 0; mb < (single ? 1 : dag.microbatches); ++mb) {
      Node node = old[i];
      node.inputs.clear();
      if (!single) {
        node.microbatch = mb;
        if (strategy.split) node.tags[dag.split_dim] = mb;
      }
      for (NodeId in : old[i].inputs) {
        const auto& from = clones[in.index()];
        // A seed divides by the count over the whole batch; an update sums over all microbatches.
        const bool all = single || old[in.index()].pass == ir::Pass::kCount;
        if (all) {
          node.inputs.insert(node.inputs.end(), from.begin(), from.end());
        } else {
          node.inputs.push_back(from[static_cast<size_t>(mb)]);
        }
      }
      clones[i].push_back(dag.add_node(std::move(node)));
    }
  }
}

}  // namespace piper::passes
