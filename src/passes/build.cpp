// build: differentiates every chunk, makes the nodes of one microbatch, and writes the contract of the step.
//
//   chunk 0 {stage=0}, chunk 1 {stage=1}
//   ->  %0 = C()   %1 = F(stage=0)   %2 = F(stage=1) <- %1   %3 = B(stage=1) <- %2   %4 = B(stage=0) <- %1, %3
//       %5 = U(stage=0) <- %4        %6 = U(stage=1) <- %3
//
// Before microbatch, so that what a step must compute is on record before anything is cloned or moved.
#include <fmt/format.h>

#include <algorithm>

#include "passes/autodiff.h"
#include "passes/pipeline.h"
#include "support/error.h"

namespace piper::passes {

using ir::ChunkId;
using ir::Node;
using ir::NodeId;
using ir::NodeKind;
using ir::ParamId;
using ir::Pass;
using support::Code;

namespace {

// Tags that all chunks reading a parameter agree on.
ir::Tags common_tags(const TrainingDag& dag, ParamId param) {
  ir::Tags tags;
  bool first = true;
  for (const ir::Chunk& chunk : dag.chunks) {
    if (std::find(chunk.params.begin(), chunk.params.end(), param) == chunk.params.end()) continue;
    if (first) {
      tags = chunk.tags;
      first = false;
      continue;
    }
    for (auto it = tags.begin(); it != tags.end();) {
      const auto other = chunk.tags.find(it->first);
      it = other == chunk.tags.end() || other->second != it->second ? tags.erase(it) : std::next(it);
    }
  }
  return tags;
}

class NodeBuilder {
 public:
  explicit NodeBuilder(TrainingDag& dag) : dag_(dag) {}

  void run() {
    for (size_t t = 0; t < dag_.losses.size(); ++t) add_count(t);
    for (size_t c = 0; c < dag_.chunks.size(); ++c) add_forward(c);
    backward_.resize(dag_.chunks.size());
    for (size_t c = dag_.chunks.size(); c-- > 0;) add_backward(c);
    for (size_t p = 0; p < dag_.model.params.size(); ++p) add_update(p);
  }

 private:
  void add_count(size_t t) {
    Node node;
    node.pass = Pass::kCount;
    node.loss_term = static_cast<int32_t>(t);
    node.chunk = dag_.losses[t].chunk;
    node.tags = dag_.chunk(node.chunk).tags;
    counts_.push_back(dag_.add_node(std::move(node)));
  }

  // The chunk that computes a value.
  size_t chunk_of(ir::ValueId v) const {
    for (size_t c = 0; c < dag_.chunks.size(); ++c) {
      const auto& outputs = dag_.chunks[c].outputs;
      if (std::binary_search(outputs.begin(), outputs.end(), v)) return c;
    }
    PIPER_CHECK(false, "a chunk input that no chunk computes");
    return 0;
  }

  void add_forward(size_t c) {
    Node node;
    node.pass = Pass::kForward;
    node.chunk = ChunkId(static_cast<int64_t>(c));
    node.tags = dag_.chunks[c].tags;
    for (ir::ValueId v : dag_.chunks[c].inputs) add_input(node, forward_[chunk_of(v)]);
    forward_.push_back(dag_.add_node(std::move(node)));
  }

  void add_backward(size_t c) {
    Node node;
    node.pass = Pass::kBackward;
    node.chunk = ChunkId(static_cast<int64_t>(c));
    node.tags = dag_.chunks[c].tags;
    add_input(node, forward_[c]);
    for (const ir::GradientIn& g : dag_.chunks[c].gradients_in) add_input(node, backward_[g.consumer.index()]);
    for (int32_t t : dag_.chunks[c].loss_terms) add_input(node, counts_[static_cast<size_t>(t)]);
    backward_[c] = dag_.add_node(std::move(node));
  }

  void add_update(size_t p) {
    Node node;
    node.kind = NodeKind::kUpdate;
    node.pass = Pass::kUpdate;
    for (size_t c = 0; c < dag_.chunks.size(); ++c) {
      for (const auto& [param, gradient] : dag_.chunks[c].param_gradients) {
        if (param.index() != p) continue;
        add_input(node, backward_[c]);
        dag_.contributions.push_back({param, ChunkId(static_cast<int64_t>(c))});
      }
    }
    if (node.inputs.empty()) return;  // frozen, a buffer, or unused: nothing updates it
    node.tags = common_tags(dag_, ParamId(static_cast<int64_t>(p)));
    dag_.add_node(std::move(node));
  }

  static void add_input(Node& node, NodeId input) {
    if (std::find(node.inputs.begin(), node.inputs.end(), input) == node.inputs.end()) node.inputs.push_back(input);
  }

  TrainingDag& dag_;
  std::vector<NodeId> counts_, forward_, backward_;
};

}  // namespace

void build(TrainingDag& dag, const Strategy& strategy, Diagnostics& diagnostics) {
  const std::vector<char> needs = values_needing_gradient(dag.model);
  for (size_t c = dag.chunks.size(); c-- > 0;) {
    differentiate_chunk(dag, ChunkId(static_cast<int64_t>(c)), needs, diagnostics);
  }
  if (diagnostics.has_errors()) return;
  NodeBuilder(dag).run();
  const bool trains = std::any_of(dag.contributions.begin(), dag.contributions.end(),
                                  [&](const ir::Contribution& c) { return dag.statistics.count(c.param) == 0; });
  if (!trains) {
    diagnostics.report(Code::E0509, strategy.train.span, "no trainable parameter has an effect on the loss");
  }
}

}  // namespace piper::passes
