#include "inspect/saved.h"

#include <set>

#include "inspect/module_tree.h"
#include "passes/chunks.h"
#include "passes/pipeline.h"

namespace piper::inspect {

using ir::OpId;
using ir::ValueId;

std::optional<std::vector<int64_t>> saved_bytes(const ir::Model& model, const ir::LossTerm& loss) {
  ir::Strategy strategy;
  strategy.train.loss = {loss};
  support::SourceMap sources;
  support::Diagnostics ignored(sources);
  const auto dag = passes::run_passes(model, strategy, ignored, {}, "build");
  if (!dag) return std::nullopt;
  std::vector<int64_t> bytes(model.ops.size(), 0);
  std::set<ValueId> counted;
  for (const ir::Chunk& chunk : dag->chunks) {
    for (OpId id : chunk.backward) {
      for (ValueId in : dag->model.op(id).inputs) {
        if (!in.valid()) continue;
        const ValueId v = passes::memory_of(dag->model, in, {});
        const OpId producer = dag->model.value(v).producer;
        // Ids beyond the model's are the loss and the backward itself.
        if (!producer.valid() || producer.index() >= bytes.size() || !counted.insert(v).second) continue;
        bytes[producer.index()] += bytes_of(dag->model.value(v).type, 1);
      }
    }
  }
  return bytes;
}

}  // namespace piper::inspect
