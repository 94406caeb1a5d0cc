// A rank of a job: loads its part of the plan, initial weights and data, and runs steps. The same function serves ranks
// that are processes and ranks that are threads of one process (loopback).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "runtime/transport.h"
#include "support/error.h"

namespace piper::runtime {

struct RunOptions {
  std::string model;          // ONNX file with the initial weights; empty: Plan::model_file
  std::string data;           // "tokens.bin", "text:FILE", "FILE.safetensors", "synthetic"
  bool shuffle = true;        // false: samples in the order of the file
  int64_t steps = 1;
  int threads = 1;            // OpenMP threads of the compute stream
  std::string metrics;        // JSON lines, written by rank 0; empty: none
  std::string save;           // folder for the final weights; empty: none
  std::string save_gradients; // file for the gradients of the first step before clipping (tests); empty: none
  std::string trace;          // Chrome trace of the last step; empty: none
  bool deterministic_delays = false;  // tests: random sleeps before instructions, seeded by rank
};

struct StepReport {
  int64_t step = 0;  // from 0
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double seconds = 0;
  bool skipped = false;
  int64_t samples = 0;
  int64_t tokens = 0;  // 0 when the data has no sequence dim
};

struct RunSummary {
  std::vector<double> losses;      // of every step; the same on all ranks
  std::vector<double> grad_norms;
  double seconds = 0;              // of the steps, without start
  int64_t arena_bytes = 0;
  int64_t bytes_sent = 0;
  int64_t instructions = 0;        // run per step
};

// Called after every step, by rank 0 only, from the rank's main thread.
using StepCallback = std::function<void(const StepReport&)>;

// Checks that can be made before any rank starts: data readable, long enough, tokens in the vocabulary, dtypes and
// shapes, model file there with the plan's hash.
support::Expected<void> check_run(const plan::Plan& plan, const RunOptions& options);

// Runs the rank to the end. Errors name the instruction that failed. `progress`, when given, counts instructions
// completed (a watchdog reads it).
support::Expected<RunSummary> run_rank(const plan::Plan& plan, Transport& transport, const RunOptions& options,
                                       const StepCallback& on_step = {}, std::atomic<int64_t>* progress = nullptr);

}  // namespace piper::runtime
