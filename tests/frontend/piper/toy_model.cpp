#include "tests/frontend/piper/toy_model.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace piper::test {

namespace fs = std::filesystem;

namespace {

ir::ValueId add_param(ir::Model& m, const std::string& name, bool buffer = false) {
  ir::TensorType type{ir::DType::kF32, {8, 8}};
  ir::ValueId value = m.add_value(name, type, ir::ValueKind::kParameter);
  m.value(value).param = ir::ParamId(static_cast<int64_t>(m.params.size()));
  ir::Parameter param;
  param.name = name;
  param.value = value;
  param.type = type;
  param.is_buffer = buffer;
  m.params.push_back(param);
  return value;
}

ir::ValueId add_op(ir::Model& m, const std::string& kind, std::vector<ir::ValueId> inputs, const std::string& path) {
  ir::Op op;
  op.kind = kind;
  op.inputs = std::move(inputs);
  op.name = "/" + path + "/" + kind;
  op.path = path;
  ir::OpId id = m.add_op(std::move(op), {{ir::DType::kF32, {ir::Dim::batch_size(), 8}}});
  return m.op(id).outputs[0];
}

}  // namespace

ir::Model toy_model(int layers) {
  ir::Model m;
  ir::ValueId tokens = m.add_value("tokens", {ir::DType::kI64, {ir::Dim::batch_size(), 8}}, ir::ValueKind::kInput);
  m.inputs.push_back(tokens);
  ir::ValueId mask = add_op(m, "Where", {tokens, add_param(m, "transformer.bias", true)}, "transformer.mask");
  ir::ValueId x = add_op(m, "Embedding", {add_param(m, "transformer.wte.weight"), tokens}, "transformer.wte");
  for (int i = 0; i < layers; i++) {
    std::string layer = "transformer.h." + std::to_string(i);
    x = add_op(m, "Linear", {x, add_param(m, layer + ".attn.weight"), mask}, layer + ".attn");
    x = add_op(m, "Linear", {x, add_param(m, layer + ".mlp.weight")}, layer + ".mlp");
  }
  x = add_op(m, "LayerNorm", {x, add_param(m, "transformer.ln_f.weight")}, "transformer.ln_f");
  x = add_op(m, "Linear", {x, add_param(m, "lm_head.weight")}, "lm_head");
  m.value(x).name = "logits";
  m.outputs.push_back(x);
  return m;
}

namespace {

std::string without(std::string text, const std::string& part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.erase(at, part.size());
  return text;
}

}  // namespace

Loaded load_file(const std::string& path, const ir::Model* model, frontend::LoadOptions options) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  if (options.library_dirs.empty()) options.library_dirs = {fs::absolute("strategies/lib").string()};
  frontend::StrategyLoader loader(diagnostics, options);
  Loaded out;
  out.parsed = loader.parse(path);
  if (out.parsed) {
    out.header = loader.evaluate_header(out.strategy);
    out.body = loader.evaluate_body(model, [](ir::OpId) { return 1.0; }, out.strategy);
  }
  out.errors = diagnostics.render();
  return out;
}

Loaded load(const std::string& text, const ir::Model* model, frontend::LoadOptions options, const std::string& name) {
  fs::path folder = fs::temp_directory_path() / ("piper_language_" + std::to_string(getpid()));
  fs::create_directories(folder);
  fs::path file = folder / name;
  std::ofstream(file, std::ios::binary) << text;
  Loaded out = load_file(file.string(), model, std::move(options));
  fs::remove_all(folder);
  out.errors = without(without(out.errors, folder.string() + "/"), fs::current_path().string() + "/");
  return out;
}

}  // namespace piper::test
