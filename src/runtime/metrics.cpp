#include "runtime/metrics.h"

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

namespace piper::runtime {

using support::user_error;

support::Expected<MetricsFile> MetricsFile::create(const std::string& path) {
  MetricsFile metrics;
  metrics.path_ = path;
  metrics.file_.reset(std::fopen(path.c_str(), "we"));
  if (!metrics.file_) return user_error("cannot create `" + path + "`: " + std::strerror(errno));
  return metrics;
}

support::Expected<void> MetricsFile::write(const StepReport& report) {
  const double per_second = report.seconds > 0 ? 1 / report.seconds : 0;
  // A loss that is not finite becomes null: JSON has no word for it.
  nlohmann::ordered_json line = {{"step", report.step},
                                 {"loss", report.loss},
                                 {"lr", report.lr},
                                 {"grad_norm", report.grad_norm},
                                 {"skipped", report.skipped},
                                 {"samples_per_s", static_cast<double>(report.samples) * per_second},
                                 {"tokens_per_s", static_cast<double>(report.tokens) * per_second},
                                 {"step_ms", report.seconds * 1e3}};
  const std::string text = line.dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() || std::fflush(file_.get()) != 0) {
    return user_error("cannot write `" + path_ + "`: " + std::strerror(errno));
  }
  return {};
}

}  // namespace piper::runtime
