#include "runtime/save.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "runtime/safetensors.h"
#include "runtime/weights.h"

namespace piper::runtime {

using plan::ParamHome;
using plan::Program;
using support::Expected;
using support::user_error;

namespace {

// Tags of files are apart from those of steps, which stay below 2^63.
enum class FileTag : uint64_t { kWeights = 1, kGradients, kTrace };
uint64_t tag_of(FileTag file, size_t item) {
  return uint64_t{1} << 63 | static_cast<uint64_t>(file) << 32 | static_cast<uint64_t>(item);
}

// Where a file's tensor lies: on which rank, in which buffer of its program.
struct Source {
  TensorInfo info;
  int32_t param = -1;
  int rank = -1;
  int32_t buffer = -1;
  int64_t offset = 0;
};

struct Place {
  int32_t buffer = -1;
  int64_t offset = 0;
};

Place weight_place(const plan::Plan&, const Program&, const ParamHome& home) { return {home.buffer, home.offset}; }

// The update that changes the whole parameter pairs it with its gradient.
std::optional<Place> gradient_place(const plan::Plan& plan, const Program& program, const ParamHome& home) {
  const plan::Param& param = plan.params[static_cast<size_t>(home.param)];
  if (!param.trainable) return std::nullopt;
  const int64_t bytes = ir::num_elements(param.shape) * ir::dtype_size(param.dtype);
  for (const plan::Instruction& in : program.instructions) {
    if (in.opcode != plan::Opcode::kUpdate) continue;
    const plan::BufferRange &values = in.ranges[0], &gradients = in.ranges[1];
    const int64_t begin = home.offset - values.offset;
    if (values.buffer == home.buffer && begin >= 0 && begin + bytes <= values.fixed) {
      return Place{gradients.buffer, gradients.offset + begin};
    }
  }
  return std::nullopt;
}

// Per parameter the rank that writes it: the lowest of a program that owns it, else the lowest that holds it. `place`
// gives where in that program, or nothing when the program cannot tell.
template <class PlaceFn>
std::vector<Source> find_sources(const plan::Plan& plan, const PlaceFn& place) {
  std::vector<int> lowest(plan.programs.size(), -1);
  for (int rank = plan.world_size() - 1; rank >= 0; rank--) {
    lowest[static_cast<size_t>(plan.ranks[static_cast<size_t>(rank)].program)] = rank;
  }
  std::vector<Source> best(plan.params.size());
  std::vector<bool> owned(plan.params.size(), false);
  for (size_t p = 0; p < plan.programs.size(); p++) {
    if (lowest[p] < 0) continue;
    for (const ParamHome& home : plan.programs[p].params) {
      const size_t index = static_cast<size_t>(home.param);
      Source& source = best[index];
      const bool better = source.rank < 0 || (home.owner && !owned[index]) ||
                          (home.owner == owned[index] && lowest[p] < source.rank);
      if (!better) continue;
      const std::optional<Place> at = place(plan, plan.programs[p], home);
      if (!at) continue;
      const plan::Param& param = plan.params[index];
      source = {{param.name, param.dtype, param.shape}, home.param, lowest[p], at->buffer, at->offset};
      if (param.transposed) std::reverse(source.info.shape.begin(), source.info.shape.end());
      owned[index] = home.owner;
    }
  }
  std::erase_if(best, [](const Source& source) { return source.rank < 0; });
  std::sort(best.begin(), best.end(), [](const Source& a, const Source& b) { return stored_before(a.info, b.info); });
  return best;
}

Expected<void> send_tensors(const plan::Plan& plan, const Executor& executor, Transport& transport,
                            const std::vector<Source>& sources, FileTag file) {
  std::vector<std::byte> values;
  for (size_t i = 0; i < sources.size(); i++) {
    const Source& source = sources[i];
    if (source.rank != transport.rank()) continue;
    values.resize(static_cast<size_t>(ir::num_elements(source.info.shape) * ir::dtype_size(source.info.dtype)));
    to_named_layout(plan.params[static_cast<size_t>(source.param)], executor.buffer(source.buffer) + source.offset,
                    values.data());
    if (auto sent = transport.send(0, tag_of(file, i), values.data(), values.size()); !sent) return sent;
  }
  return {};
}

Expected<void> write_tensors(const plan::Plan& plan, const Executor& executor, Transport& transport,
                             const std::vector<Source>& sources, FileTag file, const std::string& path) {
  std::vector<TensorInfo> infos;
  for (const Source& source : sources) infos.push_back(source.info);
  auto writer = SafetensorsWriter::create(path, infos);
  if (!writer) return tl::make_unexpected(writer.error());
  std::vector<std::byte> values;
  for (size_t i = 0; i < sources.size(); i++) {
    const Source& source = sources[i];
    values.resize(static_cast<size_t>(ir::num_elements(source.info.shape) * ir::dtype_size(source.info.dtype)));
    if (source.rank != 0) {
      auto received = transport.recv(source.rank, tag_of(file, i), values.data(), values.size());
      if (!received) return received;
    } else {
      to_named_layout(plan.params[static_cast<size_t>(source.param)], executor.buffer(source.buffer) + source.offset,
                      values.data());
    }
    if (auto written = writer->append(values.data(), values.size()); !written) return written;
  }
  return writer->finish();
}

Expected<void> save_tensors(const plan::Plan& plan, const Executor& executor, Transport& transport,
                            const std::vector<Source>& sources, FileTag file, const std::string& path) {
  return transport.rank() == 0 ? write_tensors(plan, executor, transport, sources, file, path)
                               : send_tensors(plan, executor, transport, sources, file);
}

}  // namespace

Expected<void> save_weights(const plan::Plan& plan, const Executor& executor, Transport& transport,
                            const std::string& folder) {
  if (transport.rank() == 0) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) return user_error("cannot make folder `" + folder + "`: " + failed.message());
  }
  return save_tensors(plan, executor, transport, find_sources(plan, weight_place), FileTag::kWeights,
                      (std::filesystem::path(folder) / "model.safetensors").string());
}

Expected<void> save_gradients(const plan::Plan& plan, const Executor& executor, Transport& transport,
                              const std::string& path) {
  const std::vector<Source> sources = find_sources(plan, gradient_place);
  for (size_t p = 0; p < plan.params.size(); p++) {
    if (!plan.params[p].trainable) continue;
    auto found = std::any_of(sources.begin(), sources.end(),
                             [&](const Source& source) { return source.param == static_cast<int32_t>(p); });
    if (!found) return user_error("no rank has the whole gradient of `" + plan.params[p].name + "` to save");
  }
  return save_tensors(plan, executor, transport, sources, FileTag::kGradients, path);
}

Expected<void> save_trace(const plan::Plan& plan, StepTrace trace, Transport& transport, const std::string& path) {
  auto bytes = [](const StepTrace& of) { return of.times.size() * sizeof(Interval); };
  if (transport.rank() != 0) {
    return transport.send(0, tag_of(FileTag::kTrace, 0), trace.times.data(), bytes(trace));
  }
  std::vector<StepTrace> traces(plan.ranks.size());
  traces[0] = std::move(trace);
  for (size_t r = 1; r < traces.size(); r++) {
    const Program& program = plan.programs[static_cast<size_t>(plan.ranks[r].program)];
    traces[r].times.resize(program.instructions.size());
    auto received =
        transport.recv(static_cast<int>(r), tag_of(FileTag::kTrace, 0), traces[r].times.data(), bytes(traces[r]));
    if (!received) return received;
  }
  return write_trace(plan, traces, path);
}

}  // namespace piper::runtime
