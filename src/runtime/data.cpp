// Opening the sources; data_fill.cpp has what runs in every step.
#include "runtime/data.h"

#include <xxhash.h>

#include <algorithm>

#include "support/strings.h"

namespace piper::runtime {

using plan::Input;
using support::Expected;
using support::user_error;

namespace {

bool is_integer(ir::DType dtype) { return dtype == ir::DType::kI64 || dtype == ir::DType::kI32; }

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (int64_t size : shape) sizes.push_back(std::to_string(size));
  return "[" + support::join(sizes, ", ") + "]";
}

std::string describe_input(const Input& input) {
  return (input.is_target ? "target `" : "input `") + input.name + "` (" + std::string(ir::dtype_name(input.dtype)) +
         shape_text(input.sample_shape) + " a sample)";
}

bool strip_prefix(std::string_view prefix, std::string* text) {
  if (text->rfind(prefix, 0) != 0) return false;
  text->erase(0, prefix.size());
  return true;
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

Data::InputFeed Data::make_feed(const Input& input) const {
  InputFeed feed;
  feed.input = &input;
  feed.elements = ir::num_elements(input.sample_shape);
  feed.bytes = feed.elements * ir::dtype_size(input.dtype);
  feed.key = XXH3_64bits_withSeed(input.name.data(), input.name.size(), plan_->seed);
  return feed;
}

// Inputs that any source of sequences can fill because their name says what they hold.
std::optional<Data::Feed> Data::feed_by_name(const Input& input) const {
  if (input.is_target) return std::nullopt;
  if (input.name == "position_ids" && is_integer(input.dtype)) return Feed::kPositions;
  if (input.name == "attention_mask") return Feed::kOnes;
  return std::nullopt;
}

// The integer input of sample shape [S] that tokens go to; nullptr when there is none.
const Input* Data::sequence_input() const {
  for (const Input& input : plan_->inputs) {
    const bool fits = !input.is_target && is_integer(input.dtype) && input.sample_shape.size() == 1;
    if (fits && input.sample_shape[0] > 0 && !feed_by_name(input)) return &input;
  }
  return nullptr;
}

Expected<int64_t> Data::bind_tokens() {
  const Input* sequence = sequence_input();
  if (!sequence) {
    return user_error("tokens cannot feed this model: it has no integer input with one dim beside the batch",
                      "give the data as a .safetensors file");
  }
  window_ = sequence->sample_shape[0];
  for (const Input& input : plan_->inputs) {
    InputFeed feed = make_feed(input);
    const bool follows = input.is_target && is_integer(input.dtype) && input.sample_shape == sequence->sample_shape;
    if (&input == sequence || follows) {
      feed.feed = Feed::kTokens;
      feed.shift = follows ? 1 : 0;
    } else if (auto by_name = feed_by_name(input)) {
      feed.feed = *by_name;
    } else {
      return user_error("`" + source_ + "` has only tokens, nothing for " + describe_input(input),
                        "give the data as a .safetensors file with a tensor `" + input.name + "`");
    }
    feeds_.push_back(feed);
  }
  const int64_t samples = tokens_->size() > 0 ? (tokens_->size() - 1) / window_ : 0;
  if (samples >= plan_->batch) return samples;
  return user_error("`" + source_ + "` has " + std::to_string(tokens_->size()) + " tokens, " + std::to_string(samples) +
                        " samples of " + std::to_string(window_) + "; one step takes " + std::to_string(plan_->batch),
                    "a step needs " + std::to_string(plan_->batch * window_ + 1) + " tokens");
}

Expected<int64_t> Data::bind_tensors() {
  int64_t samples = -1;
  const Input* first = nullptr;
  for (const Input& input : plan_->inputs) {
    InputFeed feed = make_feed(input);
    feed.feed = Feed::kTensor;
    feed.tensor = tensors_->find(input.name);
    if (!feed.tensor) {
      if (auto by_name = feed_by_name(input)) {
        feed.feed = *by_name;
        feeds_.push_back(feed);
        continue;
      }
      return user_error("`" + source_ + "` has no tensor for " + describe_input(input),
                        "it has " + tensors_->contents());
    }
    std::vector<int64_t> shape = feed.tensor->shape;
    const bool fits = feed.tensor->dtype == input.dtype && !shape.empty() &&
                      std::equal(shape.begin() + 1, shape.end(), input.sample_shape.begin(), input.sample_shape.end());
    if (!fits) {
      return user_error("tensor `" + input.name + "` of `" + source_ + "` is " + describe(*feed.tensor) + ", unlike " +
                            describe_input(input),
                        "the first dim is the sample");
    }
    if (samples >= 0 && shape[0] != samples) {
      return user_error("`" + source_ + "` has " + std::to_string(samples) + " samples of `" + first->name + "` but " +
                        std::to_string(shape[0]) + " of `" + input.name + "`");
    }
    samples = shape[0];
    first = &input;
    feeds_.push_back(feed);
  }
  if (samples < plan_->batch) {
    return user_error("`" + source_ + "` has " + std::to_string(std::max<int64_t>(samples, 0)) +
                      " samples; one step takes " + std::to_string(plan_->batch));
  }
  return samples;
}

void Data::bind_synthetic() {
  endless_ = true;
  const Input* sequence = sequence_input();
  if (sequence) window_ = sequence->sample_shape[0];
  for (const Input& input : plan_->inputs) {
    InputFeed feed = make_feed(input);
    const bool same = sequence && is_integer(input.dtype) && input.sample_shape == sequence->sample_shape;
    if (auto by_name = feed_by_name(input)) {
      feed.feed = *by_name;
    } else if (&input == sequence || (same && input.is_target)) {
      feed.feed = Feed::kRandomTokens;
      feed.shift = input.is_target ? 1 : 0;
      feed.key = plan_->seed;
    } else {
      feed.feed = ir::is_float(input.dtype) ? Feed::kRandomNormals : Feed::kRandomIntegers;
    }
    feeds_.push_back(feed);
  }
}

Expected<Data> Data::open(const plan::Plan& plan, const std::string& source, bool shuffle) {
  Data data;
  data.plan_ = &plan;
  data.source_ = source;
  if (source.empty()) return user_error("no data given", "use `--data FILE`, `--data text:FILE` or `--data synthetic`");
  Expected<int64_t> samples = 1;
  std::string path = source;
  if (source == "synthetic") {
    data.bind_synthetic();
  } else if (ends_with(source, ".safetensors")) {
    auto file = SafetensorsFile::open(path);
    if (!file) return tl::make_unexpected(file.error());
    data.tensors_ = std::make_unique<SafetensorsFile>(std::move(*file));
    samples = data.bind_tensors();
  } else {
    TokenFormat format = TokenFormat::kDetect;
    if (strip_prefix("text:", &path)) {
      format = TokenFormat::kText;
    } else if (strip_prefix("u32:", &path)) {
      format = TokenFormat::kRawU32;
    }
    auto file = TokenFile::open(path, format);
    if (!file) return tl::make_unexpected(file.error());
    data.tokens_ = std::make_unique<TokenFile>(std::move(*file));
    samples = data.bind_tokens();
  }
  if (!samples) return tl::make_unexpected(samples.error());
  data.order_ = SampleOrder(*samples, plan.seed, shuffle);
  // Sequences in tensor files count as well.
  if (const Input* sequence = data.sequence_input()) data.tokens_per_sample_ = sequence->sample_shape[0];
  return data;
}

Expected<void> Data::check_values() const {
  for (const InputFeed& feed : feeds_) {
    if (feed.input->vocabulary <= 0) continue;
    if (feed.feed == Feed::kTokens) {
      if (auto checked = tokens_->check_vocabulary(feed.input->vocabulary); !checked) return checked;
    } else if (feed.feed == Feed::kTensor) {
      for (int64_t sample = 0; sample < order_.samples(); sample++) {
        if (auto checked = check_sample(feed, sample, feed.tensor->data.data() + sample * feed.bytes); !checked) {
          return checked;
        }
      }
    }
  }
  return {};
}

}  // namespace piper::runtime
