#include "passes/chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>

#include "support/error.h"

namespace piper::passes {

using ir::Chunk;
using ir::ChunkId;
using ir::Op;
using ir::OpId;
using ir::ValueId;
using ir::ValueKind;

std::vector<OpId> topological_order(const ir::Model& model) {
  const size_t n = model.ops.size();
  std::vector<int> missing(n, 0);
  const auto consumers = model.consumers();
  for (size_t i = 0; i < n; ++i) {
    for (ValueId v : model.ops[i].inputs) missing[i] += v.valid() && model.value(v).producer.valid();
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (size_t i = 0; i < n; ++i) {
    if (missing[i] == 0) ready.push(static_cast<int>(i));
  }
  std::vector<OpId> order;
  while (!ready.empty()) {
    const int i = ready.top();
    ready.pop();
    order.push_back(OpId(i));
    for (ValueId v : model.ops[static_cast<size_t>(i)].outputs) {
      for (OpId c : consumers[v.index()]) {
        if (--missing[c.index()] == 0) ready.push(c.value);
      }
    }
  }
  PIPER_CHECK(order.size() == n, "the op graph has a cycle");
  return order;
}

ValueId memory_of(const ir::Model& model, ValueId v, const std::set<ValueId>& stop) {
  while (model.value(v).producer.valid() && stop.count(v) == 0) {
    const ir::Op& op = model.op(model.value(v).producer);
    if (op.kind != "Reshape" && op.kind != "Identity") break;
    v = op.inputs[0];
  }
  return v;
}

namespace {

class UnionFind {
 public:
  explicit UnionFind(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  size_t find(size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(size_t a, size_t b) { parent_[find(b)] = find(a); }

 private:
  std::vector<size_t> parent_;
};

template <class T>
void push_unique(std::vector<T>& list, T item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

// What the chunk's ops read from outside and give to others.
void find_boundary(ir::TrainingDag& dag, const std::vector<ChunkId>& chunk_of) {
  const ir::Model& model = dag.model;
  for (size_t c = 0; c < dag.chunks.size(); ++c) {
    Chunk& chunk = dag.chunks[c];
    for (OpId op : chunk.forward) {
      for (ValueId v : model.op(op).inputs) {
        if (!v.valid()) continue;
        const ir::Value& value = model.value(v);
        if (value.kind == ValueKind::kInput) push_unique(chunk.data, v);
        if (value.kind == ValueKind::kParameter) push_unique(chunk.params, value.param);
        if (value.kind != ValueKind::kComputed) continue;
        const ChunkId from = chunk_of[value.producer.index()];
        if (from == ChunkId(static_cast<int64_t>(c))) continue;
        push_unique(chunk.inputs, v);
        push_unique(dag.chunk(from).outputs, v);
      }
    }
  }
  for (Chunk& chunk : dag.chunks) std::sort(chunk.outputs.begin(), chunk.outputs.end());
}

// What divided experts do to their weights alone, such as a reshape, belongs to the chunk of their rows, however early it
// could run.
void sink_expert_weights(const ir::TrainingDag& dag, const std::vector<char>& live, const std::vector<OpId>& order, std::vector<int32_t>& depth) {
  if (dag.regions.empty()) return;
  std::vector<char> of_weights(depth.size(), false);
  for (OpId id : order) {
    const auto& inputs = dag.model.op(id).inputs;
    of_weights[id.index()] = dag.op_tags[id.index()].count(ir::kExpertTag) > 0 && std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) {
      if (!v.valid() || dag.model.value(v).kind == ValueKind::kParameter || dag.model.value(v).kind == ValueKind::kConstant) return true;
      const OpId producer = dag.model.value(v).producer;
      return producer.valid() && of_weights[producer.index()];
    });
  }
  const auto consumers = dag.model.consumers();
  for (size_t i = order.size(); i-- > 0;) {
    const size_t op = order[i].index();
    if (!of_weights[op]) continue;
    for (ValueId v : dag.model.op(order[i]).outputs) {
      for (OpId reader : consumers[v.index()]) {
        if (live[reader.index()]) depth[op] = std::max(depth[op], depth[reader.index()]);
      }
    }
  }
}

void name_chunks(ir::TrainingDag& dag) {
  std::map<std::string, int> seen;
  for (Chunk& chunk : dag.chunks) {
    std::string name = chunk.tags.empty() ? "model" : ir::to_string(chunk.tags);
    const int k = seen[name]++;
    chunk.name = k == 0 ? name : fmt::format("{}#{}", name, k);
  }
}

}  // namespace

void cut_chunks(ir::TrainingDag& dag, const std::vector<char>& live) {
  const ir::Model& model = dag.model;
  const size_t n = model.ops.size();
  std::vector<char> is_count(n, false);
  for (const ir::LossInfo& loss : dag.losses) is_count[loss.count_op.index()] = true;

  const std::vector<OpId> order = topological_order(model);
  std::vector<int32_t> depth(n, 0);
  UnionFind components(n);
  for (OpId id : order) {
    if (!live[id.index()]) continue;
    for (ValueId v : model.op(id).inputs) {
      if (!v.valid() || !model.value(v).producer.valid()) continue;
      const size_t p = model.value(v).producer.index();
      const bool change = dag.op_tags[p] != dag.op_tags[id.index()];
      depth[id.index()] = std::max(depth[id.index()], depth[p] + (change ? 1 : 0));
    }
  }
  sink_expert_weights(dag, live, order, depth);
  for (OpId id : order) {
    if (!live[id.index()]) continue;
    for (ValueId v : model.op(id).inputs) {
      if (!v.valid() || !model.value(v).producer.valid()) continue;
      const size_t p = model.value(v).producer.index();
      if (dag.op_tags[p] == dag.op_tags[id.index()] && depth[p] == depth[id.index()]) components.join(p, id.index());
    }
  }

  std::map<size_t, size_t> index_of_root;
  std::vector<ChunkId> chunk_of(n);
  for (OpId id : order) {
    if (!live[id.index()] || is_count[id.index()]) continue;
    const auto [it, fresh] = index_of_root.try_emplace(components.find(id.index()), dag.chunks.size());
    if (fresh) {
      dag.chunks.emplace_back();
      dag.chunks.back().tags = dag.op_tags[id.index()];
      dag.chunks.back().depth = depth[id.index()];
    }
    dag.chunks[it->second].forward.push_back(id);
  }
  // An edge between chunks goes to greater depth, or to equal tags at greater depth: sorting by depth is topological.
  std::stable_sort(dag.chunks.begin(), dag.chunks.end(), [](const Chunk& a, const Chunk& b) { return a.depth < b.depth; });
  for (size_t c = 0; c < dag.chunks.size(); ++c) {
    for (OpId id : dag.chunks[c].forward) chunk_of[id.index()] = ChunkId(static_cast<int64_t>(c));
  }
  find_boundary(dag, chunk_of);
  name_chunks(dag);
  for (size_t t = 0; t < dag.losses.size(); ++t) {
    dag.losses[t].chunk = chunk_of[dag.losses[t].loss_op.index()];
    dag.chunk(dag.losses[t].chunk).loss_terms.push_back(static_cast<int32_t>(t));
  }
}

}  // namespace piper::passes
