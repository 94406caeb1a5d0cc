// A piece of a parameter lives in cells: bytes of a buffer on a rank. Instructions that move or sum data tie cells
// together; starting from the parameter's homes and its updates, all of them are found. Then the step runs on
// fingerprints: the old value, the new value, and a random number for every contribution, which sums add up.
#include "verify/flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "plan/check.h"

namespace piper::verify {

namespace {

using plan::BufferRange;
using plan::Instruction;
using plan::Opcode;
using plan::Plan;
using support::Code;

struct Cell {
  int rank = -1;
  int buffer = -1;
  int64_t at = 0;
  friend auto operator<=>(const Cell&, const Cell&) = default;
};

struct Content {
  uint64_t value = 0;
  bool of_parameter = false;  // else of a gradient
};

using Homes = std::vector<std::pair<int, const plan::ParamHome*>>;  // (rank, home) of a parameter

bool is_collective(Opcode opcode) { return opcode >= Opcode::kAllReduce && opcode <= Opcode::kBroadcast; }

class Flow {
 public:
  // Bytes [begin, end) of the parameter.
  Flow(const Plan& plan, const Matches& matches, Effects& effects, Accounts& accounts, const Exchanges& exchanges, Findings& findings,
       int param, const Homes& homes, int64_t begin, int64_t end, int contributions)
      : plan_(plan), matches_(matches), effects_(effects), accounts_(accounts), exchanges_(exchanges), findings_(findings), param_(plan.params[param]),
        begin_(begin), bytes_(end - begin), contributions_(contributions) {
    name_ = (param_.statistics ? "the contributions to `" : "the gradient of `") + param_.name + "`";
    find_homes(homes);
    find_gradients();
    close();
  }

  // Stops at the first thing that is wrong: what follows from it says nothing new.
  void check() {
    for (const auto& [cell, content] : cells_) {
      if (std::optional<int> part = touched_partly(cell)) {
        report(cell.rank, *part, fmt::format("{} touches only a part of {}", findings_.name(cell.rank, *part),
                                             content.of_parameter ? "`" + param_.name + "`" : name_));
        return;
      }
    }
    if (!check_samples()) return;
    run();
    if (!wrong_) check_end();
    if (!wrong_ && !gradients_.empty()) check_norm();
  }

 private:
  static constexpr uint64_t kOld = 0x6f6c64, kNew = 0x6e6577;

  const plan::Program& program(int rank) const { return plan_.programs[plan_.ranks[rank].program]; }
  const Instruction& at(Event e) const { return program(e.rank).instructions[e.instruction]; }
  const std::vector<int>& touching(const Cell& cell) const { return accounts_.touching(plan_.ranks[cell.rank].program, cell.buffer); }
  bool inside(const BufferRange& range, const Cell& cell) const {
    return range.buffer == cell.buffer && range.offset <= cell.at && cell.at + bytes_ <= range.offset + range.fixed;
  }

  // ---- The cells ----

  void add(const Cell& cell, Content content) {
    if (cells_.try_emplace(cell, content).second) open_.push_back(cell);
  }
  // Something else is in it until it is written.
  void add(const Cell& cell, bool of_parameter) { add(cell, {fingerprint(cell.rank, -1 - cell.buffer), of_parameter}); }

  void find_homes(const Homes& homes) {
    for (const auto& [rank, home] : homes) {
      int64_t at = home->offset + begin_;
      if (home->segment >= 0) {
        const plan::Segment& segment = plan_.ranks[rank].segments[home->segment];
        at -= segment.start * 4;
        if (at < 0 || at >= segment.count * 4) continue;
      }
      add({rank, home->buffer, at}, Content{kOld, true});
      homes_.insert({rank, home->buffer, at});
    }
  }

  // Updates pair values with gradients.
  void find_gradients() {
    for (const Cell& home : homes_) {
      for (int i : touching(home)) {
        const Instruction& update = at({home.rank, i});
        if (update.opcode != Opcode::kUpdate || !inside(update.ranges[0], home)) continue;
        updated_ = true;
        const Cell gradient{home.rank, update.ranges[1].buffer, home.at - update.ranges[0].offset + update.ranges[1].offset};
        add(gradient, false);
        gradients_.insert(gradient);
      }
    }
  }

  void close() {
    while (!open_.empty()) {
      const Cell cell = open_.back();
      open_.pop_back();
      for (int i : touching(cell)) {
        const Instruction& in = at({cell.rank, i});
        for (size_t r = 0; r < in.ranges.size(); r++) {
          if (inside(in.ranges[r], cell)) tie(cell, i, static_cast<int>(r));
        }
      }
    }
    for (const auto& [cell, content] : cells_) {
      std::set<int>& list = work_[cell.rank];
      for (int i : touching(cell)) list.insert(i);
    }
  }

  void tie(const Cell& cell, int i, int r) {
    const Instruction& in = at({cell.rank, i});
    const int64_t byte = cell.at - in.ranges[r].offset;
    const bool of_parameter = cells_.at(cell).of_parameter;
    if (in.opcode == Opcode::kCopy || in.opcode == Opcode::kAdd) {
      const BufferRange& other = in.ranges[1 - r];
      add({cell.rank, other.buffer, other.offset + byte}, of_parameter);
    }
    if (!is_collective(in.opcode) || matches_.of[cell.rank][i] < 0) return;
    for (const auto& [member, range, at] : tied(in, matches_.together[matches_.of[cell.rank][i]], cell.rank, r, byte)) {
      const BufferRange& other = this->at(member).ranges[range];
      add({member.rank, other.buffer, other.offset + at}, of_parameter);
    }
  }

  // Of a collective: the bytes that have to do with a byte of range `r` of one member.
  struct Tied {
    Event member;
    int range;
    int64_t at;
  };

  std::vector<Tied> tied(const Instruction& in, const std::vector<Event>& members, int rank, int r, int64_t byte) const {
    std::vector<Tied> out;
    if (in.opcode == Opcode::kAllReduce || in.opcode == Opcode::kBroadcast) {
      for (Event m : members) out.push_back({m, 0, byte});
    } else if (in.opcode == Opcode::kReduceScatter || in.opcode == Opcode::kAllGather) {
      // One range has a part, the other all of them, in the order of the members.
      const int whole = in.opcode == Opcode::kReduceScatter ? 0 : 1, part = 1 - whole;
      const int64_t size = in.ranges[part].fixed;
      const auto self = std::find_if(members.begin(), members.end(), [&](Event m) { return m.rank == rank; });
      const int64_t slot = r == whole ? byte / size : self - members.begin(), x = r == whole ? byte % size : byte;
      if (x + bytes_ > size) return out;  // found to be touched partly
      out.push_back({members[static_cast<size_t>(slot)], part, x});
      for (Event m : members) out.push_back({m, whole, slot * size + x});
    }
    return out;
  }

  // An instruction that uses some of a cell's bytes only.
  std::optional<int> touched_partly(const Cell& cell) {
    for (int i : touching(cell)) {
      const Instruction& in = at({cell.rank, i});
      auto crosses = [&](int64_t begin, int64_t end) {
        return begin < cell.at + bytes_ && cell.at < end && (begin > cell.at || end < cell.at + bytes_);
      };
      for (const Effect& e : effects_.of(cell.rank, in)) {
        const BufferRange& range = in.ranges[e.range];
        if (range.buffer == cell.buffer && crosses(range.offset + e.begin, range.offset + e.end)) return i;
      }
    }
    return std::nullopt;
  }

  // ---- The step ----

  struct Uses {
    bool reads = false, writes = false;
    int adds = 0;  // kernel outputs that accumulate
  };

  Uses uses(const Cell& cell, const Instruction& in) {
    Uses out;
    auto here = [&](const Effect& e) {
      const BufferRange& range = in.ranges[e.range];
      return range.buffer == cell.buffer && range.offset + e.begin < cell.at + bytes_ && cell.at < range.offset + e.end;
    };
    for (const Effect& e : effects_.of(cell.rank, in)) {
      if (here(e)) (e.access == plan::Access::kRead ? out.reads : out.writes) = true;
    }
    if (in.opcode != Opcode::kCompute || !out.writes) return out;
    for (const Effect& e : effects_.outputs_of(in.chunk)) out.adds += here(e) ? 1 : 0;
    return out;
  }

  // Kernels accumulate every sample of every microbatch as often as the contract has contributions.
  bool check_samples() {
    if (gradients_.empty()) return true;
    std::vector<Coverage> coverage(accounts_.microbatches().size());
    const auto add_share = [&](int rank, const Instruction& in) {
      const plan::Share& share = plan_.ranks[rank].shares[in.share][in.microbatch];
      coverage[in.microbatch].add({share.start, share.start + share.count});
    };
    std::map<std::tuple<int, int, int>, std::vector<Event>> from_others;  // by group, chunk and microbatch
    for (const auto& [cell, content] : cells_) {
      if (content.of_parameter) continue;
      for (int i : touching(cell)) {
        const Instruction& in = at({cell.rank, i});
        if (in.opcode != Opcode::kCompute) continue;
        const Uses u = uses(cell, in);
        for (int k = 0; k < u.adds; k++) total_ += fingerprint(cell.rank, i);
        if (u.adds == 0 || in.share < 0) continue;
        const int group = group_of(cell.rank, i);
        for (int k = 0; k < u.adds; k++) {
          if (group < 0) add_share(cell.rank, in);
          else from_others[{group, in.chunk, in.microbatch}].push_back({cell.rank, i});
        }
      }
    }
    for (const auto& [key, adds] : from_others) {
      const std::vector<int32_t>& members = plan_.groups[std::get<0>(key)].ranks;
      // Everybody adds what came to it, and each row came to one; or who has the piece adds all rows that it is for.
      const bool alone = std::all_of(adds.begin(), adds.end(), [&](Event e) { return e.rank == adds[0].rank; });
      for (Event e : adds) {
        if (!alone) add_share(e.rank, at(e));
        for (size_t m = 0; alone && m < members.size(); m++) {
          if (!owns(e, m)) continue;
          for (int32_t member : members) add_share(member, at(e));
        }
      }
    }
    for (size_t m = 0; m < coverage.size(); m++) {
      const std::string wrong = coverage[m].differs(accounts_.microbatches()[m], contributions_);
      if (wrong.empty()) continue;
      report(-1, -1, fmt::format("{} does not get every sample as often as it should: microbatch {} has samples {}", name_, m, wrong));
      return false;
    }
    return true;
  }

  // The group that a computation got its rows from, -1 when they are its own.
  int group_of(int rank, int i) const {
    const int from = exchanges_.origin(plan_.ranks[rank].program, i).instruction;
    return from < 0 ? -1 : plan_.ranks[rank].groups[at({rank, from}).group];
  }

  // Whether the rank of a computation is member m of the group that it got rows from, and this piece of the parameter is
  // of the indices that rows to member m are for.
  bool owns(Event e, size_t m) const {
    if (plan_.groups[group_of(e.rank, e.instruction)].ranks[m] != e.rank || param_.shape.empty()) return false;
    const int64_t each = exchanges_.origin(plan_.ranks[e.rank].program, e.instruction).counts;
    const int64_t slice = plan::tensor_bytes(param_.dtype, {param_.shape.begin() + 1, param_.shape.end()});
    if (slice <= 0 || each <= 0) return false;
    const int64_t first = begin_ / slice / each, last = (begin_ + bytes_ - 1) / slice / each;
    return first == static_cast<int64_t>(m) && last == first;
  }

  // Every rank runs to its next collective; one that all members wait in lets them go on.
  void run() {
    std::map<int, std::pair<std::set<int>::const_iterator, std::set<int>::const_iterator>> next;
    std::vector<int> ready;
    for (const auto& [rank, list] : work_) {
      next[rank] = {list.begin(), list.end()};
      ready.push_back(rank);
    }
    auto waits = [&](Event e) {
      const auto it = next.find(e.rank);
      return it == next.end() || (it->second.first != it->second.second && *it->second.first == e.instruction);
    };
    while (!ready.empty() && !wrong_) {
      const int rank = ready.back();
      ready.pop_back();
      auto& [it, end] = next[rank];
      while (it != end && !wrong_) {
        const Event event{rank, *it};
        const int32_t match = is_collective(at(event).opcode) ? matches_.of[rank][event.instruction] : -1;
        if (match < 0 || !involves(matches_.together[match])) {
          step(event);
          ++it;
          continue;
        }
        const std::vector<Event>& members = matches_.together[match];
        if (!std::all_of(members.begin(), members.end(), waits)) break;
        meet(members);
        for (Event m : members) {
          if (m.rank == rank || !next.count(m.rank)) continue;
          ++next[m.rank].first;
          ready.push_back(m.rank);
        }
        ++it;
      }
    }
  }

  // Calls `visit(cell, content)` for the cells of a rank in a buffer.
  template <class Visit>
  void visit_cells(int rank, int buffer, const Visit& visit) {
    for (auto it = cells_.lower_bound({rank, buffer, INT64_MIN}); it != cells_.end() && it->first.rank == rank && it->first.buffer == buffer; ++it) {
      visit(it->first, it->second);
    }
  }

  bool involves(const std::vector<Event>& members) {
    bool any = false;
    for (Event m : members) {
      for (const BufferRange& range : at(m).ranges) {
        visit_cells(m.rank, range.buffer, [&](const Cell& cell, const Content&) { any = any || inside(range, cell); });
      }
    }
    return any;
  }

  // The cell of a rank at a byte of a range; nullptr where none is.
  Content* content(int rank, const BufferRange& range, int64_t byte) {
    const auto it = cells_.find({rank, range.buffer, range.offset + byte});
    return it == cells_.end() ? nullptr : &it->second;
  }

  uint64_t value(int rank, const BufferRange& range, int64_t byte) {
    const Content* c = content(rank, range, byte);
    return c ? c->value : fingerprint(rank, -1);
  }

  // What a collective leaves at a byte of the range that member `self` writes.
  uint64_t outcome(const std::vector<Event>& members, size_t self, const BufferRange& range, int64_t byte) {
    const Instruction& first = at(members[0]);
    if (first.opcode == Opcode::kBroadcast) return value(members[0].rank, first.ranges[0], byte);
    if (first.opcode == Opcode::kAllGather) {
      const int64_t size = first.ranges[0].fixed;
      const Event from = members[static_cast<size_t>(byte / size)];
      return value(from.rank, at(from).ranges[0], byte % size);
    }
    if (first.opcode == Opcode::kReduceScatter) byte += static_cast<int64_t>(self) * range.fixed;
    uint64_t sum = 0;
    for (Event m : members) sum += value(m.rank, at(m).ranges[0], byte);
    return sum;
  }

  void meet(const std::vector<Event>& members) {
    const Opcode opcode = at(members[0]).opcode;
    const size_t written = opcode == Opcode::kAllReduce || opcode == Opcode::kBroadcast ? 0 : 1;
    std::vector<std::pair<Content*, uint64_t>> set;
    for (size_t m = 0; m < members.size(); m++) {
      const BufferRange& range = at(members[m]).ranges[written];
      visit_cells(members[m].rank, range.buffer, [&](const Cell& cell, Content& content) {
        if (inside(range, cell)) set.emplace_back(&content, outcome(members, m, range, cell.at - range.offset));
      });
    }
    for (const auto& [content, now] : set) content->value = now;
  }

  void step(Event event) {
    const Instruction& in = at(event);
    if (in.opcode == Opcode::kUpdate) return update(event);
    if (in.opcode == Opcode::kCopy || in.opcode == Opcode::kAdd) return move(event);
    std::set<int> buffers;
    for (const BufferRange& range : in.ranges) buffers.insert(range.buffer);
    for (int buffer : buffers) {
      visit_cells(event.rank, buffer, [&](const Cell& cell, Content& content) {
        if (!wrong_) use(event, cell, &content);
      });
    }
  }

  void use(Event event, const Cell& cell, Content* content) {
    const Instruction& in = at(event);
    const Uses u = uses(cell, in);
    if (u.writes && in.opcode == Opcode::kZero) {
      content->value = 0;
    } else if (u.writes && u.reads && in.opcode == Opcode::kCompute) {
      content->value += static_cast<uint64_t>(u.adds) * fingerprint(event.rank, event.instruction);
    } else if (u.writes) {
      content->value = fingerprint(event.rank, event.instruction);
    } else if (!u.reads) {
      return;
    } else if (content->of_parameter) {
      if (content->value != kOld) misread(event, content->value);
    } else if (in.opcode == Opcode::kNorm) {
      norm(event, content->value);
    } else if (content->value != total_) {
      incomplete(event);
    }
  }

  void move(Event event) {
    const Instruction& in = at(event);
    const BufferRange& to = in.ranges[1];
    visit_cells(event.rank, to.buffer, [&](const Cell& cell, Content& content) {
      if (!inside(to, cell)) return;
      const uint64_t moved = value(event.rank, in.ranges[0], cell.at - to.offset);
      content.value = in.opcode == Opcode::kAdd ? content.value + moved : moved;
    });
  }

  void misread(Event event, uint64_t now) {
    report(event.rank, event.instruction,
           fmt::format("{} reads {} of `{}`", findings_.name(event.rank, event.instruction),
                       now == kNew ? "the new value" : "something else than the value", param_.name));
  }

  void norm(Event event, uint64_t now) {
    normed_ += at(event).scale;
    if (plan_.clip_norm <= 0 && !plan_.skip_nonfinite) return;
    if (now != total_) incomplete(event);
  }

  void incomplete(Event event) {
    report(event.rank, event.instruction,
           fmt::format("{} is not the sum of all contributions, each once, where {} leaves or uses it", name_,
                       findings_.name(event.rank, event.instruction)),
           {"a contribution is missing or comes too late, a reduction is missing, or one of them runs twice"});
  }

  void update(Event event) {
    const Instruction& in = at(event);
    for (const Cell& home : homes_) {
      if (home.rank != event.rank || !inside(in.ranges[0], home)) continue;
      uint64_t& now = cells_.at(home).value;
      int times = 0;
      bool as_meant = true;
      const int64_t start = in.segment < 0 ? 0 : plan_.ranks[event.rank].segments[in.segment].start;
      for (const plan::UpdateRun& run : plan_.updates[in.update].runs) {
        const int64_t from = in.ranges[0].offset + (run.begin - start) * 4, to = in.ranges[0].offset + (run.end - start) * 4;
        if (to <= home.at || home.at + bytes_ <= from) continue;
        times += from <= home.at && home.at + bytes_ <= to ? 1 : 0;
        const bool statistics = plan_.updates[in.update].statistics;
        if (statistics != param_.statistics || (statistics && run.kept != param_.kept)) as_meant = false;
      }
      const std::string who = fmt::format("parameter `{}` in program `{}` ", param_.name, program(event.rank).name);
      if (!param_.trainable && !param_.statistics) return report(event.rank, event.instruction, who + "is frozen but written");
      if (times == 0 && now == kOld) continue;  // the end will tell
      if (times != 1 || now != kOld) return report(event.rank, event.instruction, who + "is not updated exactly once");
      if (!as_meant) {
        return report(event.rank, event.instruction, who + (param_.statistics ? "holds statistics, but is not advanced as such"
                                                                             : "is updated as if it held statistics"));
      }
      if (value(event.rank, in.ranges[1], home.at - in.ranges[0].offset) != total_) return incomplete(event);
      now = kNew;
    }
  }

  void check_end() {
    const bool trains = param_.trainable || param_.statistics;
    for (const Cell& home : homes_) {
      const uint64_t now = cells_.at(home).value;
      const std::string who = fmt::format("parameter `{}` in program `{}` ", param_.name, program(home.rank).name);
      if (!trains) {
        if (now != kOld) return report(home.rank, -1, who + "is frozen but written");
        continue;
      }
      if (contributions_ == 0 && !updated_) continue;
      if (now == kOld) return report(home.rank, -1, who + "is never updated");
      if (now != kNew) return report(home.rank, -1, who + "does not end the step with its new value");
    }
  }

  // A norm that leaves out a gradient clips too late; one that counts copies several times, or statistics, too early.
  void check_norm() {
    if (plan_.clip_norm <= 0 && !plan_.skip_nonfinite) return;
    const int times = param_.statistics ? 0 : 1;
    if (std::abs(normed_ - times) < 1e-9) return;
    report(-1, -1, fmt::format("the norm counts {} {} times instead of {}", name_, normed_, times == 1 ? "once" : "never"));
  }

  void report(int rank, int instruction, std::string message, std::vector<std::string> notes = {}) {
    wrong_ = true;
    findings_.add(Code::E0607, rank, instruction, std::move(message), std::move(notes));
  }

  const Plan& plan_;
  const Matches& matches_;
  Effects& effects_;
  Accounts& accounts_;
  const Exchanges& exchanges_;
  Findings& findings_;
  const plan::Param& param_;
  const int64_t begin_, bytes_;
  const int contributions_;
  std::string name_;
  std::map<Cell, Content> cells_;
  std::vector<Cell> open_;               // whose ties are not found yet
  std::set<Cell> homes_, gradients_;     // of parameters; of updates
  std::map<int, std::set<int>> work_;    // by rank: instructions that touch a cell's buffer
  bool updated_ = false;
  uint64_t total_ = 0;
  double normed_ = 0;
  bool wrong_ = false;
};

// Where segments cut a parameter, in bytes from its start.
std::set<int64_t> cuts_of(const Plan& plan, int param, const Homes& homes) {
  const int64_t bytes = plan::tensor_bytes(plan.params[param].dtype, plan.params[param].shape);
  std::set<int64_t> cuts = {0, bytes};
  for (const auto& [rank, home] : homes) {
    if (home->segment < 0) continue;
    const plan::Segment& segment = plan.ranks[rank].segments[home->segment];
    for (const int64_t at : {segment.start * 4 - home->offset, (segment.start + segment.count) * 4 - home->offset}) {
      if (at > 0 && at < bytes) cuts.insert(at);
    }
  }
  return cuts;
}

}  // namespace

void check_flows(const Plan& plan, const Matches& matches, Effects& effects, Accounts& accounts, const Exchanges& exchanges,
                 Findings& findings) {
  std::vector<int> contributions(plan.params.size(), 0);
  for (const plan::Contribution& c : plan.contract.contributions) contributions[c.param]++;
  std::vector<Homes> homes(plan.params.size());
  for (size_t r = 0; r < plan.ranks.size(); r++) {
    for (const plan::ParamHome& home : plan.programs[plan.ranks[r].program].params) homes[home.param].emplace_back(static_cast<int>(r), &home);
  }
  for (size_t p = 0; p < plan.params.size(); p++) {
    const std::set<int64_t> cuts = cuts_of(plan, static_cast<int>(p), homes[p]);
    for (auto it = cuts.begin(); std::next(it) != cuts.end(); ++it) {
      Flow(plan, matches, effects, accounts, exchanges, findings, static_cast<int>(p), homes[p], *it, *std::next(it), contributions[p]).check();
    }
  }
}

}  // namespace piper::verify
