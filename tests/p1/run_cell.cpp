#include "tests/p1/run_cell.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/compile_model.h"
#include "plan/plan_io.h"
#include "runtime/launch.h"
#include "runtime/safetensors.h"
#include "tests/temp_folder.h"

namespace piper::p1 {

namespace fs = std::filesystem;

namespace {

void run_processes(const std::string& plan, const Cell& cell, int steps, const test::TempFolder& scratch, Result& result) {
  const std::string command = fmt::format(
      "'{}' launch '{}' --data '{}' --in-order --steps {} --save '{}' --save-gradients '{}' --metrics '{}' --quiet >'{}' 2>&1", PIPER_BINARY,
      plan, cell.model.data, steps, scratch.file("save"), scratch.file("grads.safetensors"), scratch.file("metrics.jsonl"), scratch.file("log"));
  if (std::system(command.c_str()) != 0) {
    std::ifstream log(scratch.file("log"));
    result.error.assign(std::istreambuf_iterator<char>(log), {});
    if (result.error.empty()) result.error = "launch failed without a message";
    return;
  }
  std::ifstream metrics(scratch.file("metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);) {
    const auto json = nlohmann::json::parse(line);
    result.losses.push_back(json.at("loss"));
    result.grad_norms.push_back(json.at("grad_norm"));
  }
}

void run_threads(const plan::Plan& plan, const std::string& folder, const Cell& cell, int steps, const test::TempFolder& scratch, Result& result) {
  runtime::LaunchOptions options;
  options.plan_folder = folder;
  options.in_process = true;
  options.rendezvous_sends = cell.rendezvous;
  options.quiet = true;
  options.run.data = cell.model.data;
  options.run.shuffle = false;
  options.run.steps = steps;
  options.run.save = scratch.file("save");
  options.run.save_gradients = scratch.file("grads.safetensors");
  options.run.deterministic_delays = cell.rendezvous;
  const auto summary = runtime::launch(plan, options);
  if (!summary) {
    result.error = summary.error().message;
    return;
  }
  result.losses = summary->losses;
  result.grad_norms = summary->grad_norms;
}

}  // namespace

Tensors read_tensors(const std::string& path) {
  Tensors out;
  const auto file = runtime::SafetensorsFile::open(path);
  if (!file) return out;
  for (const runtime::TensorView& t : file->tensors()) {
    std::vector<double>& values = out[t.name];
    if (t.dtype == ir::DType::kF32) {
      values.resize(t.data.size() / sizeof(float));
      for (size_t i = 0; i < values.size(); ++i) {
        float f;
        std::memcpy(&f, t.data.data() + i * sizeof f, sizeof f);
        values[i] = f;
      }
    } else if (t.dtype == ir::DType::kF64) {
      values.resize(t.data.size() / sizeof(double));
      std::memcpy(values.data(), t.data.data(), t.data.size());
    }
  }
  return out;
}

Result run(const Cell& cell, int steps) {
  Result result;
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  cli::CompileOptions options;
  options.defines = cell.defines;
  options.sets = cell.sets;
  const auto compiled = cli::compile(cell.model.file, cell.strategy.ends_with(".piper") ? cell.strategy : fmt::format("strategies/{}.piper", cell.strategy), options, diagnostics);
  if (!compiled) {
    result.error = diagnostics.render();
    return result;
  }
  const test::TempFolder scratch;
  const std::string folder = scratch.file("plan");
  if (const auto written = plan::write_plan(compiled->plan, folder); !written) {
    result.error = written.error().message;
    return result;
  }
  if (cell.processes) {
    run_processes(folder, cell, steps, scratch, result);
  } else {
    run_threads(compiled->plan, folder, cell, steps, scratch, result);
  }
  if (!result.error.empty()) return result;
  result.gradients = read_tensors(scratch.file("grads.safetensors"));
  result.weights = read_tensors(scratch.file("save/model.safetensors"));
  if (result.gradients.empty() || result.weights.empty()) result.error = "no gradients or weights were saved";
  return result;
}

double noise_floor(const Tensors& gradients) {
  double largest = 0;
  for (const auto& [name, values] : gradients) {
    for (double v : values) largest = std::max(largest, std::abs(v));
  }
  return largest * 1e-7;
}

double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return INFINITY;
    largest = std::max(largest, std::abs(b[i]));
    difference = std::max(difference, std::abs(a[i] - b[i]));
  }
  return largest == 0 ? (difference == 0 ? 0 : INFINITY) : difference / largest;
}

Difference compare(const Result& a, const Result& b) {
  Difference d;
  d.loss = relative_difference(a.losses, b.losses);
  d.norm = a.grad_norms.empty() || b.grad_norms.empty() ? INFINITY : relative_difference({a.grad_norms[0]}, {b.grad_norms[0]});
  auto tensors = [&](const Tensors& x, const Tensors& y, const char* what, double& largest) {
    if (x.size() != y.size()) largest = INFINITY;
    for (const auto& [name, values] : y) {
      const auto it = x.find(name);
      const double difference = it == x.end() ? INFINITY : relative_difference(it->second, values);
      if (difference < largest) continue;
      largest = difference;
      d.worst = fmt::format("{} {}", what, name);
    }
  };
  tensors(a.weights, b.weights, "weight", d.weights);
  tensors(a.gradients, b.gradients, "gradient", d.gradients);
  return d;
}

}  // namespace piper::p1
