// Filling samples: runs in every step, on the streams' threads, and allocates nothing unless it fails.
#include <algorithm>
#include <cstring>

#include "runtime/data.h"
#include "runtime/random.h"

namespace piper::runtime {

using support::Expected;
using support::user_error;

namespace {

// out[i] = value(i) in the input's type.
template <class Value>
void write(ir::DType dtype, int64_t count, std::byte* out, const Value& value) {
  auto as = [&]<class T>(T) {
    T* typed = reinterpret_cast<T*>(out);
    for (int64_t i = 0; i < count; i++) typed[i] = static_cast<T>(value(i));
  };
  switch (dtype) {
    case ir::DType::kF32: return as(float{});
    case ir::DType::kF64: return as(double{});
    case ir::DType::kI64: return as(int64_t{});
    case ir::DType::kI32: return as(int32_t{});
    case ir::DType::kU8: return as(uint8_t{});
    case ir::DType::kBool: return as(bool{});
    case ir::DType::kBF16: {
      uint16_t* typed = reinterpret_cast<uint16_t*>(out);
      for (int64_t i = 0; i < count; i++) {
        const float full = static_cast<float>(value(i));
        uint32_t bits;
        std::memcpy(&bits, &full, sizeof bits);
        typed[i] = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
      }
      return;
    }
  }
}

// An integer below the vocabulary; models that name none get 0 and 1.
int64_t random_below(uint64_t key, uint64_t index, int64_t vocabulary) {
  const uint64_t limit = vocabulary > 0 ? static_cast<uint64_t>(vocabulary) : 2;
  return static_cast<int64_t>((random_bits(key, index) >> 32) * limit >> 32);
}

}  // namespace

void Data::fill_sample(const InputFeed& feed, int64_t sample, std::byte* out) const {
  const ir::DType dtype = feed.input->dtype;
  const uint64_t first = static_cast<uint64_t>(sample * feed.elements);
  switch (feed.feed) {
    case Feed::kTokens: {
      const int64_t begin = sample * window_ + feed.shift;
      if (dtype == ir::DType::kI64) return tokens_->read(begin, window_, reinterpret_cast<int64_t*>(out));
      return tokens_->read(begin, window_, reinterpret_cast<int32_t*>(out));
    }
    case Feed::kPositions: {
      const int64_t length = feed.input->sample_shape.empty() ? 1 : feed.input->sample_shape.back();
      return write(dtype, feed.elements, out, [&](int64_t i) { return i % length; });
    }
    case Feed::kOnes: return write(dtype, feed.elements, out, [](int64_t) { return 1; });
    case Feed::kTensor:
      std::memcpy(out, feed.tensor->data.data() + sample * feed.bytes, static_cast<size_t>(feed.bytes));
      return;
    case Feed::kRandomTokens: {
      const uint64_t at = static_cast<uint64_t>(sample * window_ + feed.shift);
      return write(dtype, feed.elements, out, [&](int64_t i) {
        return random_below(feed.key, at + static_cast<uint64_t>(i), feed.input->vocabulary);
      });
    }
    case Feed::kRandomIntegers:
      return write(dtype, feed.elements, out, [&](int64_t i) {
        return random_below(feed.key, first + static_cast<uint64_t>(i), feed.input->vocabulary);
      });
    case Feed::kRandomNormals:
      return write(dtype, feed.elements, out,
                   [&](int64_t i) { return random_normal(feed.key, first + static_cast<uint64_t>(i)); });
  }
}

// Kernels index memory with these values, so none may be outside, even when a file changed after the full check.
Expected<void> Data::check_sample(const InputFeed& feed, int64_t sample, const std::byte* values) const {
  const plan::Input& input = *feed.input;
  if (input.vocabulary <= 0) return {};
  auto outside = [&]<class T>(T) -> int64_t {
    for (int64_t i = 0; i < feed.elements; i++) {
      T value;
      std::memcpy(&value, values + i * static_cast<int64_t>(sizeof value), sizeof value);
      const bool fits = static_cast<uint64_t>(value) < static_cast<uint64_t>(input.vocabulary);
      if (!fits && !(input.has_ignore_index && value == static_cast<T>(input.ignore_index))) return i;
    }
    return -1;
  };
  int64_t wrong = -1;
  if (input.dtype == ir::DType::kI64) wrong = outside(int64_t{});
  if (input.dtype == ir::DType::kI32) wrong = outside(int32_t{});
  if (wrong < 0) return {};
  int64_t value = 0;
  const int64_t size = ir::dtype_size(input.dtype);
  if (size == 8) {
    std::memcpy(&value, values + wrong * size, sizeof value);
  } else {
    int32_t narrow;
    std::memcpy(&narrow, values + wrong * size, sizeof narrow);
    value = narrow;
  }
  return user_error("`" + input.name + "` of `" + source_ + "`: element " + std::to_string(wrong) + " of sample " +
                    std::to_string(sample) + " is " + std::to_string(value) + ", outside the vocabulary of " +
                    std::to_string(input.vocabulary));
}

Expected<void> Data::fill(int32_t input, int64_t step, int64_t start, int64_t count, std::byte* out) const {
  const InputFeed& feed = feeds_[static_cast<size_t>(input)];
  const bool from_file = feed.feed == Feed::kTokens || feed.feed == Feed::kTensor;
  for (int64_t j = 0; j < count; j++) {
    const int64_t position = step * plan_->batch + start + j;
    const int64_t sample = endless_ ? position : order_.at(position);
    fill_sample(feed, sample, out);
    if (from_file) {
      if (auto checked = check_sample(feed, sample, out); !checked) return checked;
    }
    out += feed.bytes;
  }
  return {};
}

}  // namespace piper::runtime
