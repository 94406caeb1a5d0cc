// Refuses, before any pass runs, what the language can say and no pass implements, with the place in the file.
#include <fmt/format.h>

#include "passes/pipeline.h"

namespace piper::passes {

namespace {

class Refuser {
 public:
  explicit Refuser(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}
  void refuse(support::SourceSpan span, const std::string& what) {
    diagnostics_.report(support::Code::E0510, span, fmt::format("{} is not implemented", what));
  }

 private:
  Diagnostics& diagnostics_;
};

}  // namespace

void check_supported(const ir::Model&, const Strategy& strategy, Diagnostics& diagnostics) {
  Refuser refuser(diagnostics);
  for (const ir::Replicate& r : strategy.replicates) {
    if (r.reduce_dtype && *r.reduce_dtype != ir::DType::kF32) refuser.refuse(r.span, "`reduce_dtype bf16`");
  }
  for (const ir::ShardParam& s : strategy.shard_params) refuser.refuse(s.span, "`shard param`");
  if (strategy.train.precision != ir::DType::kF32) refuser.refuse(strategy.train.span, "`precision bf16`");
}

}  // namespace piper::passes
