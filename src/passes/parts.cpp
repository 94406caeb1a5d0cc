#include "passes/parts.h"

#include <algorithm>
#include <map>
#include <set>

namespace piper::passes {

using ir::BucketId;
using ir::OpId;
using ir::Part;
using ir::ValueId;

namespace {

class PartCutter {
 public:
  PartCutter(const ir::TrainingDag& dag, const ir::Chunk& chunk, const std::vector<BucketId>& bucket_of)
      : dag_(dag), bucket_of_(bucket_of), outside_(chunk.inputs.begin(), chunk.inputs.end()) {}

  // `gradients`: those contributions that are added by this list of ops.
  std::vector<Part> cut(const std::vector<OpId>& ops, const std::vector<std::pair<ir::ParamId, ValueId>>& gradients) const {
    const size_t n = std::max<size_t>(ops.size(), gradients.empty() ? 0 : 1);
    std::vector<std::set<BucketId>> reads(n), adds(n);
    std::set<BucketId> known;
    std::set<size_t> cuts;
    for (size_t i = 0; i < ops.size(); ++i) {
      for (ValueId v : dag_.model.op(ops[i]).inputs) {
        const BucketId b = gathered_bucket(v);
        if (!b.valid()) continue;
        reads[i].insert(b);
        if (known.insert(b).second && known.size() > 1) cuts.insert(i);
      }
    }
    std::map<ValueId, size_t> made;
    for (size_t i = 0; i < ops.size(); ++i) {
      for (ValueId v : dag_.model.op(ops[i]).outputs) made[v] = i;
    }
    std::map<BucketId, size_t> last;
    for (const auto& [param, gradient] : gradients) {
      const auto maker = made.find(root(gradient));
      const size_t at = maker == made.end() ? 0 : maker->second;  // one from outside is there at once
      const BucketId b = bucket_of_[param.index()];
      adds[at].insert(b);
      last[b] = std::max(last[b], at);
    }
    for (const auto& [bucket, at] : last) cuts.insert(at + 1);
    cuts.insert(n);
    std::vector<Part> parts;
    for (size_t begin = 0; size_t end : cuts) {
      if (begin == end) continue;
      Part part{begin, end, {}, {}};
      std::set<BucketId> r, a;
      for (size_t i = begin; i < end; ++i) {
        r.insert(reads[i].begin(), reads[i].end());
        a.insert(adds[i].begin(), adds[i].end());
      }
      part.reads.assign(r.begin(), r.end());
      part.adds.assign(a.begin(), a.end());
      parts.push_back(std::move(part));
      begin = end;
    }
    return parts;
  }

 private:
  // The value whose memory `v` is, within the chunk.
  ValueId root(ValueId v) const {
    while (!outside_.count(v)) {
      const OpId producer = dag_.model.value(v).producer;
      if (!producer.valid()) break;
      const ir::Op& op = dag_.model.op(producer);
      if (op.kind != "Reshape" && op.kind != "Identity") break;
      v = op.inputs[0];
    }
    return v;
  }

  BucketId gathered_bucket(ValueId v) const {
    if (!v.valid()) return {};
    const ir::Value& value = dag_.model.value(root(v));
    if (value.kind != ir::ValueKind::kParameter) return {};
    const BucketId b = bucket_of_[value.param.index()];
    return b.valid() && dag_.buckets[b.index()].gathers() ? b : BucketId();
  }

  const ir::TrainingDag& dag_;
  const std::vector<BucketId>& bucket_of_;
  std::set<ValueId> outside_;
};

}  // namespace

void cut_parts(ir::TrainingDag& dag) {
  std::vector<BucketId> bucket_of(dag.model.params.size());
  for (size_t b = 0; b < dag.buckets.size(); ++b) {
    for (ir::ParamId p : dag.buckets[b].params) bucket_of[p.index()] = BucketId(static_cast<int64_t>(b));
  }
  for (ir::Chunk& chunk : dag.chunks) {
    const PartCutter cutter(dag, chunk, bucket_of);
    chunk.forward_parts = cutter.cut(chunk.forward, {});
    chunk.backward_parts = cutter.cut(chunk.backward, chunk.param_gradients);
    const ir::Halves halves = ir::halves_of(dag.model, chunk);
    chunk.input_parts = cutter.cut(halves.inputs, halves.input_gradients);
    chunk.weight_parts = cutter.cut(chunk.weight_backward, halves.weight_gradients);
  }
}

}  // namespace piper::passes
