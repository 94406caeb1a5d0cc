#include "tests/compiler/bench.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>

#include "cli/compile_model.h"
#include "runtime/safetensors.h"

namespace piper::testing {

Values waves(size_t n, double phase) {
  Values x(n);
  for (size_t i = 0; i < n; ++i)
    x[i] = static_cast<float>(
        std::sin(phase + 12.9898 * static_cast<double>(i) * (1 + 0.013 * static_cast<double>(i % 17))));
  return x;
}

Bench::Bench(const test::GraphBuilder& graph, const std::vector<DataTensor>& data)
    : model_(folder_.write("model.onnx", graph.bytes())), data_(folder_.file("data.safetensors")) {
  test::GraphBuilder copy = graph;
  output_ = copy.graph().output(0).name();
  std::vector<runtime::TensorInfo> entries;
  for (const DataTensor& tensor : data) entries.push_back({tensor.name, ir::DType::kF32, tensor.shape});
  auto writer = runtime::SafetensorsWriter::create(data_, entries);
  REQUIRE(writer.has_value());
  for (const DataTensor& tensor : data)
    REQUIRE(writer->append(tensor.values.data(), tensor.values.size() * sizeof(float)).has_value());
  REQUIRE(writer->finish().has_value());
}

std::string Bench::strategy(const std::string& text, int batch, const std::string& more) const {
  return text + fmt::format(
                    "train {{ loss mse(prediction = output \"{}\", target = input \"t\")  "
                    "optimizer adamw(lr = 1e-2, eps = 1e-3)  batch {}  {} }}\n",
                    output_, batch, more);
}

p1::Result Bench::run(const std::string& text, int steps, bool processes) const {
  p1::Cell cell;
  cell.processes = processes;
  cell.model = {"model", model_, data_, {}, 4};
  cell.strategy = stem(text);
  return p1::run(cell, steps);
}

plan::Plan Bench::compile(const std::string& text) const {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  auto compiled = cli::compile(model_, fmt::format("strategies/{}.piper", stem(text)), {}, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(compiled.has_value());
  return compiled->plan;
}

std::string Bench::messages(const std::string& text) const {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  (void)cli::compile(model_, fmt::format("strategies/{}.piper", stem(text)), {}, diagnostics);
  return diagnostics.render();
}

// Relative to strategies/, where cells look for theirs.
std::string Bench::stem(const std::string& text) const {
  const std::string file = folder_.write(fmt::format("s{}.piper", count_++), text);
  return std::filesystem::relative(file, std::filesystem::absolute("strategies")).replace_extension("").string();
}

std::string data_parallel(int dp, int microbatches) {
  return fmt::format("mesh dev[dp = {}]\nreplicate all() over dp\nsplit all() into {} as mb\n", dp, microbatches);
}

}  // namespace piper::testing
