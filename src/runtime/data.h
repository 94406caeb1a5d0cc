// The data of a run: fills a plan's inputs with samples, from a token file, a tensor file or synthetic values.
// Which samples make up step k follows from the plan's seed and k alone, so every rank finds its own by itself.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "runtime/safetensors.h"
#include "runtime/sample_order.h"
#include "runtime/token_file.h"
#include "support/error.h"

namespace piper::runtime {

class Data {
 public:
  // `source`: "FILE" or "u32:FILE" of tokens, "text:FILE", "FILE.safetensors", "synthetic". Checks everything that
  // needs no look at all values: formats, dtypes, shapes, that there are samples for one step.
  static support::Expected<Data> open(const plan::Plan& plan, const std::string& source, bool shuffle);

  // Looks at every value that must be in a vocabulary.
  support::Expected<void> check_values() const;

  // Writes samples [start, start + count) of the global batch of `step` to `out`, one after another. Safe from several
  // threads at once.
  support::Expected<void> fill(int32_t input, int64_t step, int64_t start, int64_t count, std::byte* out) const;

  // Samples of an epoch; 0 when there is no end to them.
  int64_t samples() const { return endless_ ? 0 : order_.samples(); }
  // Tokens of a sample; 0 when the data has no sequences.
  int64_t tokens_per_sample() const { return tokens_per_sample_; }

 private:
  // Where the values of an input come from.
  enum class Feed : uint8_t {
    kTokens,           // a window of the token file, `shift` tokens on
    kPositions,        // 0, 1, 2, ...
    kOnes,
    kTensor,           // rows of a tensor file
    kRandomTokens,     // a window of an endless random stream, `shift` tokens on
    kRandomIntegers,
    kRandomNormals,
  };
  struct InputFeed {
    Feed feed = Feed::kOnes;
    const plan::Input* input = nullptr;
    int64_t elements = 1;  // of a sample
    int64_t bytes = 0;     // of a sample
    int64_t shift = 0;
    uint64_t key = 0;
    const TensorView* tensor = nullptr;
  };

  // Make the feed of every input; return the number of samples.
  support::Expected<int64_t> bind_tokens();
  support::Expected<int64_t> bind_tensors();
  void bind_synthetic();
  const plan::Input* sequence_input() const;
  InputFeed make_feed(const plan::Input& input) const;
  std::optional<Feed> feed_by_name(const plan::Input& input) const;
  void fill_sample(const InputFeed& feed, int64_t sample, std::byte* out) const;
  support::Expected<void> check_sample(const InputFeed& feed, int64_t sample, const std::byte* values) const;

  const plan::Plan* plan_ = nullptr;
  std::string source_;
  std::vector<InputFeed> feeds_;
  std::unique_ptr<TokenFile> tokens_;
  std::unique_ptr<SafetensorsFile> tensors_;  // feeds point into it
  SampleOrder order_;
  bool endless_ = false;
  int64_t window_ = 0;  // tokens of a sample of a token stream
  int64_t tokens_per_sample_ = 0;
};

}  // namespace piper::runtime
