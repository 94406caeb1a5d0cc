// Strategy: a `.piper` file evaluated against a model. All names are resolved, all expressions are numbers; what is
// left are annotations (tag values per op) and directives. The language that produced it is in src/frontend/piper.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/model.h"
#include "ir/types.h"
#include "support/source.h"

namespace piper::ir {

using support::SourceSpan;

struct Axis {
  std::string name;
  int64_t size = 1;
  SourceSpan span;
};

// Row-major: the last axis is fastest. No axes: one device.
struct Mesh {
  std::string name = "dev";
  std::vector<Axis> axes;
  SourceSpan span;
  int64_t world_size() const;
  int axis_index(const std::string& name) const;  // -1 when there is none
};

enum PassBit : uint32_t { kPassF = 1, kPassB = 2, kPassI = 4, kPassW = 8, kPassU = 16, kPassAll = 31 };

struct Constraint {
  enum class Kind { kOneOf, kPresent, kAbsent };
  std::string tag;
  Kind kind = Kind::kOneOf;
  std::vector<int64_t> values;  // of kOneOf, sorted
  SourceSpan span;
};

struct Selector {
  uint32_t passes = kPassAll;
  std::vector<Constraint> constraints;
  SourceSpan span;  // where it was written (of its call site, for one made in a library function)
};
std::string to_string(const Selector& selector);  // "F(stage = 2, mb = 0)"

// Devices with these coordinates, spanning the other axes.
struct DeviceSet {
  std::vector<std::pair<int, int64_t>> fixed;  // (axis index, coordinate), sorted by axis
  SourceSpan span;
};

struct Place {
  Selector selector;
  DeviceSet devices;
  std::string p2p_stream = "p2p";
  SourceSpan span;
};

struct Replicate {
  Selector selector;
  int axis = 0;
  int zero = 0;
  int64_t bucket_bytes = 25 << 20;
  std::string reduce_stream = "reduce";
  std::string gather_stream = "gather";
  std::optional<DType> reduce_dtype;
  std::optional<int64_t> prefetch;  // 1 where nothing is said
  SourceSpan span;
};

struct ShardExperts {
  Selector selector;
  int axis = 0;
  std::string a2a_stream = "a2a";
  std::optional<double> max_load;
  SourceSpan span;
};

struct ShardParam {
  std::string glob;
  int64_t dim = 0;
  int axis = 0;
  SourceSpan span;
};

struct Split {
  int64_t count = 1;
  std::string dim = "mb";  // the tag that microbatches get
  SourceSpan span;
};

// One element of an `order` list: usually one selector; several form an overlap group `x | y`.
struct OrderElement {
  std::vector<Selector> selectors;
};
struct Order {
  std::vector<OrderElement> elements;
  SourceSpan span;
};

struct Recompute {
  Selector selector;
  SourceSpan span;
};
struct StreamProperties {
  std::string name;
  bool high_priority = false;
  std::optional<int64_t> sms;
  SourceSpan span;
};
struct Freeze {
  std::string glob;
  SourceSpan span;
};
struct Tie {
  std::string a, b;
  bool transposed = false;
  SourceSpan span;
};

// What initializers and inputs of these names are, whatever the exporter says: `treat "glob" as buffer`.
enum class WeightKind { kParameter, kBuffer, kConstant };
struct Treat {
  std::string glob;
  WeightKind kind = WeightKind::kParameter;
  SourceSpan span;
};

// One `tag` statement evaluated: the ops it matched and the value each got, by op id.
struct TagRule {
  std::string name;
  std::vector<std::pair<OpId, int64_t>> ops;
  SourceSpan span;
};

struct LossTerm {
  enum class Kind { kCrossEntropy, kMse, kMean };
  Kind kind = Kind::kCrossEntropy;
  double weight = 1;
  std::string output;  // graph output: logits, prediction, or the averaged value
  std::string target;  // graph input or a name the data must bring; empty for kMean
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  SourceSpan span;
};

struct Optimizer {
  enum class Kind { kSgd, kAdam, kAdamW };
  Kind kind = Kind::kAdamW;
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool nesterov = false;
  SourceSpan span;
};

// Learning rate over steps: linear warm-up from 0 to the optimizer's lr, then constant, linear or cosine to `floor`.
struct LrSchedule {
  enum class Kind { kConstant, kLinear, kCosine };
  Kind kind = Kind::kConstant;
  int64_t warmup = 0;
  int64_t total = 0;
  double floor = 0;
};

struct InitRule {
  enum class Kind { kNormal, kUniform, kConstant };
  std::string glob;
  Kind kind = Kind::kNormal;
  double a = 0, b = 1;  // mean, std | low, high | value, -
  SourceSpan span;
};

struct Train {
  std::vector<LossTerm> loss;
  Optimizer optimizer;
  LrSchedule schedule;
  std::vector<std::string> no_decay;
  std::vector<InitRule> init;
  std::optional<double> clip_norm;
  bool skip_nonfinite = true;  // on_nonfinite skip | stop
  int64_t batch = 1;
  DType precision = DType::kF32;
  uint64_t seed = 0;
  int64_t coupled_groups = 0;
  // What a batch normalisation is that the model has in its inference form.
  enum class BatchNorm { kUnsaid, kAsExported, kTraining };
  BatchNorm batch_norm = BatchNorm::kUnsaid;  // unsaid: as exported
  SourceSpan span;
};

struct Strategy {
  std::string file;
  std::string text;   // the source, for humans
  uint64_t hash = 0;  // of the text, the imported files and the -D/--set values
  Mesh mesh;
  std::map<std::string, int64_t> dims;  // `dim "sequence" = 256`
  std::vector<Treat> treats;
  std::vector<TagRule> tags;
  std::vector<Place> places;
  std::vector<Replicate> replicates;
  std::vector<ShardExperts> shard_experts;
  std::vector<ShardParam> shard_params;
  std::optional<Split> split;
  std::vector<Order> orders;
  std::vector<Recompute> recomputes;
  std::vector<StreamProperties> streams;
  std::vector<Freeze> freezes;
  std::vector<Tie> ties;
  Train train;
};

}  // namespace piper::ir
