#include "runtime/worker.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "runtime/data.h"
#include "runtime/executor.h"
#include "runtime/lr_schedule.h"
#include "runtime/metrics.h"
#include "runtime/save.h"
#include "runtime/weights.h"

namespace piper::runtime {

using support::user_error;

namespace {

constexpr int kMaxBadSteps = 10;

// The steps of one rank.
class Run {
 public:
  Run(const plan::Plan& plan, Transport& transport, const RunOptions& options, const StepCallback& on_step)
      : plan_(plan), transport_(transport), options_(options), on_step_(on_step) {}

  Expected<void> start(std::atomic<int64_t>* progress);
  Expected<void> steps();
  Expected<void> finish();
  RunSummary summary() const { return summary_; }

 private:
  Expected<void> step(int64_t k);
  Expected<void> judge(int64_t k, const StepDecision& decision, double loss);
  double loss_of_step();

  const plan::Plan& plan_;
  Transport& transport_;
  const RunOptions& options_;
  const StepCallback& on_step_;
  Data data_;
  std::unique_ptr<Executor> executor_;
  std::optional<MetricsFile> metrics_;
  StepTrace trace_;
  std::vector<bool> warned_;  // by loss term: about having no elements
  int64_t applied_ = 0;
  int bad_steps_ = 0;  // in a row
  RunSummary summary_;
};

Expected<void> Run::start(std::atomic<int64_t>* progress) {
  if (transport_.world_size() != plan_.world_size()) {
    return user_error("the plan is for " + std::to_string(plan_.world_size()) + " ranks, the job has " +
                      std::to_string(transport_.world_size()));
  }
  auto data = Data::open(plan_, options_.data, options_.shuffle);
  if (!data) return tl::make_unexpected(data.error());
  data_ = std::move(*data);
  ExecutorOptions executor_options;
  executor_options.threads = std::max(options_.threads, 1);
  executor_options.random_delays = options_.deterministic_delays;
  executor_options.progress = progress;
  auto executor = Executor::make(plan_, transport_, data_, executor_options);
  if (!executor) return tl::make_unexpected(executor.error());
  executor_ = std::move(*executor);
  if (auto loaded = load_weights(plan_, options_.model, *executor_); !loaded) return loaded;
  if (transport_.rank() == 0 && !options_.metrics.empty()) {
    auto metrics = MetricsFile::create(options_.metrics);
    if (!metrics) return tl::make_unexpected(metrics.error());
    metrics_.emplace(std::move(*metrics));
  }
  warned_.resize(plan_.loss.size(), false);
  summary_.arena_bytes = executor_->program().arena_bytes;
  summary_.instructions = static_cast<int64_t>(executor_->program().instructions.size());
  // Nobody's clock starts before everybody is ready.
  return transport_.barrier();
}

Expected<void> Run::steps() {
  for (int64_t k = 0; k < options_.steps; k++) {
    if (auto done = step(k); !done) return done;
    if (k == 0 && !options_.save_gradients.empty()) {
      auto saved = save_gradients(plan_, *executor_, transport_, options_.save_gradients);
      if (!saved) return saved;
    }
  }
  return {};
}

Expected<void> Run::step(int64_t k) {
  const bool traced = !options_.trace.empty() && k == options_.steps - 1;
  const auto begin = std::chrono::steady_clock::now();
  auto ran = executor_->run_step({k, applied_}, traced ? &trace_ : nullptr);
  if (!ran) return ran;
  StepReport report;
  report.step = k;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  report.loss = loss_of_step();
  const double* stats = executor_->stats();
  const StepDecision decision = stats ? decide(plan_, stats) : StepDecision{};
  report.grad_norm = decision.norm;
  report.lr = learning_rate(plan_.optimizer.lr, plan_.schedule, k);
  report.skipped = decision.verdict == Verdict::kSkip;
  report.samples = plan_.batch;
  report.tokens = plan_.batch * data_.tokens_per_sample();
  summary_.losses.push_back(report.loss);
  summary_.grad_norms.push_back(report.grad_norm);
  summary_.seconds += report.seconds;
  summary_.bytes_sent += executor_->bytes_sent_per_step();
  if (transport_.rank() == 0) {
    if (metrics_) {
      if (auto written = metrics_->write(report); !written) return written;
    }
    if (on_step_) on_step_(report);
  }
  return judge(k, decision, report.loss);
}

Expected<void> Run::judge(int64_t k, const StepDecision& decision, double loss) {
  if (decision.verdict == Verdict::kApply) {
    // A plan without norms notices by its loss only.
    if (!plan_.skip_nonfinite && !std::isfinite(loss)) {
      return user_error("the loss of step " + std::to_string(k) + " is not finite");
    }
    applied_++;
    bad_steps_ = 0;
    return {};
  }
  if (decision.verdict == Verdict::kStop) {
    return user_error("the gradients of step " + std::to_string(k) + " are not finite");
  }
  if (transport_.rank() == 0) spdlog::warn("step {} is skipped: its gradients are not finite", k);
  if (++bad_steps_ < kMaxBadSteps) return {};
  return user_error("the gradients of " + std::to_string(kMaxBadSteps) + " steps in a row, up to step " +
                        std::to_string(k) + ", are not finite",
                    "a smaller learning rate, warm-up or `clip_norm` may keep training stable");
}

// Sum over the terms of weight * sum / count; a term without elements counts nothing.
double Run::loss_of_step() {
  const double* stats = executor_->stats();
  double loss = 0;
  for (size_t t = 0; stats && t < plan_.loss.size(); t++) {
    const plan::LossTerm& term = plan_.loss[t];
    const double count = stats[term.count_index];
    if (count > 0) {
      loss += term.weight * stats[term.sum_index] / count;
    } else if (transport_.rank() == 0 && !warned_[t]) {
      spdlog::warn("loss `{}` has no valid elements in a step: it counts as 0 there", term.name);
      warned_[t] = true;
    }
  }
  return loss;
}

Expected<void> Run::finish() {
  if (!options_.save.empty()) {
    if (auto saved = save_weights(plan_, *executor_, transport_, options_.save); !saved) return saved;
  }
  if (!options_.trace.empty() && options_.steps > 0) {
    if (auto saved = save_trace(plan_, std::move(trace_), transport_, options_.trace); !saved) return saved;
  }
  // A rank that leaves early would look like one that died.
  return transport_.barrier();
}

}  // namespace

Expected<void> check_run(const plan::Plan& plan, const RunOptions& options) {
  auto data = Data::open(plan, options.data, options.shuffle);
  if (!data) return tl::make_unexpected(data.error());
  if (auto checked = data->check_values(); !checked) return checked;
  return check_model(plan, options.model);
}

Expected<RunSummary> run_rank(const plan::Plan& plan, Transport& transport, const RunOptions& options,
                              const StepCallback& on_step, std::atomic<int64_t>* progress) {
  Run run(plan, transport, options, on_step);
  Expected<void> done = run.start(progress);
  if (done) done = run.steps();
  if (done) done = run.finish();
  if (done) return run.summary();
  transport.abort(done.error().message);
  return tl::make_unexpected(done.error());
}

}  // namespace piper::runtime
