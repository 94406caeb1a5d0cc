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
#include "verify/wiring.h"

namespace piper::verify {

namespace {

using plan::Access;
using plan::BufferRange;
using plan::Instruction;
using plan::Plan;
using support::Code;

// State that outlives the instructions around it: what is written to it must not be lost.
bool holds_results(plan::BufferKind kind) {
  using enum plan::BufferKind;
  return kind == kGradient || kind == kParameter || kind == kOptimizer || kind == kStats;
}

constexpr int kUnwritten = -1;

struct Segment {
  int64_t end = 0;
  int writer = -1;          // instruction, -1: none in this step
  int writer_range = -1;    // of its ranges
  int buffer = kUnwritten;  // whose content the bytes are
  std::vector<std::pair<int32_t, int32_t>> readers;  // (stream, last instruction on it) since the writer
};

// An effect of an instruction in bytes of the arena.
struct Span {
  int64_t begin = 0, end = 0;
  int buffer = -1;
  Access access = Access::kRead;
  int range = -1;
};

class Sweep {
 public:
  Sweep(const Plan& plan, int rank, const Order& order, Effects& effects, Findings& findings)
      : plan_(plan), rank_(rank), program_(plan.programs[plan.ranks[rank].program]), order_(order), effects_(effects),
        findings_(findings), wiring_(plan, program_) {}

  void run() {
    if (!place_buffers()) return;
    for (size_t i = 0; i < program_.instructions.size(); i++) visit(static_cast<int>(i));
    for (const Miswired& m : wiring_.differences()) {
      findings_.add(Code::E0607, rank_, m.instruction,
                    fmt::format("{} does not use what the same work of another microbatch uses", findings_.name(rank_, m.instruction)),
                    {m.what, "compared with " + findings_.name(rank_, m.example)});
    }
  }

 private:
  using Map = std::map<int64_t, Segment>;

  // Persistent buffers have content from the start (but sums); their bytes are nobody else's.
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
      // Sums begin anew in every step, wherever their buffer lives.
      bool sum = buffer.kind == plan::BufferKind::kGradient || buffer.kind == plan::BufferKind::kStats;
      if (good && buffer.persistent && !sum) replace({buffer.offset, buffer.offset + buffer.bytes, b}, -1);
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

  std::vector<Span> spans_of(int i) const {
    const Instruction& instruction = program_.instructions[i];
    std::vector<Span> spans;
    for (const Effect& effect : effects_.of(rank_, instruction)) {
      const BufferRange& range = instruction.ranges[effect.range];
      int64_t begin = program_.buffers[range.buffer].offset + range_offset(plan_, rank_, instruction, range);
      if (effect.begin < effect.end) {
        spans.push_back({begin + effect.begin, begin + effect.end, range.buffer, effect.access, effect.range});
      }
    }
    return spans;
  }

  // Reads come before writes in the list of effects.
  void visit(int i) {
    std::vector<Span> spans = spans_of(i);
    check_alias(i, spans);
    for (const Span& span : spans) {
      if (span.access == Access::kRead) read(i, span);
      if (span.access == Access::kWrite) write(i, span, reads_too(spans, span));
    }
    wiring_.finish(i);
  }

  // What is written is also read: added to, not replaced.
  static bool reads_too(const std::vector<Span>& spans, const Span& span) {
    return std::any_of(spans.begin(), spans.end(), [&](const Span& s) {
      return s.access == Access::kRead && s.range == span.range && s.begin < span.end && span.begin < s.end;
    });
  }

  // Ranges of one instruction must not overlap where one is written: kernels and transports assume it.
  void check_alias(int i, std::vector<Span> spans) {
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    std::vector<const Span*> open;
    for (const Span& span : spans) {
      std::erase_if(open, [&](const Span* s) { return s->end <= span.begin; });
      for (const Span* other : open) {
        if (other->range == span.range || (other->access == Access::kRead && span.access == Access::kRead)) continue;
        findings_.add(Code::E0605, rank_, i,
                      fmt::format("{} writes bytes that it also uses otherwise", findings_.name(rank_, i)),
                      {use_text(i, *other), use_text(i, span)});
        return;
      }
      open.push_back(&span);
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
    segments_[span.begin] = {span.end, writer, span.range, span.buffer, {}};
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
      } else if (segment.writer >= 0) {
        check_microbatch(i, span, segment.writer);
      }
      wiring_.read(i, span.range, segment.writer, segment.writer_range);
      auto reader = std::find_if(segment.readers.begin(), segment.readers.end(),
                                 [&](const auto& r) { return r.first == program_.instructions[i].stream; });
      if (reader == segment.readers.end()) {
        segment.readers.emplace_back(program_.instructions[i].stream, i);
      } else {
        reader->second = i;
      }
    }
  }

  void write(int i, const Span& span, bool adds) {
    Map::iterator end = cut(span.end);
    for (Map::iterator it = cut(span.begin); it != end; ++it) {
      const Segment& segment = it->second;
      if (segment.writer >= 0 && segment.writer != i && !order_.before(segment.writer, i)) {
        report_race(segment.writer, i, span);
      }
      for (const auto& [stream, reader] : segment.readers) {
        if (reader != i && !order_.before(reader, i)) report_race(reader, i, span);
      }
      if (!adds) check_lost(i, span, segment);
    }
    replace(span, i);
  }

  // Activations of one microbatch never meet those of another; only what is summed over microbatches does.
  void check_microbatch(int i, const Span& span, int writer) {
    int a = program_.instructions[i].microbatch, b = program_.instructions[writer].microbatch;
    if (a < 0 || b < 0 || a == b || holds_results(program_.buffers[span.buffer].kind)) return;
    if (!reported_.emplace(writer, i).second) return;
    findings_.add(Code::E0607, rank_, i, fmt::format("{} reads what belongs to another microbatch", findings_.name(rank_, i)),
                  {findings_.name(rank_, writer) + " wrote it", use_text(i, span)});
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

  // The effect of `i` that overlaps `span`, as text.
  std::string other_use(int i, const Span& span) const {
    for (const Span& other : spans_of(i)) {
      bool conflict = other.access == Access::kWrite || span.access == Access::kWrite;
      if (conflict && other.begin < span.end && span.begin < other.end) return use_text(i, other);
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
  Effects& effects_;
  Findings& findings_;
  Wiring wiring_;
  Map segments_;  // by first byte; they cover the arena
  std::set<std::pair<int, int>> reported_;
};

}  // namespace

void find_races(const Plan& plan, int rank, const Order& order, Effects& effects, Findings& findings) {
  Sweep(plan, rank, order, effects, findings).run();
}

}  // namespace piper::verify
