// Strategies that tests write for one purpose: as files, run, and compared with each other.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/p1/run_cell.h"

namespace piper::testing {

// A strategy file that is there as long as the object.
class StrategyFile {
 public:
  // Beside the files of `folder`, to use what they use.
  explicit StrategyFile(const std::string& text, const std::filesystem::path& folder = std::filesystem::temp_directory_path()) {
    static int count = 0;
    name_ = fmt::format("piper_test_{}_{}", getpid(), count++);
    path_ = folder / (name_ + ".piper");
    std::ofstream(path_) << text;
  }
  ~StrategyFile() { std::filesystem::remove(path_); }
  const std::filesystem::path& path() const { return path_; }
  // As a cell names it: relative to strategies/, without the ending.
  std::string stem() const { return std::filesystem::relative(path_, std::filesystem::absolute("strategies")).replace_extension("").string(); }

 private:
  std::string name_;
  std::filesystem::path path_;
};

inline std::string train(const std::string& loss, const std::string& optimizer, int batch, const std::string& more = "") {
  return fmt::format("train {{ loss {}  optimizer {}  batch {}  {} }}\n", loss, optimizer, batch, more);
}

inline p1::Cell cell_of(const StrategyFile& file, const std::string& model) {
  p1::Cell cell;
  cell.model = {model, fmt::format("models/{0}/{0}.onnx", model), fmt::format("models/{}/data.safetensors", model), {}, 4};
  cell.strategy = file.stem();
  return cell;
}

// Runs both texts and compares everything.
inline void check_equal(const std::string& model, const std::string& text, const std::string& reference) {
  const StrategyFile a(text), b(reference);
  const p1::Result ours = p1::run(cell_of(a, model), 3), theirs = p1::run(cell_of(b, model), 3);
  INFO(text);
  INFO(ours.error << theirs.error);
  REQUIRE(ours.error.empty());
  REQUIRE(theirs.error.empty());
  const p1::Difference d = p1::compare(ours, theirs);
  INFO("largest difference in " << d.worst);
  CHECK(d.loss < 1e-5);
  CHECK(d.norm < 1e-5);
  CHECK(d.gradients < 1e-5);
  CHECK(d.weights < 1e-5);
}

}  // namespace piper::testing
