#include "runtime/weights.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "frontend/onnx/initializer_reader.h"
#include "runtime/mapped_file.h"
#include "runtime/random.h"

namespace piper::runtime {

using plan::InitKind;
using plan::Param;
using support::Expected;
using support::user_error;

namespace {

int64_t bytes_of(const Param& param) { return ir::num_elements(param.shape) * ir::dtype_size(param.dtype); }

Expected<void> read_initializer(const Param& param, const frontend::InitializerReader& reader, std::byte* out) {
  auto found = reader.find(param.initializer);
  if (!found) return tl::make_unexpected(found.error());
  if (found->dtype != param.dtype || found->dims != param.shape) {
    return user_error(fmt::format("initializer `{}` is {}[{}], the plan expects {}[{}]", param.initializer,
                                  ir::dtype_name(found->dtype), fmt::join(found->dims, ", "),
                                  ir::dtype_name(param.dtype), fmt::join(param.shape, ", ")));
  }
  PIPER_CHECK(static_cast<int64_t>(found->bytes) == bytes_of(param), "initializer of another size than its shape");
  if (found->bytes > 0) std::memcpy(out, found->data, found->bytes);
  return {};
}

double rule_value(const Param& param, uint64_t key, uint64_t element) {
  switch (param.init) {
    case InitKind::kNormal: return param.init_a + param.init_b * random_normal(key, element);
    case InitKind::kUniform: return param.init_a + (param.init_b - param.init_a) * random_uniform(key, element);
    case InitKind::kConstant:
    case InitKind::kFromModel: break;
  }
  return param.init_a;
}

// Elements are numbered in the layout that the name stands for, so that a folded transpose changes no value.
Expected<void> fill_by_rule(const Param& param, uint64_t seed, std::byte* out) {
  if (param.dtype != ir::DType::kF32 && param.dtype != ir::DType::kF64) {
    return user_error("parameter `" + param.name + "` of type " + std::string(ir::dtype_name(param.dtype)) +
                      " has no initial value in the model, and init rules make f32 and f64 only");
  }
  const uint64_t key = XXH3_64bits_withSeed(param.name.data(), param.name.size(), seed);
  const int64_t count = ir::num_elements(param.shape);
  const bool transposed = param.transposed && param.shape.size() == 2;
  for (int64_t i = 0; i < count; i++) {
    const int64_t element =
        transposed ? (i % param.shape[1]) * param.shape[0] + i / param.shape[1] : i;
    const double value = rule_value(param, key, static_cast<uint64_t>(element));
    if (param.dtype == ir::DType::kF32) {
      reinterpret_cast<float*>(out)[i] = static_cast<float>(value);
    } else {
      reinterpret_cast<double*>(out)[i] = value;
    }
  }
  return {};
}

}  // namespace

std::string model_path(const plan::Plan& plan, const std::string& given) {
  return given.empty() ? plan.model_file : given;
}

Expected<void> check_model(const plan::Plan& plan, const std::string& given) {
  const bool needed = std::any_of(plan.params.begin(), plan.params.end(),
                                  [](const Param& param) { return param.init == InitKind::kFromModel; });
  if (!needed) return {};
  const std::string path = model_path(plan, given);
  auto file = MappedFile::open(path);
  if (!file) {
    support::Error error = file.error();
    error.message = "the model with the initial weights: " + error.message;
    error.help = "name the file with `--model FILE`";
    return tl::make_unexpected(error);
  }
  if (XXH3_64bits(file->bytes().data(), file->bytes().size()) == plan.model_hash) return {};
  return user_error("the plan was compiled for another model than `" + path + "`",
                    "name the right file with `--model FILE`, or compile the plan again");
}

std::optional<SegmentPart> segment_part(const plan::Plan& plan, int rank, const plan::ParamHome& home) {
  if (home.segment < 0) return std::nullopt;
  const plan::Segment& segment = plan.ranks[static_cast<size_t>(rank)].segments[static_cast<size_t>(home.segment)];
  const int64_t bytes = bytes_of(plan.params[static_cast<size_t>(home.param)]);
  const int64_t from = segment.start * 4, begin = std::max(home.offset, from), end = std::min(home.offset + bytes, from + segment.count * 4);
  return SegmentPart{begin - home.offset, begin - from, std::max<int64_t>(0, end - begin)};
}

Expected<void> load_weights(const plan::Plan& plan, const std::string& given_model, const Executor& executor) {
  const plan::Program& program = executor.program();
  for (const auto& [constant, buffer] : program.constants) {
    const std::vector<std::byte>& bytes = plan.constants[static_cast<size_t>(constant)].bytes;
    std::copy(bytes.begin(), bytes.end(), executor.buffer(buffer));
  }
  std::optional<frontend::InitializerReader> reader;
  std::vector<std::byte> whole;  // a parameter of which this rank holds a part
  for (const plan::ParamHome& home : program.params) {
    const Param& param = plan.params[static_cast<size_t>(home.param)];
    std::byte* out = executor.buffer(home.buffer) + home.offset;
    const std::optional<SegmentPart> part = segment_part(plan, executor.rank(), home);
    if (part) {
      if (part->bytes == 0) continue;
      whole.resize(static_cast<size_t>(bytes_of(param)));
      out = whole.data();
    }
    if (param.init == InitKind::kFromModel && !reader) {
      if (auto checked = check_model(plan, given_model); !checked) return checked;
      auto opened = frontend::InitializerReader::open(model_path(plan, given_model));
      if (!opened) return tl::make_unexpected(opened.error());
      reader.emplace(std::move(*opened));
    }
    auto filled = param.init == InitKind::kFromModel ? read_initializer(param, *reader, out)
                                                     : fill_by_rule(param, plan.seed, out);
    if (!filled) return filled;
    if (part) std::memcpy(executor.buffer(home.buffer) + part->in_buffer, whole.data() + part->in_param, static_cast<size_t>(part->bytes));
  }
  return {};
}

void to_named_layout(const Param& param, const std::byte* values, std::byte* out) {
  const size_t element = static_cast<size_t>(ir::dtype_size(param.dtype));
  if (!param.transposed || param.shape.size() != 2) {
    std::memcpy(out, values, static_cast<size_t>(bytes_of(param)));
    return;
  }
  const size_t rows = static_cast<size_t>(param.shape[0]), columns = static_cast<size_t>(param.shape[1]);
  for (size_t r = 0; r < rows; r++) {
    for (size_t c = 0; c < columns; c++) {
      std::memcpy(out + (c * rows + r) * element, values + (r * columns + c) * element, element);
    }
  }
}

}  // namespace piper::runtime
