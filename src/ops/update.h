// Optimizer updates and gradient norms: what the instructions `update` and `norm` run, on flat runs of f32.
// Written once for every backend's semantics; cpu implementation in update_cpu.cpp.
#pragma once

#include <cstdint>

namespace piper::ops {

struct UpdateStep {
  double lr = 0;        // of this step, from the schedule
  double beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, momentum = 0;
  bool nesterov = false;
  int64_t t = 1;        // 1 for the first applied update (bias correction)
  double scale = 1;     // gradients are multiplied by it first (clipping)
};

// w -= lr * (g + wd * w), or with momentum buffer m (PyTorch's: m = momentum * m + g; the first step sets m = g).
void sgd(float* w, const float* g, float* m, int64_t n, const UpdateStep& step);
// Adam with L2 regularisation in the gradient (torch.optim.Adam).
void adam(float* w, const float* g, float* m, float* v, int64_t n, const UpdateStep& step);
// Decoupled weight decay (torch.optim.AdamW).
void adamw(float* w, const float* g, float* m, float* v, int64_t n, const UpdateStep& step);
// Sum of squares in f64 over f32 elements in fixed order (independent of the number of threads), and how many are not finite.
void sum_of_squares(const float* g, int64_t n, double* sum, double* nonfinite);

}  // namespace piper::ops
