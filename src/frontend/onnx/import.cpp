#include "frontend/onnx/import.h"

#include <xxhash.h>

#include <set>

#include "frontend/onnx/canonical/canonical.h"
#include "frontend/onnx/classify.h"
#include "frontend/onnx/import_node.h"
#include "ops/op.h"
#include "support/strings.h"

namespace piper::frontend {

using support::Code;
using support::Diagnostics;

namespace {

constexpr int kNewestIr = 13;

void report(Diagnostics& diagnostics, Code code, const support::Error& error) {
  auto& diagnostic = diagnostics.report(code, error.message);
  if (!error.help.empty()) diagnostic.help(error.help);
}

void warn_about_versions(const ::onnx::ModelProto& model, const SourceGraph& graph,
                         Diagnostics& diagnostics) {
  if (model.ir_version() > kNewestIr) {
    diagnostics.report(Code::W0401, "the model has IR version " +
                                        std::to_string(model.ir_version()) + ", newer than " +
                                        std::to_string(kNewestIr) + ", the newest that is known");
  }
  const int opset = opset_of(graph.opsets, "");
  if (opset > kNewestOpset) {
    diagnostics.report(Code::W0401, "the model has opset " + std::to_string(opset) +
                                        ", newer than " + std::to_string(kNewestOpset) +
                                        ", the newest that is known");
  }
}

// Every initializer must be readable before anything is made of it.
void check_tensors(const ::onnx::GraphProto& graph, TensorDecoder& decoder,
                   Diagnostics& diagnostics) {
  for (const auto& tensor : graph.initializer()) {
    ir::DType dtype;
    if (!dtype_from_onnx(tensor.data_type(), &dtype)) continue;  // an error only if a node reads it
    const bool external = tensor.data_location() == ::onnx::TensorProto::EXTERNAL;
    auto decoded = decoder.decode(tensor);
    if (!decoded) report(diagnostics, external ? Code::E0408 : Code::E0404, decoded.error());
  }
}

struct Unsupported {
  int count = 0;
  const SourceNode* first = nullptr;
  bool other_opset = false;
};

// One report of all operators that nothing can import.
void check_supported(const SourceGraph& graph, Diagnostics& diagnostics) {
  std::map<std::string, Unsupported> unsupported;
  bool vendor = false;
  for (const SourceNode& node : graph.nodes) {
    const std::string& kind = node.proto.op_type();
    const std::string domain = node.proto.domain() == "ai.onnx" ? "" : node.proto.domain();
    if (domain.empty() && (is_importer_op(kind) || can_evaluate_known(kind))) continue;
    bool known_type = false;
    if (ops::find_import(kind, domain, std::min(node.opset, kNewestOpset), &known_type) != nullptr)
      continue;
    Unsupported& row = unsupported[domain.empty() ? kind : domain + "." + kind];
    row.count++;
    if (row.first == nullptr) row.first = &node;
    row.other_opset = known_type;
    vendor = vendor || domain == "com.microsoft";
  }
  if (unsupported.empty()) return;
  std::vector<std::string> names;
  for (const auto& [name, row] : unsupported) names.push_back("`" + name + "`");
  auto& error = diagnostics.report(
      Code::E0402, (names.size() == 1 ? "the operator " : "the operators ") +
                       support::join(names, ", ") +
                       (names.size() == 1 ? " is not supported" : " are not supported"));
  for (const auto& [name, row] : unsupported) {
    error.note("`" + name + "`: " + std::to_string(row.count) +
               (row.count == 1 ? " node" : " nodes, the first is") + (row.count == 1 ? ", " : " ") +
               describe(row.first->proto, row.first->path) +
               (row.other_opset
                    ? "; supported, but not in opset " + std::to_string(row.first->opset)
                    : ""));
  }
  if (vendor) error.help("export the model without the optimizations of ONNX Runtime");
}

std::set<std::string> used_names(const SourceGraph& graph) {
  std::set<std::string> used(graph.outputs.begin(), graph.outputs.end());
  for (const SourceNode& node : graph.nodes) add_used_names(node.proto, &used);
  return used;
}

// Names of inputs, parameters and outputs stay as they are in the file; others give way.
void make_names_unique(ir::Model* model) {
  std::vector<int> rank(model->values.size(), 2);
  for (ir::ValueId id : model->outputs) rank[id.index()] = 1;
  for (ir::ValueId id : model->inputs) rank[id.index()] = 0;
  for (const ir::Parameter& param : model->params) rank[param.value.index()] = 0;
  std::set<std::string> taken;
  for (int pass = 0; pass < 3; pass++) {
    for (size_t i = 0; i < rank.size(); i++) {
      if (rank[i] != pass) continue;
      std::string& name = model->values[i].name;
      std::string unique = name;
      for (int k = 2; !taken.insert(unique).second; k++) unique = name + "_" + std::to_string(k);
      name = std::move(unique);
    }
  }
}

}  // namespace

std::optional<ir::Model> import_onnx(const std::string& path, const ImportOptions& options,
                                     Diagnostics& diagnostics) {
  const int errors = diagnostics.error_count();
  auto failed = [&] { return diagnostics.error_count() > errors; };

  // Read the file.
  auto file = MappedFile::open(path);
  if (!file) {
    report(diagnostics, Code::E0001, file.error());
    return std::nullopt;
  }
  auto proto = parse_model(path, (*file)->data(), (*file)->size());
  if (!proto) {
    report(diagnostics, Code::E0401, proto.error());
    return std::nullopt;
  }
  hoist_constants(proto->get());
  TensorDecoder decoder(path);
  check_tensors((*proto)->graph(), decoder, diagnostics);

  // Inline functions, bind dims, sort.
  TreatRules treats(options.treats, diagnostics);
  std::optional<SourceGraph> graph = make_source_graph(**proto, options, treats, diagnostics);
  if (!graph || failed()) return std::nullopt;
  warn_about_versions(**proto, *graph, diagnostics);
  check_supported(*graph, diagnostics);
  Weights weights = classify_weights(*graph, decoder, treats);
  treats.report_unused();
  check_cache(*graph, diagnostics);
  check_lost_parameters(**proto, *graph, weights, diagnostics);
  if (failed()) return std::nullopt;

  // Node by node: known integers, folded constants, ops.
  Builder builder(*graph, decoder);
  builder.model().file = path;
  builder.model().hash = XXH3_64bits((*file)->data(), (*file)->size());
  builder.model().producer =
      (*proto)->producer_name() +
      ((*proto)->producer_version().empty() ? "" : " " + (*proto)->producer_version());
  builder.set_weights(std::move(weights));
  builder.add_inputs();
  NodeImporter importer(builder, used_names(*graph), diagnostics);
  for (const SourceNode& node : graph->nodes) importer.run(node);
  if (failed()) return std::nullopt;
  if (auto done = builder.finish(); !done) {
    report(diagnostics, Code::E0405, done.error());
    return std::nullopt;
  }

  // Canonical ops, and only what the outputs need.
  ir::Model& model = builder.model();
  sweep(&model);
  if (options.canonicalise) canonicalise(&model);
  builder.keep_buffers();
  merge_constants(&model);
  compact(&model);
  make_names_unique(&model);
  return std::move(model);
}

}  // namespace piper::frontend
