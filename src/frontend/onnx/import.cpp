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

// The operators that nothing can import, each once, by name.
std::vector<ImportNotes::Unsupported> find_unsupported(const SourceGraph& graph) {
  std::map<std::string, ImportNotes::Unsupported> rows;
  for (const SourceNode& node : graph.nodes) {
    const std::string& kind = node.proto.op_type();
    const std::string domain = node.proto.domain() == "ai.onnx" ? "" : node.proto.domain();
    if (domain.empty() && (is_importer_op(kind) || can_evaluate_known(kind))) continue;
    bool known_type = false;
    if (ops::find_import(kind, domain, std::min(node.opset, kNewestOpset), &known_type) != nullptr)
      continue;
    const std::string name = domain.empty() ? kind : domain + "." + kind;
    ImportNotes::Unsupported& row = rows[name];
    if (row.count++ > 0) continue;
    row.op = name;
    row.first = describe(node.proto, node.path);
    row.path = node.path.value_or("");
    row.other_opset = known_type;
  }
  std::vector<ImportNotes::Unsupported> list;
  for (auto& [name, row] : rows) list.push_back(std::move(row));
  return list;
}

// One report of all of them.
void report_unsupported(const std::vector<ImportNotes::Unsupported>& rows, int opset,
                        Diagnostics& diagnostics) {
  if (rows.empty()) return;
  std::vector<std::string> names;
  bool vendor = false, by_mask = false;
  for (const auto& row : rows) {
    names.push_back("`" + row.op + "`");
    vendor = vendor || row.op.starts_with("com.microsoft.");
    by_mask = by_mask || row.op == "NonZero";
  }
  auto& error = diagnostics.report(
      Code::E0402, (names.size() == 1 ? "the operator " : "the operators ") +
                       support::join(names, ", ") +
                       (names.size() == 1 ? " is not supported" : " are not supported"));
  for (const auto& row : rows) {
    error.note("`" + row.op + "`: " + std::to_string(row.count) +
               (row.count == 1 ? " node, " : " nodes, the first is ") + row.first +
               (row.other_opset ? "; supported, but not in opset " + std::to_string(opset) : ""));
  }
  if (vendor) error.help("export the model without the optimizations of ONNX Runtime");
  if (by_mask)
    error.help("rows that are picked by a mask have a number that depends on the data; a loop over "
               "experts can be exported with stacked weights: see docs/experts.md");
}

void note_weights(const SourceGraph& graph, const Weights& weights, ImportNotes* notes) {
  auto add = [&](const std::string& stored_as, const Weight& weight, const std::string& reason) {
    const ::onnx::TensorProto& tensor = *graph.initializers.at(stored_as);
    ir::DType dtype;
    std::string type = onnx_type_name(tensor.data_type());
    if (dtype_from_onnx(tensor.data_type(), &dtype)) {
      ir::TensorType known{dtype, {}};
      for (int64_t dim : tensor.dims()) known.shape.push_back(ir::Dim(dim));
      type = to_string(known);
    }
    notes->weights.push_back({weight.name, stored_as, weight.kind, type, reason});
  };
  for (const auto& [name, weight] : weights.initializers)
    add(name, weight,
        weight.transpose_of.empty() || weight.treated ? weight.reason
                                                      : "constant folding's transposed copy of it");
  for (const auto& [name, twin] : weights.twins)
    add(twin.initializer, twin.weight, "the exporter merged it with a parameter of equal values");
  for (const auto& [name, weight] : graph.weightless)
    notes->weights.push_back({name, "", weight.kind, to_string(weight.type),
                              "an input that the exporter or `treat` marks, without a value"});
}

// Nodes, paths and parameters of a file that cannot be imported, as a model without types.
ir::Model sketch_of(const SourceGraph& graph, const Weights& weights) {
  ir::Model model;
  std::map<std::string, ir::ValueId> values;
  for (const SourceInput& input : graph.inputs) {
    values[input.name] = model.add_value(input.name, input.type, ir::ValueKind::kInput);
    model.inputs.push_back(values[input.name]);
  }
  for (const auto& [name, weight] : weights.initializers) {
    ir::TensorType type;
    const ::onnx::TensorProto& tensor = *graph.initializers.at(name);
    if (weight.kind != WeightKind::kParameter || !dtype_from_onnx(tensor.data_type(), &type.dtype))
      continue;
    for (int64_t dim : tensor.dims()) type.shape.push_back(ir::Dim(dim));
    ir::Parameter param;
    param.name = weight.name;
    param.initializer = name;
    param.type = type;
    param.value = values[name] = model.add_value(weight.name, type, ir::ValueKind::kParameter);
    model.value(param.value).param = ir::ParamId(static_cast<int64_t>(model.params.size()));
    model.params.push_back(std::move(param));
  }
  for (const SourceNode& node : graph.nodes) {
    ir::Op op;
    op.kind = node.proto.op_type();
    op.name = node.proto.name();
    op.path = node.path.value_or("");
    for (const std::string& input : node.proto.input()) {
      if (auto it = values.find(input); it != values.end()) op.inputs.push_back(it->second);
    }
    const ir::OpId id = model.add_op(
        std::move(op), std::vector<ir::TensorType>(static_cast<size_t>(node.proto.output_size())));
    for (int i = 0; i < node.proto.output_size(); i++)
      values[node.proto.output(i)] = model.op(id).outputs[static_cast<size_t>(i)];
  }
  for (const std::string& output : graph.outputs) {
    auto it = values.find(output);
    if (it == values.end()) continue;  // a constant
    model.outputs.push_back(it->second);
    model.value(it->second).name = output;
  }
  return model;
}

std::string producer_of(const ::onnx::ModelProto& model) {
  return model.producer_name() +
         (model.producer_version().empty() ? "" : " " + model.producer_version());
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
  const auto unsupported = find_unsupported(*graph);
  report_unsupported(unsupported, opset_of(graph->opsets, ""), diagnostics);
  Weights weights = classify_weights(*graph, decoder, treats);
  if (options.notes != nullptr) {
    options.notes->ir_version = (*proto)->ir_version();
    options.notes->opset = opset_of(graph->opsets, "");
    options.notes->unsupported = unsupported;
    note_weights(*graph, weights, options.notes);
    options.notes->sketch = sketch_of(*graph, weights);
    options.notes->sketch->producer = producer_of(**proto);
  }
  treats.report_unused();
  check_cache(*graph, diagnostics);
  check_lost_parameters(**proto, *graph, weights, diagnostics);
  if (failed()) return std::nullopt;

  // Node by node: known integers, folded constants, ops.
  Builder builder(*graph, decoder);
  builder.model().file = path;
  builder.model().hash = XXH3_64bits((*file)->data(), (*file)->size());
  builder.model().producer = producer_of(**proto);
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
