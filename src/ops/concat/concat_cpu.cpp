#include "ops/cpu/copy.h"

namespace piper::ops {

std::unique_ptr<Kernel> make_cpu_Concat(const KernelSpec& spec) {
  const size_t axis = static_cast<size_t>(spec.attrs.i("axis"));
  const std::vector<int64_t>& shape = spec.outputs[0].shape;
  int64_t rows = 1, inner = ir::dtype_size(spec.outputs[0].dtype);
  for (size_t i = 0; i < shape.size(); i++) {
    if (i < axis) rows *= shape[i];
    if (i > axis) inner *= shape[i];
  }
  std::vector<int64_t> lengths;  // bytes that each input gives to a row
  for (const TensorDesc& input : spec.inputs) lengths.push_back(input.shape[axis] * inner);
  const int64_t row_bytes = shape[axis] * inner;
  return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
    char* to = static_cast<char*>(out[0]);
    for (size_t i = 0; i < lengths.size(); i++) {
      const char* from = static_cast<const char*>(in[i]);
      const int64_t length = lengths[i];
      if (rows == 1) {
        copy_bytes(to, from, length);
      } else {
        parallel_rows(rows, length, [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; r++) std::memcpy(to + r * row_bytes, from + r * length, static_cast<size_t>(length));
        });
      }
      to += length;
    }
  });
}

}  // namespace piper::ops
