// recompute: the backward of a selected chunk computes again what it reads of the forward; the forward keeps the chunk's
// inputs only.
//
//   recompute all(stage = 1)
//   forward   %1 = Gelu(%0)               backward   %9 = GeluGrad(%8, %0)  %10 = LinearGradWeight(%1, %7)
//   ->                                    backward   %11 = Gelu(%0)  %9 = …  %10 = LinearGradWeight(%11, %7)
//
// The copies are ordinary operations of the backward, each right before the first one that needs it, so costs, FLOPs and
// memory follow from the list; the forward is left as it is, and with it the contract of the step. An operation is copied
// with its attributes, the key of a dropout among them, hence the copy computes the same bits. Of a split backward they
// belong to I: W reads what I carries to it.
//
// A chunk of several repeated modules is cut between them, where the fewest bytes cross, and keeps what crosses: then one
// module is computed again at a time. After split_backward, which says what belongs to W; before bucket, which finds out
// which parameters a backward reads.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "passes/chunks.h"
#include "passes/pipeline.h"
#include "passes/segments.h"
#include "passes/select.h"

namespace piper::passes {

using ir::Chunk;
using ir::Op;
using ir::OpId;
using ir::ValueId;

namespace {

class Recomputation {
 public:
  Recomputation(TrainingDag& dag, Chunk& chunk) : dag_(dag), chunk_(chunk), inputs_(chunk.inputs.begin(), chunk.inputs.end()) {
    for (size_t i = 0; i < chunk.forward.size(); ++i) position_[chunk.forward[i]] = i;
  }

  void run(const ModuleLists& lists) {
    const Segments segments = cut_into_segments(dag_.model, chunk_, lists);
    kept_ = segments.kept;
    std::vector<OpId> backward;
    for (OpId id : chunk_.backward) {
      std::set<size_t> missing;
      for (ValueId v : dag_.model.op(id).inputs) need(v, missing);
      for (size_t i : missing) backward.push_back(copy(i));
      replace_inputs(dag_.model.ops[id.index()]);
      backward.push_back(id);
    }
    chunk_.backward = std::move(backward);
    std::set<size_t> computed;  // segments of which something is computed again
    for (size_t i : copied_) computed.insert(static_cast<size_t>(std::upper_bound(segments.cuts.begin(), segments.cuts.end(), i) - segments.cuts.begin()));
    chunk_.recomputed_segments = static_cast<int32_t>(computed.size());
    chunk_.kept.assign(used_.begin(), used_.end());
    std::sort(chunk_.kept.begin(), chunk_.kept.end(), [&](ValueId a, ValueId b) { return position_of(a) < position_of(b); });
  }

 private:
  size_t position_of(ValueId v) const { return position_.at(dag_.model.value(v).producer); }

  // The operations of the forward, by position, that have to be copied for a value to be there.
  void need(ValueId v, std::set<size_t>& missing) {
    if (!v.valid() || copies_.count(v) > 0) return;
    const OpId producer = dag_.model.value(v).producer;
    const auto made = position_.find(producer);
    if (made == position_.end()) return;  // from outside, or made by the backward
    const ValueId memory = memory_of(dag_.model, v, inputs_);
    if (kept_.count(memory) > 0) used_.insert(memory);
    if (kept_.count(memory) > 0 || position_.count(dag_.model.value(memory).producer) == 0) return;
    if (!missing.insert(made->second).second) return;
    for (ValueId in : dag_.model.op(producer).inputs) need(in, missing);
  }

  OpId copy(size_t i) {
    const Op original = dag_.model.op(chunk_.forward[i]);
    Op again = original;
    again.outputs.clear();
    again.name = "recompute." + original.name;
    replace_inputs(again);
    std::vector<ir::TensorType> types;
    for (ValueId v : original.outputs) types.push_back(dag_.model.value(v).type);
    const OpId id = dag_.model.add_op(std::move(again), types);
    for (size_t k = 0; k < original.outputs.size(); ++k) copies_[original.outputs[k]] = dag_.model.op(id).outputs[k];
    copied_.push_back(i);
    return id;
  }

  void replace_inputs(Op& op) const {
    for (ValueId& v : op.inputs) {
      if (const auto it = copies_.find(v); it != copies_.end()) v = it->second;
    }
  }

  TrainingDag& dag_;
  Chunk& chunk_;
  std::set<ValueId> inputs_;
  std::map<OpId, size_t> position_;      // in the forward
  std::set<ValueId> kept_, used_;        // by memory; those that something reads
  std::map<ValueId, ValueId> copies_;
  std::vector<size_t> copied_;
};

bool names_split_dimension(const TrainingDag& dag, const Strategy& strategy, const ir::Recompute& r, Diagnostics& diagnostics) {
  if (!strategy.split) return false;
  for (const ir::Constraint& c : r.selector.constraints) {
    if (c.tag != dag.split_dim) continue;
    diagnostics.report(support::Code::E0304, r.selector.span, fmt::format("`recompute` is of all microbatches, but names `{}`", c.tag))
        .help("leave it out: a region has one backward, whatever the microbatch");
    return true;
  }
  return false;
}

}  // namespace

void recompute(TrainingDag& dag, const Strategy& strategy, Diagnostics& diagnostics) {
  if (strategy.recomputes.empty()) return;
  std::vector<char> selected(dag.chunks.size(), false);
  for (const ir::Recompute& r : strategy.recomputes) {
    if (names_split_dimension(dag, strategy, r, diagnostics)) continue;
    bool any = false;
    for (size_t c = 0; c < dag.chunks.size(); ++c) {
      if (!matches(r.selector, dag.chunks[c].tags)) continue;
      selected[c] = true;
      any = true;
    }
    if (!any) report_no_match(dag, r.selector, diagnostics);
  }
  if (diagnostics.has_errors()) return;
  const ModuleLists lists(dag.model);
  for (size_t c = 0; c < dag.chunks.size(); ++c) {
    if (selected[c]) Recomputation(dag, dag.chunks[c]).run(lists);
  }
}

}  // namespace piper::passes
