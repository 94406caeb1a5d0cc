#include "verify/effects.h"

#include <algorithm>

#include "plan/check.h"

namespace piper::verify {

namespace {

using plan::Access;
using plan::Opcode;

// A set of bytes as disjoint intervals.
class Bytes {
 public:
  void add(int64_t begin, int64_t end) {
    if (begin >= end) return;
    auto it = parts_.upper_bound(begin);
    if (it != parts_.begin() && std::prev(it)->second >= begin) --it;
    while (it != parts_.end() && it->first <= end) {
      begin = std::min(begin, it->first);
      end = std::max(end, it->second);
      it = parts_.erase(it);
    }
    parts_[begin] = end;
  }
  // Adds to `out` what of [begin, end) is not in this set.
  void missing(int64_t begin, int64_t end, Bytes* out) const {
    auto it = parts_.upper_bound(begin);
    if (it != parts_.begin()) --it;
    for (; it != parts_.end() && it->first < end; ++it) {
      if (it->second <= begin) continue;
      out->add(begin, it->first);
      begin = std::max(begin, it->second);
    }
    out->add(begin, end);
  }
  const std::map<int64_t, int64_t>& parts() const { return parts_; }

 private:
  std::map<int64_t, int64_t> parts_;  // begin -> end
};

std::vector<Effect> effects_of(const plan::Chunk& chunk, const plan::KernelList& list) {
  std::vector<Bytes> read(chunk.slots.size()), written(chunk.slots.size());
  auto end_of = [](const plan::Operand& o) { return o.offset + plan::tensor_bytes(o.dtype, o.shape); };
  for (const plan::KernelCall& call : list.calls) {
    auto reads = [&](const plan::Operand& o) { written[o.slot].missing(o.offset, end_of(o), &read[o.slot]); };
    for (const plan::Operand& input : call.inputs) {
      if (input.slot >= 0) reads(input);
    }
    uint64_t accumulates = static_cast<uint64_t>(call.attrs.i("accumulate"));
    for (size_t i = 0; i < call.outputs.size(); i++) {
      const plan::Operand& output = call.outputs[i];
      if (output.slot < 0) continue;
      if (i < 64 && ((accumulates >> i) & 1) != 0) reads(output);
      written[output.slot].add(output.offset, end_of(output));
    }
  }
  std::vector<Effect> effects;
  for (Access access : {Access::kRead, Access::kWrite}) {
    for (size_t s = 0; s < chunk.slots.size(); s++) {
      for (const auto& [begin, end] : (access == Access::kRead ? read : written)[s].parts()) {
        effects.push_back({static_cast<int>(s), begin, end, access});
      }
    }
  }
  return effects;
}

// Opcodes that use less than their ranges.
int64_t used_bytes(const plan::Plan& plan, int rank, const plan::Instruction& instruction, size_t r) {
  int64_t bytes = plan::range_bytes(plan, rank, instruction, instruction.ranges[r]);
  bool stats = r + 1 == instruction.ranges.size();
  if (stats && (instruction.opcode == Opcode::kNorm || instruction.opcode == Opcode::kUpdate)) return std::min<int64_t>(bytes, 16);
  if (instruction.opcode != Opcode::kLoadBatch) return bytes;
  const plan::Input& input = plan.inputs[instruction.input];
  return plan::samples_of(plan, rank, instruction) * plan::tensor_bytes(input.dtype, input.sample_shape);
}

}  // namespace

const std::vector<Effect>& Effects::of_variant(int32_t chunk, size_t variant) {
  auto [it, fresh] = chunks_.try_emplace({chunk, variant});
  if (fresh) it->second = effects_of(plan_.chunks[chunk], plan_.chunks[chunk].variants[variant]);
  return it->second;
}

const std::vector<Effect>& Effects::outputs_of(int32_t chunk) {
  auto [it, fresh] = outputs_.try_emplace(chunk);
  if (!fresh) return it->second;
  for (const plan::KernelCall& call : plan_.chunks[chunk].variants[0].calls) {
    for (const plan::Operand& o : call.outputs) {
      if (o.slot >= 0) it->second.push_back({o.slot, o.offset, o.offset + plan::tensor_bytes(o.dtype, o.shape), Access::kWrite});
    }
  }
  return it->second;
}

const std::vector<Effect>& Effects::of(int rank, const plan::Instruction& instruction) {
  if (instruction.opcode == Opcode::kCompute) {
    const plan::Chunk& chunk = plan_.chunks[instruction.chunk];
    const plan::KernelList& list = variant_of(chunk, samples_of(plan_, rank, instruction));
    return of_variant(instruction.chunk, static_cast<size_t>(&list - chunk.variants.data()));
  }
  other_.clear();
  for (Access access : {Access::kRead, Access::kWrite}) {
    for (size_t r = 0; r < instruction.ranges.size(); r++) {
      bool does = (static_cast<int>(instruction.ranges[r].access) & static_cast<int>(access)) != 0;
      if (does) other_.push_back({static_cast<int>(r), 0, used_bytes(plan_, rank, instruction, r), access});
    }
  }
  return other_;
}

}  // namespace piper::verify
