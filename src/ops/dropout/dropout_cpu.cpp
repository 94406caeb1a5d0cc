#include <algorithm>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/vector_math.h"
#include "ops/kernel.h"
#include "ops/philox.h"

namespace piper::ops {

namespace {

struct Extents {
  int64_t n = 0;
  int64_t inner = 0;    // elements of a sample that lie together
  int64_t samples = 1;
  bool per_sample = true;
};

Extents extents_of(const KernelSpec& spec) {
  Extents e;
  e.n = ir::num_elements(spec.inputs[0].shape);
  e.inner = spec.attrs.i("inner");
  e.per_sample = e.inner > 0;
  if (!e.per_sample) e.inner = std::max<int64_t>(1, e.n);
  e.samples = std::max<int64_t>(1, e.n / (std::max<int64_t>(1, spec.attrs.i("outer", 1)) * e.inner));
  return e;
}

// One run of elements [element, element + count) of one sample.
template <class T>
void drop(const PhiloxStream& random, uint64_t sample, int64_t element, int64_t count, uint32_t threshold, T scale,
          const T* x, T* y) {
  constexpr int64_t kBlocks = 128;
  uint32_t words[4 * kBlocks];
  while (count > 0) {
    const int64_t skip = element % 4, many = std::min(count, 4 * kBlocks - skip);
    vec::philox_words(random.key(), sample, static_cast<uint64_t>(element / 4), (skip + many + 3) / 4, words);
    for (int64_t i = 0; i < many; i++) {
      const T kept = x[i] * scale;
      y[i] = words[skip + i] >= threshold ? kept : T(0);
    }
    element += many;
    count -= many;
    x += many;
    y += many;
  }
}

}  // namespace

std::unique_ptr<Kernel> make_cpu_Dropout(const KernelSpec& spec) {
  const double ratio = spec.attrs.f("ratio");
  const uint32_t threshold = static_cast<uint32_t>(std::min(ratio * 4294967296.0, 4294967295.0));
  const uint64_t key = static_cast<uint64_t>(spec.attrs.i("key"));
  const Extents e = extents_of(spec);
  return visit_float(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    const T scale = static_cast<T>(1 / (1 - ratio));
    return kernel_from([=](const void* const* in, void* const* out, const RunContext& context) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      const PhiloxStream random(context.seed, static_cast<uint64_t>(context.step), key);
      parallel_pieces(e.n, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end;) {
          const int64_t block = i / e.inner, within = i % e.inner;
          const int64_t count = std::min(e.inner - within, end - i);
          const int64_t sample = e.per_sample ? context.sample_start + block % e.samples : 0;
          const int64_t element = block / e.samples * e.inner + within;
          drop(random, static_cast<uint64_t>(sample), element, count, threshold, scale, x + i, y + i);
          i += count;
        }
      });
    });
  });
}

}  // namespace piper::ops
