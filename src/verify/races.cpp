// Any two instructions of a rank that touch the same bytes, one of them writing, are ordered; nothing is read that this
// step has not written (persistent buffers apart), nor after another buffer took its bytes.
//
// A sweep in issue order over the arena, cut into segments that know their last writer and the readers since. Order only
// ever runs from earlier to later instructions, so it is enough to look back; and a writer that comes after the one
// before it comes after all before that. Every write joins segments, so the cost is near linear.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "verify/rules.h"

namespace piper::verify {

namespace {

using plan::Access;
using plan::BufferRange;
using plan::Instruction;
using plan::Plan;
using support::Code;

bool reads(Access access) { return (static_cast<int>(access) & static_cast<int>(Access::kRead)) != 0; }
bool writes(Access access) { return (static_cast<int>(access) & static_cast<int>(Access::kWrite)) != 0; }

// State that outlives the instructions around it: what is written to it must not be lost.
bool holds_results(plan::BufferKind kind) {
  using enum plan::BufferKind;
  return kind == kGradient || kind == kParameter || kind == kOptimizer || kind == kStats;
}

constexpr int kUnwritten = -1;

struct Segment {
  int64_t end = 0;
  int writer = -1;          // instruction, -1: none in this step
  int buffer = kUnwritten;  // whose content the bytes are
  std::vector<std::pair<int32_t, int32_t>> readers;  // (stream, last instruction on it) since the writer
};

// A range of an instruction in bytes of the arena.
struct Span {
  int64_t begin = 0, end = 0;
  int buffer = -1;
  Access access = Access::kRead;
};

class Sweep {
 public:
  Sweep(const Plan& plan, int rank, const Order& order, Findings& findings)
      : plan_(plan), rank_(rank), program_(plan.programs[plan.ranks[rank].program]), order_(order), findings_(findings) {}

  void run() {
    if (!place_buffers()) return;
    for (size_t i = 0; i < program_.instructions.size(); i++) visit(static_cast<int>(i));
  }

 private:
  using Map = std::map<int64_t, Segment>;

  // Persistent buffers have content from the start; their bytes are nobody else's.
  bool place_buffers() {
    std::vector<int> by_offset;
    for (size_t b = 0; b < program_.buffers.size(); b++) {
      if (program_.buffers[b].bytes > 0) by_offset.push_back(static_cast<int>(b));
    }
    std::sort(by_offset.begin(), by_offset.end(), [&](int a, int b) {
      return std::pair(program_.buffers[a].offset, a) < std::pair(program_.buffers[b].offset, b);
    });
    bool good = true;
    // The buffer, and the persistent one, that reach furthest so far.
    int furthest = -1, persistent = -1;
    auto reach = [&](int b) { return b < 0 ? 0 : program_.buffers[b].offset + program_.buffers[b].bytes; };
    for (int b : by_offset) {
      const plan::Buffer& buffer = program_.buffers[b];
      int other = buffer.persistent ? furthest : persistent;
      if (other >= 0 && reach(other) > buffer.offset) good = report_overlap(other, b);
      if (reach(b) > reach(furthest)) furthest = b;
      if (buffer.persistent && reach(b) > reach(persistent)) persistent = b;
    }
    segments_[0] = {program_.arena_bytes};
    for (int b : by_offset) {
      const plan::Buffer& buffer = program_.buffers[b];
      if (good && buffer.persistent) replace({buffer.offset, buffer.offset + buffer.bytes, b}, -1);
    }
    return good;
  }

  bool report_overlap(int a, int b) {
    const plan::Buffer& x = program_.buffers[a];
    const plan::Buffer& y = program_.buffers[b];
    findings_.add(Code::E0605, rank_, -1,
                  fmt::format("buffers `{}` and `{}` share bytes, and one of them lives across steps", x.name, y.name),
                  {fmt::format("`{}` has bytes {} to {} of the arena of program `{}`", x.name, x.offset, x.offset + x.bytes, program_.name),
                   fmt::format("`{}` has bytes {} to {}", y.name, y.offset, y.offset + y.bytes)});
    return false;
  }

  Span span_of(const Instruction& instruction, const BufferRange& range) const {
    int64_t begin = program_.buffers[range.buffer].offset + range_offset(plan_, rank_, instruction, range);
    return {begin, begin + range_bytes(plan_, rank_, instruction, range), range.buffer, range.access};
  }

  void visit(int i) {
    const Instruction& instruction = program_.instructions[i];
    std::vector<Span> spans;
    for (const BufferRange& range : instruction.ranges) {
      Span span = span_of(instruction, range);
      if (span.end > span.begin) spans.push_back(span);
    }
    check_alias(i, spans);
    for (const Span& span : spans) {
      if (reads(span.access)) read(i, span);
    }
    for (const Span& span : spans) {
      if (writes(span.access)) write(i, span);
    }
  }

  // Ranges of one instruction must not overlap where one is written: kernels and transports assume it.
  void check_alias(int i, std::vector<Span> spans) {
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    const Span* furthest = nullptr;
    const Span* furthest_written = nullptr;
    for (const Span& span : spans) {
      const Span* other = writes(span.access) ? furthest : furthest_written;
      if (other && other->end > span.begin) {
        findings_.add(Code::E0605, rank_, i,
                      fmt::format("{} writes bytes that it also uses otherwise", findings_.name(rank_, i)),
                      {use_text(i, *other), use_text(i, span)});
        return;
      }
      if (!furthest || span.end > furthest->end) furthest = &span;
      if (writes(span.access) && (!furthest_written || span.end > furthest_written->end)) furthest_written = &span;
    }
  }

  // First segment that overlaps [begin, ...), cut so that it starts there.
  Map::iterator cut(int64_t at) {
    auto it = std::prev(segments_.upper_bound(at));
    if (it->first == at || at >= it->second.end) return it->first == at ? it : std::next(it);
    Segment tail = it->second;
    it->second.end = at;
    return segments_.emplace_hint(std::next(it), at, std::move(tail));
  }

  void replace(const Span& span, int writer) {
    Map::iterator begin = cut(span.begin);
    Map::iterator end = cut(span.end);
    segments_.erase(begin, end);
    segments_[span.begin] = {span.end, writer, span.buffer, {}};
  }

  void read(int i, const Span& span) {
    Map::iterator end = cut(span.end);
    bool told = false;
    for (Map::iterator it = cut(span.begin); it != end; ++it) {
      Segment& segment = it->second;
      if (segment.writer >= 0 && segment.writer != i && !order_.before(segment.writer, i)) {
        report_race(segment.writer, i, span);
      } else if (!told && segment.buffer != span.buffer) {
        told = true;
        report_content(i, span, it->first, segment);
      }
      auto reader = std::find_if(segment.readers.begin(), segment.readers.end(),
                                 [&](const auto& r) { return r.first == program_.instructions[i].stream; });
      if (reader == segment.readers.end()) {
        segment.readers.emplace_back(program_.instructions[i].stream, i);
      } else {
        reader->second = i;
      }
    }
  }

  void write(int i, const Span& span) {
    Map::iterator end = cut(span.end);
    for (Map::iterator it = cut(span.begin); it != end; ++it) {
      const Segment& segment = it->second;
      if (segment.writer >= 0 && segment.writer != i && !order_.before(segment.writer, i)) {
        report_race(segment.writer, i, span);
      }
      for (const auto& [stream, reader] : segment.readers) {
        if (reader != i && !order_.before(reader, i)) report_race(reader, i, span);
      }
      if (!reads(span.access)) check_lost(i, span, segment);
    }
    replace(span, i);
  }

  // An accumulated value that is overwritten before anything has read it.
  void check_lost(int i, const Span& span, const Segment& segment) {
    bool lost = segment.writer >= 0 && segment.writer != i && segment.readers.empty() && segment.buffer == span.buffer &&
                holds_results(program_.buffers[span.buffer].kind) &&
                program_.instructions[segment.writer].opcode != plan::Opcode::kZero;
    if (!lost || !reported_.emplace(segment.writer, i).second) return;
    findings_.add(Code::E0607, rank_, i,
                  fmt::format("{} overwrites a result that nothing has read", findings_.name(rank_, i)),
                  {findings_.name(rank_, segment.writer) + " wrote it", use_text(i, span)});
  }

  std::string use_text(int i, const Span& span) const {
    const char* verbs[] = {"", "reads", "writes", "changes"};
    return fmt::format("instruction {} {} `{}`, bytes {} to {} of the arena", i, verbs[static_cast<size_t>(span.access)],
                       program_.buffers[span.buffer].name, span.begin, span.end);
  }

  void report_content(int i, const Span& span, int64_t at, const Segment& segment) {
    std::string name = program_.buffers[span.buffer].name;
    if (segment.buffer == kUnwritten) {
      findings_.add(Code::E0605, rank_, i,
                    fmt::format("{} reads bytes of `{}` that nothing has written in this step", findings_.name(rank_, i), name),
                    {use_text(i, span), fmt::format("byte {} of the arena is the first that is not written", at)});
      return;
    }
    std::vector<std::string> notes = {use_text(i, span)};
    if (segment.writer >= 0) notes.push_back(findings_.name(rank_, segment.writer) + " wrote them last");
    findings_.add(Code::E0605, rank_, i,
                  fmt::format("{} reads `{}`, but its bytes have become those of `{}`", findings_.name(rank_, i), name,
                              program_.buffers[segment.buffer].name),
                  std::move(notes));
  }

  // The range of `i` that overlaps `span`, as text.
  std::string other_use(int i, const Span& span) const {
    const Instruction& instruction = program_.instructions[i];
    for (const BufferRange& range : instruction.ranges) {
      Span other = span_of(instruction, range);
      if (other.begin < span.end && span.begin < other.end) return use_text(i, other);
    }
    return fmt::format("instruction {}", i);
  }

  void report_race(int earlier, int later, const Span& span) {
    if (!reported_.emplace(earlier, later).second) return;
    const std::string& stream = program_.streams[program_.instructions[earlier].stream].name;
    int last = order_.last_before(program_.instructions[earlier].stream, later);
    std::string known = last < 0 ? fmt::format("instruction {} comes after nothing on `{}`", later, stream)
                                 : fmt::format("the last on `{}` that instruction {} comes after is instruction {}", stream, later, last);
    findings_.add(Code::E0605, rank_, later,
                  fmt::format("{} and {} touch the same bytes and nothing orders them", findings_.name(rank_, earlier),
                              findings_.name(rank_, later)),
                  {other_use(earlier, span), use_text(later, span), known,
                   fmt::format("a wait of instruction {} for instruction {} would order them", later, earlier)});
  }

  const Plan& plan_;
  int rank_;
  const plan::Program& program_;
  const Order& order_;
  Findings& findings_;
  Map segments_;  // by first byte; they cover the arena
  std::set<std::pair<int, int>> reported_;
};

}  // namespace

void find_races(const Plan& plan, int rank, const Order& order, Findings& findings) {
  Sweep(plan, rank, order, findings).run();
}

}  // namespace piper::verify
