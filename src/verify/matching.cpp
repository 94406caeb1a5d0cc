// Every receive has one send with the same name, type and size; every collective is the same on all members.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "verify/rules.h"

namespace piper::verify {

namespace {

using plan::Instruction;
using plan::Opcode;
using plan::Plan;
using support::Code;

const Instruction& at(const Plan& plan, Event event) {
  return plan.programs[plan.ranks[event.rank].program].instructions[event.instruction];
}

int64_t bytes_of(const Plan& plan, Event event, size_t range) {
  const Instruction& instruction = at(plan, event);
  return range_bytes(plan, event.rank, instruction, instruction.ranges[range]);
}

struct Message {
  int32_t source, destination, tag;
  bool receive;
  Event event;
  auto channel() const { return std::tie(source, destination, tag); }
};

bool is_collective(Opcode opcode) { return opcode >= Opcode::kAllReduce && opcode <= Opcode::kBroadcast; }

std::string channel_text(const Message& m) {
  return fmt::format("from rank {} to rank {} with tag {}", m.source, m.destination, m.tag);
}

// What differs between two sides that have to agree, as text; empty when nothing does.
std::string difference(const Plan& plan, Event a, Event b) {
  const Instruction& x = at(plan, a);
  const Instruction& y = at(plan, b);
  if (x.tensor != y.tensor) return fmt::format("tensor `{}` against `{}`", x.tensor, y.tensor);
  if (x.microbatch != y.microbatch) return fmt::format("microbatch {} against {}", x.microbatch, y.microbatch);
  if (x.dtype != y.dtype) return fmt::format("{} against {}", ir::dtype_name(x.dtype), ir::dtype_name(y.dtype));
  if (x.row_bytes != y.row_bytes) return fmt::format("rows of {} bytes against {}", x.row_bytes, y.row_bytes);
  // Of counted rows everybody may have another number.
  for (size_t r = x.row_bytes > 0 ? 2 : 0; r < std::min(x.ranges.size(), y.ranges.size()); r++) {
    int64_t p = bytes_of(plan, a, r), q = bytes_of(plan, b, r);
    if (p != q) return fmt::format("{} bytes against {}", p, q);
  }
  return "";
}

class Matcher {
 public:
  Matcher(const Plan& plan, const std::vector<Order>& orders, Findings& findings)
      : plan_(plan), orders_(orders), findings_(findings), calls_(plan.groups.size()) {}

  Matches run() {
    matches_.of.resize(plan_.ranks.size());
    for (size_t r = 0; r < plan_.ranks.size(); r++) collect(static_cast<int>(r));
    match_messages();
    for (size_t g = 0; g < calls_.size(); g++) match_group(g);
    check_concurrency();
    return std::move(matches_);
  }

 private:
  void collect(int r) {
    const plan::RankEntry& rank = plan_.ranks[r];
    const plan::Program& program = plan_.programs[rank.program];
    matches_.of[r].assign(program.instructions.size(), -1);
    for (size_t i = 0; i < program.instructions.size(); i++) {
      const Instruction& instruction = program.instructions[i];
      Event event{r, static_cast<int>(i)};
      if (instruction.opcode == Opcode::kSend) {
        messages_.push_back({r, rank.peers[instruction.peer], instruction.tag, false, event});
      } else if (instruction.opcode == Opcode::kRecv) {
        messages_.push_back({rank.peers[instruction.peer], r, instruction.tag, true, event});
      } else if (is_collective(instruction.opcode)) {
        // Ranks come in ascending order, so each member's calls are one run of the list.
        calls_[rank.groups[instruction.group]].push_back(event);
      }
    }
  }

  void join(std::vector<Event> events) {
    for (Event event : events) matches_.of[event.rank][event.instruction] = static_cast<int32_t>(matches_.together.size());
    matches_.together.push_back(std::move(events));
  }

  void match_messages() {
    std::stable_sort(messages_.begin(), messages_.end(), [](const Message& a, const Message& b) {
      return std::tie(a.source, a.destination, a.tag, a.receive) < std::tie(b.source, b.destination, b.tag, b.receive);
    });
    for (size_t i = 0; i < messages_.size();) {
      size_t end = i;
      while (end < messages_.size() && messages_[end].channel() == messages_[i].channel()) end++;
      match_channel(i, end);
      i = end;
    }
  }

  // All messages of one channel: has to be one send and one receive.
  void match_channel(size_t begin, size_t end) {
    const Message& first = messages_[begin];
    if (end - begin == 1) {
      findings_.add(Code::E0602, first.event.rank, first.event.instruction,
                    findings_.name(first.event.rank, first.event.instruction) + " has no matching " +
                        (first.receive ? "send" : "recv"),
                    {fmt::format("rank {} has no {} {}", first.receive ? first.source : first.destination,
                                 first.receive ? "send" : "recv", channel_text(first))});
      return;
    }
    const Message& second = messages_[begin + 1];
    if (end - begin > 2 || first.receive == second.receive) {
      std::vector<std::string> notes;
      for (size_t i = begin; i < end; i++) notes.push_back(findings_.name(messages_[i].event.rank, messages_[i].event.instruction));
      findings_.add(Code::E0602, second.event.rank, second.event.instruction,
                    "the channel " + channel_text(first) + " is used more than once in a step", std::move(notes));
      return;
    }
    std::string differs = difference(plan_, first.event, second.event);
    if (!differs.empty()) {
      findings_.add(Code::E0602, second.event.rank, second.event.instruction,
                    "a send and its receive disagree: " + differs,
                    {findings_.name(first.event.rank, first.event.instruction),
                     findings_.name(second.event.rank, second.event.instruction)});
    }
    join({first.event, second.event});
  }

  void match_group(size_t g) {
    const std::vector<Event>& calls = calls_[g];
    if (calls.empty()) return;
    std::vector<std::vector<Event>> by_member;
    for (int32_t rank : plan_.groups[g].ranks) {
      auto begin = std::lower_bound(calls.begin(), calls.end(), rank, [](Event e, int32_t r) { return e.rank < r; });
      auto end = std::upper_bound(begin, calls.end(), rank, [](int32_t r, Event e) { return r < e.rank; });
      by_member.emplace_back(begin, end);
    }
    for (size_t m = 1; m < by_member.size(); m++) {
      if (!same_calls(g, by_member[0], by_member[m], plan_.groups[g].ranks[m])) return;
    }
    for (size_t k = 0; k < by_member[0].size(); k++) {
      check_parts(g, by_member[0][k]);
      std::vector<Event> together;
      for (const std::vector<Event>& member : by_member) together.push_back(member[k]);
      join(std::move(together));
    }
  }

  bool same_calls(size_t g, const std::vector<Event>& a, const std::vector<Event>& b, int32_t other) {
    for (size_t k = 0; k < std::min(a.size(), b.size()); k++) {
      const Instruction& x = at(plan_, a[k]);
      const Instruction& y = at(plan_, b[k]);
      std::string differs = difference(plan_, a[k], b[k]);
      if (x.opcode != y.opcode) differs = opcode_name(x.opcode) + " against " + opcode_name(y.opcode);
      if (differs.empty() && x.tag != y.tag) differs = fmt::format("tag {} against {}", x.tag, y.tag);
      if (differs.empty()) continue;
      findings_.add(Code::E0603, b[k].rank, b[k].instruction,
                    fmt::format("collective {} of group `{}` differs between its members: {}", k, plan_.groups[g].name, differs),
                    {findings_.name(a[k].rank, a[k].instruction), findings_.name(b[k].rank, b[k].instruction)});
      return false;
    }
    if (a.size() == b.size()) return true;
    Event more = a.size() > b.size() ? a[b.size()] : b[a.size()];
    findings_.add(Code::E0603, more.rank, more.instruction,
                  fmt::format("the members of group `{}` run different numbers of collectives: rank {} runs {}, rank {} runs {}",
                              plan_.groups[g].name, plan_.groups[g].ranks[0], a.size(), other, b.size()),
                  {findings_.name(more.rank, more.instruction) + " waits for a member that never comes"});
    return false;
  }

  // The part of a member times their number is the whole.
  void check_parts(size_t g, Event event) {
    const Instruction& instruction = at(plan_, event);
    int64_t members = static_cast<int64_t>(plan_.groups[g].ranks.size());
    int64_t first = bytes_of(plan_, event, 0);
    int64_t second = instruction.ranges.size() > 1 ? bytes_of(plan_, event, 1) : first;
    bool fits = true;
    if (instruction.opcode == Opcode::kReduceScatter) fits = first == second * members;
    if (instruction.opcode == Opcode::kAllGather) fits = first * members == second;
    if (instruction.opcode == Opcode::kAllToAll) {
      const size_t tables = instruction.row_bytes > 0 ? 2 : 0;  // the ranges that have an equal part for each member
      first = bytes_of(plan_, event, tables);
      second = bytes_of(plan_, event, tables + 1);
      fits = first == second && first % (8 * members) == 0;
    }
    if (instruction.opcode == Opcode::kAllReduce || instruction.opcode == Opcode::kReduceScatter) {
      fits = fits && second % ir::dtype_size(instruction.dtype) == 0;
    }
    if (fits) return;
    findings_.add(Code::E0603, event.rank, event.instruction,
                  fmt::format("the sizes of a {} over {} ranks do not fit: {} and {} bytes", opcode_name(instruction.opcode),
                              members, first, second),
                  {findings_.name(event.rank, event.instruction)});
  }

  // Transports tell concurrent collectives of a group apart by their tags alone.
  void check_concurrency() {
    std::vector<bool> seen(plan_.programs.size(), false);
    for (size_t r = 0; r < plan_.ranks.size(); r++) {
      const plan::RankEntry& rank = plan_.ranks[r];
      if (seen[rank.program]) continue;
      seen[rank.program] = true;
      const std::vector<Instruction>& instructions = plan_.programs[rank.program].instructions;
      std::map<std::pair<int32_t, int32_t>, int> last;
      for (size_t i = 0; i < instructions.size(); i++) {
        const Instruction& instruction = instructions[i];
        if (!is_collective(instruction.opcode)) continue;
        auto [it, fresh] = last.emplace(std::pair(rank.groups[instruction.group], instruction.tag), static_cast<int>(i));
        if (fresh) continue;
        int earlier = std::exchange(it->second, static_cast<int>(i));
        if (orders_[rank.program].before(earlier, static_cast<int>(i))) continue;
        findings_.add(Code::E0603, static_cast<int>(r), static_cast<int>(i),
                      "two collectives of one group with equal tags may run at once",
                      {findings_.name(static_cast<int>(r), earlier), findings_.name(static_cast<int>(r), static_cast<int>(i))});
      }
    }
  }

  const Plan& plan_;
  const std::vector<Order>& orders_;
  Findings& findings_;
  std::vector<Message> messages_;
  std::vector<std::vector<Event>> calls_;  // per group
  Matches matches_;
};

}  // namespace

Matches match(const Plan& plan, const std::vector<Order>& orders, Findings& findings) {
  return Matcher(plan, orders, findings).run();
}

}  // namespace piper::verify
