// split_backward: a backward of which an order names a half becomes two nodes: I, the gradients with respect to the
// chunk's inputs, which earlier chunks wait for, and W, those with respect to its weights, which nobody but the update
// waits for.
//
//   order [..., I(stage = 1, mb = 0), F(stage = 1, mb = 2), W(stage = 1, mb = 0)]
//   %3 = B(stage=1, mb=0)   %4 = B(stage=0, mb=0) <- %3   %5 = U <- %3
//   ->  %3 = I(stage=1, mb=0)   %4 = B(stage=0, mb=0) <- %3   %6 = W(stage=1, mb=0) <- %3   %5 = U <- %3, %6
//
// W computes nothing again: it reads what the forward saved and the output gradients that I made. An op that makes both
// kinds at once (a normalisation's gradient) belongs to I. After microbatch, because a stage may be split for some
// microbatches only; before place, so that both halves are placed with their forward.
#include <algorithm>
#include <map>
#include <set>

#include "passes/pipeline.h"
#include "passes/select.h"

namespace piper::passes {

using ir::Chunk;
using ir::Node;
using ir::NodeId;
using ir::NodeKind;
using ir::OpId;
using ir::Pass;
using ir::ValueId;

namespace {

// The ops of a backward that no gradient of an input depends on.
std::vector<OpId> weight_ops(const ir::Model& model, const Chunk& chunk) {
  std::set<ValueId> needed;
  for (const auto& [input, gradient] : chunk.gradients_out) needed.insert(gradient);
  std::vector<OpId> weights;
  for (size_t i = chunk.backward.size(); i-- > 0;) {
    const ir::Op& op = model.op(chunk.backward[i]);
    if (std::none_of(op.outputs.begin(), op.outputs.end(), [&](ValueId v) { return needed.count(v) > 0; })) {
      weights.push_back(chunk.backward[i]);
      continue;
    }
    for (ValueId v : op.inputs) {
      if (v.valid()) needed.insert(v);
    }
  }
  std::reverse(weights.begin(), weights.end());
  return weights;
}

bool names_half(const ir::Selector& s) { return s.passes != ir::kPassAll && (s.passes & (ir::kPassI | ir::kPassW)) != 0; }

// Backwards of which some order names a half, by node.
std::vector<char> find_split(const TrainingDag& dag, const Strategy& strategy) {
  std::vector<char> split(dag.nodes.size(), false);
  std::vector<NodeId> backwards;
  for (size_t i = 0; i < dag.nodes.size(); ++i) {
    if (dag.nodes[i].pass == Pass::kBackward) backwards.push_back(NodeId(static_cast<int64_t>(i)));
  }
  std::map<std::pair<std::string, int64_t>, std::vector<NodeId>> by_tag;
  for (NodeId id : backwards) {
    for (const auto& tag : dag.node(id).tags) by_tag[tag].push_back(id);
  }
  static const std::vector<NodeId> kNone;
  for (const ir::Order& order : strategy.orders) {
    for (const ir::OrderElement& element : order.elements) {
      for (const ir::Selector& s : element.selectors) {
        if (!names_half(s)) continue;
        const std::vector<NodeId>* candidates = &backwards;
        for (const ir::Constraint& c : s.constraints) {
          if (c.kind != ir::Constraint::Kind::kOneOf || c.values.size() != 1) continue;
          const auto it = by_tag.find({c.tag, c.values.front()});
          const std::vector<NodeId>* list = it == by_tag.end() ? &kNone : &it->second;
          if (list->size() < candidates->size()) candidates = list;
        }
        for (NodeId id : *candidates) {
          if (matches(s, dag.node(id).tags)) split[id.index()] = true;
        }
      }
    }
  }
  return split;
}

// Makes W of a node that becomes I.
Node split_node(TrainingDag& dag, NodeId id) {
  Node weights = dag.node(id);
  dag.node(id).pass = Pass::kInputGrad;
  weights.pass = Pass::kWeightGrad;
  // It finds the gradients that arrived where I found them.
  std::erase_if(weights.inputs, [&](NodeId in) { return ir::is_backward(dag.node(in).pass); });
  weights.inputs.push_back(id);
  return weights;
}

}  // namespace

void split_backward(TrainingDag& dag, const Strategy& strategy, Diagnostics&) {
  const std::vector<char> split = find_split(dag, strategy);
  if (std::find(split.begin(), split.end(), true) == split.end()) return;
  // Updates stay last.
  std::vector<Node> updates;
  while (!dag.nodes.empty() && dag.nodes.back().kind == NodeKind::kUpdate) {
    updates.push_back(std::move(dag.nodes.back()));
    dag.nodes.pop_back();
  }
  std::vector<char> done(dag.chunks.size(), false);
  std::vector<NodeId> weights_of(split.size());
  const size_t nodes = dag.nodes.size();
  for (size_t i = 0; i < nodes; ++i) {
    if (!split[i]) continue;
    const size_t c = dag.nodes[i].chunk.index();
    if (!done[c]) dag.chunks[c].weight_backward = weight_ops(dag.model, dag.chunks[c]);
    done[c] = true;
    weights_of[i] = dag.add_node(split_node(dag, NodeId(static_cast<int64_t>(i))));
  }
  while (!updates.empty()) {
    Node update = std::move(updates.back());
    updates.pop_back();
    const std::vector<NodeId> inputs = update.inputs;
    for (NodeId in : inputs) {
      if (weights_of[in.index()].valid()) update.inputs.push_back(weights_of[in.index()]);
    }
    dag.add_node(std::move(update));
  }
}

}  // namespace piper::passes
