// Metrics of a run: a line of JSON a step.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "runtime/worker.h"
#include "support/error.h"

namespace piper::runtime {

class MetricsFile {
 public:
  // Starts the file anew.
  static support::Expected<MetricsFile> create(const std::string& path);
  // Appends the step's line; followers of the file see it at once.
  support::Expected<void> write(const StepReport& report);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace piper::runtime
