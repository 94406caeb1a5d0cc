#include "tests/verify/interpreter.h"

#include <algorithm>
#include <random>

#include "support/error.h"

namespace piper::testing {

namespace {

using namespace plan;  // NOLINT: a test helper that is all about plans

uint64_t hash(uint64_t x, uint64_t y) {
  x += 0x9e3779b97f4a7c15 + y * 0xd6e8feb86659fd93;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t hash_text(const std::string& text) {
  uint64_t h = text.size();
  for (char c : text) h = hash(h, static_cast<unsigned char>(c));
  return h;
}

constexpr int64_t kUnit = 4;  // bytes that one symbolic value stands for

// An instruction of a rank, or several that run together.
struct Job {
  std::vector<std::pair<int, int>> events;  // (rank, instruction)
  std::vector<std::vector<uint64_t>> seen;  // what each read when it started
};

class Machine {
 public:
  Machine(const Plan& plan, uint64_t seed) : plan_(plan), rng_(seed), seed_(seed) {
    for (size_t r = 0; r < plan.ranks.size(); r++) {
      const Program& program = program_of(static_cast<int>(r));
      memory_.emplace_back(static_cast<size_t>(program.arena_bytes / kUnit + 1));
      for (uint64_t& unit : memory_.back()) unit = rng_();
      fill_state(static_cast<int>(r), program);
      done_.emplace_back(program.instructions.size(), false);
      std::vector<std::vector<int>> queues(program.streams.size());
      for (size_t i = 0; i < program.instructions.size(); i++) queues[program.instructions[i].stream].push_back(static_cast<int>(i));
      for (auto& queue : queues) std::reverse(queue.begin(), queue.end());
      queues_.push_back(std::move(queues));
      running_.emplace_back(program.streams.size(), false);
      std::vector<uint64_t> priorities;
      for (size_t s = 0; s < program.streams.size(); s++) priorities.push_back(rng_());
      priorities_.push_back(std::move(priorities));
    }
  }

  Outcome run() {
    while (failure_.empty()) {
      std::vector<Job> ready = ready_jobs();
      if (ready.empty() && active_.empty()) break;
      // Three kinds of timing: anything at any time, starts before ends, ends before starts.
      bool start = !ready.empty() && (active_.empty() || (seed_ % 3 == 0 ? rng_() % 2 == 0 : seed_ % 3 == 1));
      if (start) {
        begin(pick(ready));
      } else {
        size_t which = rng_() % active_.size();
        Job job = std::move(active_[which]);
        active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(which));
        finish(job);
      }
    }
    for (const std::vector<std::vector<int>>& queues : queues_) {
      for (const std::vector<int>& queue : queues) {
        if (!queue.empty() && failure_.empty()) failure_ = "deadlock";
      }
    }
    return {failure_, failure_.empty() ? results() : std::vector<uint64_t>()};
  }

 private:
  const Program& program_of(int r) const { return plan_.programs[plan_.ranks[r].program]; }
  const Instruction& at(std::pair<int, int> e) const { return program_of(e.first).instructions[e.second]; }

  // Units of a range; what is no multiple of a unit is rounded outwards.
  std::pair<int64_t, int64_t> units(std::pair<int, int> e, const BufferRange& range) const {
    const Instruction& instruction = at(e);
    int64_t begin = program_of(e.first).buffers[range.buffer].offset + range_offset(plan_, e.first, instruction, range);
    int64_t bytes = range_bytes(plan_, e.first, instruction, range);
    // Kernels and loaders use what they need of a range.
    if (instruction.opcode == Opcode::kCompute) {
      size_t slot = static_cast<size_t>(&range - instruction.ranges.data());
      bytes = variant_of(plan_.chunks[instruction.chunk], samples_of(plan_, e.first, instruction)).slot_bytes[slot];
    }
    if (instruction.opcode == Opcode::kLoadBatch) bytes = samples_of(plan_, e.first, instruction) * sample_bytes(instruction);
    if (instruction.opcode == Opcode::kUpdate && &range == &instruction.ranges.back()) bytes = 16;
    return {begin / kUnit, bytes == 0 ? begin / kUnit : (begin + bytes + kUnit - 1) / kUnit};
  }

  int64_t sample_bytes(const Instruction& instruction) const {
    return ir::num_elements(plan_.inputs[instruction.input].sample_shape) * ir::dtype_size(plan_.inputs[instruction.input].dtype);
  }

  static bool reads(const BufferRange& range) { return range.access != Access::kWrite; }
  static bool writes(const BufferRange& range) { return range.access != Access::kRead; }

  // What lives across steps: parameters and optimizer state are the same in every run, gradients are left over.
  void fill_state(int r, const Program& program) {
    for (const Buffer& buffer : program.buffers) {
      if (buffer.kind != BufferKind::kOptimizer && buffer.kind != BufferKind::kConstant) continue;
      for (int64_t u = 0; u < buffer.bytes / kUnit; u++) memory_[r][buffer.offset / kUnit + u] = hash(hash_text(buffer.name), u);
    }
    for (const ParamHome& home : program.params) {
      const Param& param = plan_.params[home.param];
      int64_t base = (program.buffers[home.buffer].offset + home.offset) / kUnit;
      for (int64_t u = 0; u < ir::num_elements(param.shape); u++) memory_[r][base + u] = hash(hash_text(param.name), u);
    }
  }

  std::vector<uint64_t> results() const {
    std::vector<uint64_t> out;
    for (size_t r = 0; r < plan_.ranks.size(); r++) {
      const Program& program = program_of(static_cast<int>(r));
      auto take = [&](int64_t bytes_at, int64_t count) {
        for (int64_t u = 0; u < count; u++) out.push_back(memory_[r][bytes_at / kUnit + u]);
      };
      for (const ParamHome& home : program.params) {
        take(program.buffers[home.buffer].offset + home.offset, ir::num_elements(plan_.params[home.param].shape));
      }
      if (program.stats_buffer >= 0) take(program.buffers[program.stats_buffer].offset, plan_.stats_count * 2);
      for (size_t update = 0; update < plan_.updates.size(); update++) {
        for (const Instruction& instruction : program.instructions) {
          bool this_one = instruction.opcode == Opcode::kUpdate && static_cast<size_t>(instruction.update) == update;
          if (this_one) take_states(program, instruction, take);
        }
      }
    }
    return out;
  }

  // The optimizer's state of the parameters, not of what lies between them.
  template <class Take>
  void take_states(const Program& program, const Instruction& update, Take take) const {
    for (const ParamHome& home : program.params) {
      int64_t at = home.offset - update.ranges[0].offset, count = ir::num_elements(plan_.params[home.param].shape);
      if (home.buffer != update.ranges[0].buffer || at < 0 || at + count * kUnit > update.ranges[0].fixed) continue;
      for (size_t s = 2; s + 1 < update.ranges.size(); s++) {
        const BufferRange& range = update.ranges[s];
        take(program.buffers[range.buffer].offset + range.offset + at, count);
      }
    }
  }

  bool head_ready(int r, int s) const {
    if (running_[r][s] || queues_[r][s].empty()) return false;
    const std::vector<int32_t>& waits = program_of(r).instructions[queues_[r][s].back()].waits;
    return std::all_of(waits.begin(), waits.end(), [&](int32_t w) { return done_[r][w]; });
  }

  // An instruction of `r` that is ready on some stream and satisfies `fits`, or -1.
  template <class Fits>
  int ready_on(int r, Fits fits) const {
    for (size_t s = 0; s < queues_[r].size(); s++) {
      if (!head_ready(r, static_cast<int>(s))) continue;
      int i = queues_[r][s].back();
      if (fits(program_of(r).instructions[i])) return i;
    }
    return -1;
  }

  std::vector<Job> ready_jobs() {
    std::vector<Job> jobs;
    for (int r = 0; r < plan_.world_size(); r++) {
      for (size_t s = 0; s < queues_[r].size(); s++) {
        if (!head_ready(r, static_cast<int>(s))) continue;
        std::pair<int, int> e{r, queues_[r][s].back()};
        Opcode opcode = at(e).opcode;
        Job job{{e}, {}};
        bool ready = true;
        if (opcode == Opcode::kSend || opcode == Opcode::kRecv) ready = opcode == Opcode::kSend && join_receive(&job);
        if (opcode >= Opcode::kAllReduce && opcode <= Opcode::kBroadcast) ready = join_group(&job);
        if (ready) jobs.push_back(std::move(job));
      }
    }
    return jobs;
  }

  bool join_receive(Job* job) {
    auto [r, i] = job->events[0];
    const Instruction& send = at({r, i});
    int peer = plan_.ranks[r].peers[send.peer];
    int found = ready_on(peer, [&](const Instruction& x) {
      return x.opcode == Opcode::kRecv && x.tag == send.tag && plan_.ranks[peer].peers[x.peer] == r;
    });
    if (found < 0) return false;
    job->events.emplace_back(peer, found);
    auto [a, b] = units({r, i}, send.ranges[0]);
    auto [c, d] = units({peer, found}, at({peer, found}).ranges[0]);
    if (b - a != d - c) failure_ = "sizes of a message differ";
    return true;
  }

  // The lowest member gathers the others, so that a collective becomes ready once.
  bool join_group(Job* job) {
    auto [r, i] = job->events[0];
    const Instruction& call = at({r, i});
    int group = plan_.ranks[r].groups[call.group];
    const std::vector<int32_t>& members = plan_.groups[group].ranks;
    if (members.front() != r) return false;
    auto [a, b] = units({r, i}, call.ranges[0]);
    for (size_t m = 1; m < members.size(); m++) {
      int found = ready_on(members[m], [&](const Instruction& x) {
        bool collective = x.opcode >= Opcode::kAllReduce && x.opcode <= Opcode::kBroadcast;
        return collective && x.tag == call.tag && plan_.ranks[members[m]].groups[x.group] == group;
      });
      if (found < 0) return false;
      job->events.emplace_back(members[m], found);
      const Instruction& other = at(job->events.back());
      auto [c, d] = units(job->events.back(), other.ranges[0]);
      if (other.opcode != call.opcode || b - a != d - c || other.dtype != call.dtype) failure_ = "collectives differ";
    }
    return true;
  }

  Job pick(std::vector<Job>& ready) {
    // Half of the seeds let some streams always go first, which delays the others as far as the plan allows.
    if (seed_ % 2 == 0) return ready[rng_() % ready.size()];
    auto priority = [&](const Job& job) { return priorities_[job.events[0].first][at(job.events[0]).stream]; };
    return *std::max_element(ready.begin(), ready.end(), [&](const Job& a, const Job& b) { return priority(a) < priority(b); });
  }

  std::vector<uint64_t> read_all(std::pair<int, int> e) const {
    std::vector<uint64_t> values;
    for (const BufferRange& range : at(e).ranges) {
      if (!reads(range)) continue;
      auto [begin, end] = units(e, range);
      values.insert(values.end(), memory_[e.first].begin() + begin, memory_[e.first].begin() + end);
    }
    return values;
  }

  void begin(Job job) {
    for (std::pair<int, int> e : job.events) {
      job.seen.push_back(read_all(e));
      running_[e.first][at(e).stream] = true;
      // Results appear bit by bit: until the end, what is written holds nothing of use.
      for (const BufferRange& range : at(e).ranges) {
        if (reads(range)) continue;
        auto [from, to] = units(e, range);
        for (int64_t u = from; u < to; u++) memory_[e.first][u] = rng_();
      }
    }
    active_.push_back(std::move(job));
  }

  void finish(const Job& job) {
    bool torn = false;
    for (size_t k = 0; k < job.events.size(); k++) torn = torn || read_all(job.events[k]) != job.seen[k];
    apply(job, torn ? rng_() : 0);
    for (std::pair<int, int> e : job.events) {
      running_[e.first][at(e).stream] = false;
      done_[e.first][e.second] = true;
      queues_[e.first][at(e).stream].pop_back();
    }
  }

  void apply(const Job& job, uint64_t noise) {
    std::pair<int, int> e = job.events[0];
    switch (at(e).opcode) {
      case Opcode::kCompute: return compute(e, noise);
      case Opcode::kSend: return move(e, at(e).ranges[0], job.events[1], at(job.events[1]).ranges[0], noise);
      case Opcode::kCopy: return move(e, at(e).ranges[0], e, at(e).ranges[1], noise);
      case Opcode::kAllReduce: return all_reduce(job, noise);
      case Opcode::kBroadcast: return broadcast(job, noise);
      case Opcode::kZero: return fill(e, 0, [](int64_t) { return 0; });
      case Opcode::kLoadBatch: return load(e);
      case Opcode::kNorm: return norm(e, noise);
      case Opcode::kUpdate: return update(e, noise);
      default: failure_ = "collective without a meaning here";
    }
  }

  template <class Value>
  void fill(std::pair<int, int> e, size_t r, Value value) {
    auto [begin, end] = units(e, at(e).ranges[r]);
    for (int64_t u = begin; u < end; u++) memory_[e.first][u] = value(u - begin);
  }

  void move(std::pair<int, int> from, const BufferRange& source, std::pair<int, int> to, const BufferRange& target, uint64_t noise) {
    auto [a, b] = units(from, source);
    auto [c, d] = units(to, target);
    for (int64_t u = 0; u < std::min(b - a, d - c); u++) memory_[to.first][c + u] = memory_[from.first][a + u] + noise;
  }

  void compute(std::pair<int, int> e, uint64_t noise) {
    const Instruction& instruction = at(e);
    uint64_t h = hash(hash_text(plan_.chunks[instruction.chunk].name), noise);
    if (instruction.share >= 0) {
      const Share& share = plan_.ranks[e.first].shares[instruction.share][instruction.microbatch];
      h = hash(hash(h, share.start), share.count);
    }
    for (const BufferRange& range : instruction.ranges) {
      if (range.access != Access::kRead) continue;
      auto [begin, end] = units(e, range);
      for (int64_t u = begin; u < end; u++) h = hash(h, memory_[e.first][u]);
    }
    for (size_t r = 0; r < instruction.ranges.size(); r++) {
      if (!writes(instruction.ranges[r])) continue;
      auto [begin, end] = units(e, instruction.ranges[r]);
      // What is read and written is accumulated into.
      bool adds = reads(instruction.ranges[r]);
      for (int64_t u = begin; u < end; u++) {
        memory_[e.first][u] = hash(hash(h, r), u - begin) + (adds ? memory_[e.first][u] : 0);
      }
    }
  }

  void all_reduce(const Job& job, uint64_t noise) {
    for (std::pair<int, int> e : job.events) {
      // Bits of one type summed as another are nothing.
      if (program_of(e.first).buffers[at(e).ranges[0].buffer].dtype != at(e).dtype) noise = rng_();
    }
    auto [begin, end] = units(job.events[0], at(job.events[0]).ranges[0]);
    std::vector<uint64_t> sum(static_cast<size_t>(end - begin), noise);
    for (std::pair<int, int> e : job.events) {
      int64_t base = units(e, at(e).ranges[0]).first;
      for (size_t u = 0; u < sum.size(); u++) sum[u] += memory_[e.first][base + static_cast<int64_t>(u)];
    }
    for (std::pair<int, int> e : job.events) fill(e, 0, [&](int64_t u) { return sum[u]; });
  }

  void broadcast(const Job& job, uint64_t noise) {
    for (size_t k = 1; k < job.events.size(); k++) {
      move(job.events[0], at(job.events[0]).ranges[0], job.events[k], at(job.events[k]).ranges[0], noise);
    }
  }

  void load(std::pair<int, int> e) {
    const Instruction& instruction = at(e);
    const Share& share = plan_.ranks[e.first].shares[instruction.share][instruction.microbatch];
    int64_t per_sample = sample_bytes(instruction) / kUnit;
    fill(e, 0, [&](int64_t u) { return hash(hash(static_cast<uint64_t>(instruction.input), share.start + u / per_sample), u % per_sample); });
  }

  void norm(std::pair<int, int> e, uint64_t noise) {
    const std::vector<BufferRange>& ranges = at(e).ranges;
    uint64_t sum = noise;
    for (size_t r = 0; r + 1 < ranges.size(); r++) {
      auto [begin, end] = units(e, ranges[r]);
      for (int64_t u = begin; u < end; u++) sum += memory_[e.first][u] == 0 ? 0 : hash(memory_[e.first][u], 7);
    }
    int64_t stats = units(e, ranges.back()).first;
    uint64_t weight = static_cast<uint64_t>(at(e).scale * 720720);  // divisible by any number of holders here
    for (int64_t u = 0; u < 4; u++) memory_[e.first][stats + u] += sum * (2 * static_cast<uint64_t>(u) + 1) * weight;
  }

  void update(std::pair<int, int> e, uint64_t noise) {
    const std::vector<BufferRange>& ranges = at(e).ranges;
    int64_t stats = units(e, ranges.back()).first;
    uint64_t h = noise;
    for (int64_t u = 0; u < 4; u++) h = hash(h, memory_[e.first][stats + u]);
    for (const UpdateRun& run : plan_.updates[at(e).update].runs) {
      for (int64_t u = run.begin; u < run.end; u++) {
        uint64_t element = hash(h, run.decay);
        for (size_t r = 0; r + 1 < ranges.size(); r++) element = hash(element, memory_[e.first][units(e, ranges[r]).first + u]);
        for (size_t r = 0; r + 1 < ranges.size(); r++) {
          if (r != 1) memory_[e.first][units(e, ranges[r]).first + u] = hash(element, r);
        }
      }
    }
  }

  const Plan& plan_;
  std::mt19937_64 rng_;
  uint64_t seed_;
  std::vector<std::vector<uint64_t>> memory_;
  std::vector<std::vector<std::vector<int>>> queues_;  // [rank][stream], next at the back
  std::vector<std::vector<bool>> running_, done_;
  std::vector<std::vector<uint64_t>> priorities_;
  std::vector<Job> active_;
  std::string failure_;
};

}  // namespace

Outcome interpret(const Plan& plan, uint64_t seed) { return Machine(plan, seed).run(); }

}  // namespace piper::testing
