#include "inspect/open_model.h"

namespace piper::inspect {

namespace {
constexpr int64_t kSizes[] = {128, 64, 32, 16, 8, 4};
}

std::optional<ir::Model> open_model(const std::string& path, frontend::ImportOptions options,
                                    frontend::ImportNotes& notes, support::Diagnostics& diagnostics) {
  options.notes = &notes;
  for (int64_t size : kSizes) {
    support::SourceMap sources = diagnostics.sources();
    support::Diagnostics attempt(sources);
    notes = {};
    options.assume_dim = size;
    auto model = frontend::import_onnx(path, options, attempt);
    const bool last = size == kSizes[std::size(kSizes) - 1] || (notes.assumed.empty() && notes.assumed_unnamed.empty());
    if (!model && !last && notes.unsupported.empty()) continue;
    for (const support::Diagnostic& d : attempt.all()) diagnostics.report(d.code, d.span, d.message) = d;
    return model;
  }
  return std::nullopt;
}

}  // namespace piper::inspect
