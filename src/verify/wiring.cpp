#include "verify/wiring.h"

#include <fmt/format.h>

#include <algorithm>

namespace piper::verify {

namespace {

using plan::BufferRange;
using plan::Instruction;
using plan::Opcode;

}  // namespace

std::string Wiring::writer_name(int writer, int writer_range) const {
  const Instruction& by = program_.instructions[writer];
  switch (by.opcode) {
    case Opcode::kCompute: return plan_.chunks[by.chunk].slots[writer_range].name;
    case Opcode::kLoadBatch: return "input " + plan_.inputs[by.input].name;
    // A value is the same whether it was computed here or received.
    case Opcode::kRecv: return by.tensor;
    default: return opcode_name(by.opcode) + " " + by.tensor;
  }
}

void Wiring::read(int instruction, int range, int writer, int writer_range) {
  const Instruction& reader = program_.instructions[instruction];
  if (reader.microbatch < 0) return;
  const BufferRange& r = reader.ranges[range];
  // State has one place; what is in it is another proof's.
  if (program_.buffers[r.buffer].persistent) {
    current_[{range, fmt::format("`{}` from byte {}", program_.buffers[r.buffer].name, r.offset)}] = true;
    return;
  }
  if (program_.buffers[r.buffer].kind == plan::BufferKind::kGradient) {
    // A sum for a run of microbatches: who came before depends on the run.
    current_[{range, fmt::format("a gradient from byte {}", r.offset)}] = true;
    return;
  }
  if (writer < 0) return;
  const BufferRange& w = program_.instructions[writer].ranges[writer_range];
  // Pieces of one message land behind each other: only whole ranges have comparable places.
  bool whole = program_.instructions[writer].piece < 0 && reader.piece < 0;
  int64_t shift = whole ? program_.buffers[r.buffer].offset + r.offset - program_.buffers[w.buffer].offset - w.offset : 0;
  current_[{range, fmt::format("what was written as `{}`{}", writer_name(writer, writer_range),
                               shift == 0 ? "" : fmt::format(", from byte {}", shift))}] = true;
}

void Wiring::finish(int instruction) {
  const Instruction& reader = program_.instructions[instruction];
  if (reader.microbatch >= 0) {
    // What is written to state belongs to the binding as well.
    for (size_t r = 0; r < reader.ranges.size(); r++) {
      const BufferRange& range = reader.ranges[r];
      const plan::Buffer& buffer = program_.buffers[range.buffer];
      if (buffer.persistent) current_[{static_cast<int>(r), fmt::format("`{}` from byte {}", buffer.name, range.offset)}] = true;
    }
    // One microbatch may do it several times, each with something else: shares of a sum that come from several ranks.
    const Work work{reader.opcode, reader.chunk, reader.input, reader.peer, reader.tensor};
    const int before = times_[{work, reader.microbatch}]++;
    bindings_[{work, before}].emplace_back(instruction, std::move(current_));
  }
  current_.clear();
}

std::vector<Miswired> Wiring::differences() const {
  std::vector<Miswired> found;
  for (const auto& [work, bindings] : bindings_) {
    std::map<Binding, int> votes;
    for (const auto& [instruction, binding] : bindings) votes[binding]++;
    if (votes.size() < 2) continue;
    const Binding& usual = std::max_element(votes.begin(), votes.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
    int example = std::find_if(bindings.begin(), bindings.end(), [&](auto& b) { return b.second == usual; })->first;
    for (const auto& [instruction, binding] : bindings) {
      if (binding == usual) continue;
      std::string what = "it uses less";
      for (const auto& [use, yes] : binding) {
        if (!usual.count(use)) what = fmt::format("range {} is {}", use.first, use.second);
      }
      found.push_back({instruction, example, what});
    }
  }
  return found;
}

}  // namespace piper::verify
