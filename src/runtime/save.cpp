#include "runtime/save.h"

#include <algorithm>
#include <cstring>
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

// Bytes of a tensor as kernels read it, on a rank.
struct Piece {
  int rank = -1;
  int32_t buffer = -1;
  int64_t in_buffer = 0, in_param = 0, bytes = 0;
};

// A file's tensor, and where it lies.
struct Source {
  TensorInfo info;
  int32_t param = -1;
  std::vector<Piece> pieces;
};

// Where a program has the values of a home.
std::optional<ParamHome> weight_place(const plan::Plan&, const Program&, const ParamHome& home) { return home; }

// The update that changes the whole parameter, or the segment of it, pairs it with its gradient.
std::optional<ParamHome> gradient_place(const plan::Plan& plan, const Program& program, const ParamHome& home) {
  const plan::Param& param = plan.params[static_cast<size_t>(home.param)];
  if (!param.trainable) return std::nullopt;
  const int64_t bytes = ir::num_elements(param.shape) * ir::dtype_size(param.dtype);
  for (const plan::Instruction& in : program.instructions) {
    if (in.opcode != plan::Opcode::kUpdate || in.ranges[0].buffer != home.buffer || in.segment != home.segment) continue;
    const plan::BufferRange &values = in.ranges[0], &gradients = in.ranges[1];
    ParamHome place = home;
    place.buffer = gradients.buffer;
    if (home.segment >= 0) return place;
    const int64_t begin = home.offset - values.offset;
    place.offset = gradients.offset + begin;
    if (begin >= 0 && begin + bytes <= values.fixed) return place;
  }
  return std::nullopt;
}

// Where a program has a parameter.
struct Found {
  int32_t program = -1;
  ParamHome place;
};

// What ranks hold in segments, of equal pieces the lowest rank's; or all of it on the lowest rank of a program.
std::vector<Piece> pieces_of(const plan::Plan& plan, const std::vector<Found>& found, const Found& best) {
  const plan::Param& param = plan.params[static_cast<size_t>(best.place.param)];
  std::vector<Piece> pieces;
  for (int rank = 0; rank < plan.world_size(); rank++) {
    const int32_t program = plan.ranks[static_cast<size_t>(rank)].program;
    if (best.place.segment < 0 && program == best.program) {
      return {{rank, best.place.buffer, best.place.offset, 0, ir::num_elements(param.shape) * ir::dtype_size(param.dtype)}};
    }
    const auto here = std::find_if(found.begin(), found.end(), [&](const Found& f) { return f.program == program; });
    if (here == found.end() || here->place.segment < 0) continue;
    const SegmentPart part = *segment_part(plan, rank, here->place);
    const bool known = std::any_of(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.in_param == part.in_param; });
    if (part.bytes > 0 && !known) pieces.push_back({rank, here->place.buffer, part.in_buffer, part.in_param, part.bytes});
  }
  return pieces;
}

// Per parameter who writes it: the lowest rank of a program that owns it, else of the lowest that holds it; or all that
// together have its segments. `place` gives where in a program, or nothing when the program cannot tell.
template <class PlaceFn>
std::vector<Source> find_sources(const plan::Plan& plan, const PlaceFn& place) {
  std::vector<int> lowest(plan.programs.size(), -1);
  for (int rank = plan.world_size() - 1; rank >= 0; rank--) {
    lowest[static_cast<size_t>(plan.ranks[static_cast<size_t>(rank)].program)] = rank;
  }
  std::vector<std::vector<Found>> found(plan.params.size());  // one a program
  for (size_t p = 0; p < plan.programs.size(); p++) {
    if (lowest[p] < 0) continue;
    for (const ParamHome& home : plan.programs[p].params) {
      std::vector<Found>& list = found[static_cast<size_t>(home.param)];
      if (!list.empty() && list.back().program == static_cast<int32_t>(p)) continue;
      if (const std::optional<ParamHome> at = place(plan, plan.programs[p], home)) list.push_back({static_cast<int32_t>(p), *at});
    }
  }
  std::vector<Source> sources;
  for (const std::vector<Found>& list : found) {
    if (list.empty()) continue;
    const Found& best = *std::min_element(list.begin(), list.end(), [&](const Found& a, const Found& b) {
      return std::pair(!a.place.owner, lowest[static_cast<size_t>(a.program)]) < std::pair(!b.place.owner, lowest[static_cast<size_t>(b.program)]);
    });
    const plan::Param& param = plan.params[static_cast<size_t>(best.place.param)];
    sources.push_back({{param.name, param.dtype, param.shape}, best.place.param, pieces_of(plan, list, best)});
    if (param.transposed) std::reverse(sources.back().info.shape.begin(), sources.back().info.shape.end());
  }
  std::sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) { return stored_before(a.info, b.info); });
  return sources;
}

Expected<void> send_tensors(const Executor& executor, Transport& transport, const std::vector<Source>& sources, FileTag file) {
  size_t item = 0;
  for (const Source& source : sources) {
    for (const Piece& piece : source.pieces) {
      const uint64_t tag = tag_of(file, item++);
      if (piece.rank != transport.rank()) continue;
      auto sent = transport.send(0, tag, executor.buffer(piece.buffer) + piece.in_buffer, static_cast<size_t>(piece.bytes));
      if (!sent) return sent;
    }
  }
  return {};
}

Expected<void> write_tensors(const plan::Plan& plan, const Executor& executor, Transport& transport,
                             const std::vector<Source>& sources, FileTag file, const std::string& path) {
  std::vector<TensorInfo> infos;
  for (const Source& source : sources) infos.push_back(source.info);
  auto writer = SafetensorsWriter::create(path, infos);
  if (!writer) return tl::make_unexpected(writer.error());
  std::vector<std::byte> values, named;
  size_t item = 0;
  for (const Source& source : sources) {
    values.resize(static_cast<size_t>(ir::num_elements(source.info.shape) * ir::dtype_size(source.info.dtype)));
    named.resize(values.size());
    for (const Piece& piece : source.pieces) {
      const uint64_t tag = tag_of(file, item++);
      std::byte* to = values.data() + piece.in_param;
      if (piece.rank != 0) {
        auto received = transport.recv(piece.rank, tag, to, static_cast<size_t>(piece.bytes));
        if (!received) return received;
      } else {
        std::memcpy(to, executor.buffer(piece.buffer) + piece.in_buffer, static_cast<size_t>(piece.bytes));
      }
    }
    to_named_layout(plan.params[static_cast<size_t>(source.param)], values.data(), named.data());
    if (auto written = writer->append(named.data(), named.size()); !written) return written;
  }
  return writer->finish();
}

Expected<void> save_tensors(const plan::Plan& plan, const Executor& executor, Transport& transport,
                            const std::vector<Source>& sources, FileTag file, const std::string& path) {
  return transport.rank() == 0 ? write_tensors(plan, executor, transport, sources, file, path)
                               : send_tensors(executor, transport, sources, file);
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
