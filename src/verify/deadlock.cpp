// No legal timing deadlocks: with rendezvous transports, a send completes only with its receive and a collective only
// with all its members, so matched instructions are one node. A node depends on what each of its instructions comes
// after (the one before it on its stream, those it waits for). The plan runs to its end iff this graph has no cycle.
//
// First the graph is folded: all ranks of a program become one. A cycle of the whole graph folds to a cycle, so a folded
// graph without one proves every number of ranks at the cost of the distinct programs. Only if it has one (ranks of one
// program may talk to each other in turn) is the whole graph looked at.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "verify/rules.h"

namespace piper::verify {

namespace {

using plan::Instruction;
using plan::Plan;

// Disjoint sets of instructions that complete together.
class Nodes {
 public:
  explicit Nodes(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  int find(int x) {
    while (parent_[x] != x) x = parent_[x] = parent_[parent_[x]];
    return x;
  }
  void join(int a, int b) { parent_[find(a)] = find(b); }

 private:
  std::vector<int> parent_;
};

// Instructions with dense numbers: of all programs (folded) or of all ranks.
struct Graph {
  std::vector<int> first;                    // [unit]: number of its first instruction
  std::vector<const plan::Program*> program; // [unit]
  std::vector<std::vector<int>> previous;    // [program][instruction]: the one before it on its stream, or -1
  int size = 0;

  void add(const plan::Program& p) {
    first.push_back(size);
    program.push_back(&p);
    size += static_cast<int>(p.instructions.size());
  }
};

std::vector<int> previous_on_stream(const plan::Program& program) {
  std::vector<int> last(program.streams.size(), -1), previous;
  for (size_t i = 0; i < program.instructions.size(); i++) {
    previous.push_back(std::exchange(last[program.instructions[i].stream], static_cast<int>(i)));
  }
  return previous;
}

// Calls `visit(earlier)` for each instruction that `i` of `program` comes directly after.
template <class Visit>
void for_each_before(const plan::Program& program, const std::vector<int>& previous, int i, Visit visit) {
  if (previous[i] >= 0) visit(previous[i]);
  for (int32_t wait : program.instructions[i].waits) visit(wait);
}

// Nodes that never complete: those left over when all that can be run has been. `unit_previous[u]` is the stream
// predecessors of unit u's program.
std::vector<bool> stuck(const Graph& graph, Nodes& nodes, const std::vector<const std::vector<int>*>& unit_previous) {
  std::vector<int> missing(graph.size, 0);
  std::vector<std::vector<int>> next(graph.size);
  for (size_t u = 0; u < graph.first.size(); u++) {
    for (size_t i = 0; i < graph.program[u]->instructions.size(); i++) {
      int node = nodes.find(graph.first[u] + static_cast<int>(i));
      for_each_before(*graph.program[u], *unit_previous[u], static_cast<int>(i), [&](int earlier) {
        next[nodes.find(graph.first[u] + earlier)].push_back(node);
        missing[node]++;
      });
    }
  }
  std::vector<bool> left(graph.size, false);
  std::vector<int> ready;
  for (int n = 0; n < graph.size; n++) {
    if (nodes.find(n) != n) continue;
    left[n] = true;
    if (missing[n] == 0) ready.push_back(n);
  }
  while (!ready.empty()) {
    int node = ready.back();
    ready.pop_back();
    left[node] = false;
    for (int after : next[node]) {
      if (--missing[after] == 0) ready.push_back(after);
    }
  }
  return left;
}

bool any(const std::vector<bool>& flags) { return std::find(flags.begin(), flags.end(), true) != flags.end(); }

// One step of a cycle: `event` cannot start before `before` of the same rank has completed.
struct Step {
  Event event, before;
};

class CycleFinder {
 public:
  CycleFinder(const Plan& plan, const Graph& graph, Nodes& nodes, const std::vector<const std::vector<int>*>& previous,
              const std::vector<bool>& left)
      : plan_(plan), graph_(graph), nodes_(nodes), previous_(previous), left_(left), members_(graph.size) {
    for (size_t u = 0; u < graph.first.size(); u++) {
      for (size_t i = 0; i < graph.program[u]->instructions.size(); i++) {
        Event event{static_cast<int>(u), static_cast<int>(i)};
        members_[nodes.find(graph.first[u] + event.instruction)].push_back(event);
      }
    }
  }

  // The shortest cycle through a node that lies on one.
  std::vector<Step> find() {
    int start = 0;
    while (!left_[start]) start++;
    // Every node left over comes after another one left over, so this walk ends in a cycle.
    std::vector<bool> seen(graph_.size, false);
    while (!seen[start]) {
      seen[start] = true;
      start = node(steps(start).front().before);
    }
    return shortest(start);
  }

 private:
  int node(Event event) { return nodes_.find(graph_.first[event.rank] + event.instruction); }

  // Why the node cannot complete.
  std::vector<Step> steps(int n) {
    std::vector<Step> out;
    for (Event event : members_[n]) {
      for_each_before(*graph_.program[event.rank], *previous_[event.rank], event.instruction, [&](int earlier) {
        Event before{event.rank, earlier};
        if (left_[node(before)]) out.push_back({event, before});
      });
    }
    return out;
  }

  std::vector<Step> shortest(int start) {
    std::vector<Step> came(graph_.size);
    std::vector<int> from(graph_.size, -1);
    std::vector<int> queue = {start};
    for (size_t head = 0; head < queue.size(); head++) {
      for (const Step& step : steps(queue[head])) {
        int next = node(step.before);
        if (from[next] >= 0) continue;
        from[next] = queue[head];
        came[next] = step;
        queue.push_back(next);
        if (next == start) break;
      }
      if (from[start] >= 0) break;
    }
    std::vector<Step> cycle;
    int at = start;
    do {
      cycle.push_back(came[at]);
      at = from[at];
    } while (at != start);
    std::reverse(cycle.begin(), cycle.end());
    return cycle;
  }

  const Plan& plan_;
  const Graph& graph_;
  Nodes& nodes_;
  const std::vector<const std::vector<int>*>& previous_;
  const std::vector<bool>& left_;
  std::vector<std::vector<Event>> members_;
};

bool folded_is_acyclic(const Plan& plan, const Matches& matches, const std::vector<std::vector<int>>& previous) {
  Graph graph;
  for (const plan::Program& program : plan.programs) graph.add(program);
  Nodes nodes(graph.size);
  for (const std::vector<Event>& together : matches.together) {
    auto number = [&](Event e) { return graph.first[plan.ranks[e.rank].program] + e.instruction; };
    for (Event event : together) nodes.join(number(together[0]), number(event));
  }
  std::vector<const std::vector<int>*> unit_previous;
  for (const std::vector<int>& list : previous) unit_previous.push_back(&list);
  return !any(stuck(graph, nodes, unit_previous));
}

void report_cycle(const Plan& plan, const std::vector<Step>& cycle, Findings& findings) {
  std::vector<std::string> notes;
  for (size_t i = 0; i < cycle.size(); i++) {
    const Step& step = cycle[i];
    const plan::Program& program = plan.programs[plan.ranks[step.event.rank].program];
    bool same = program.instructions[step.event.instruction].stream == program.instructions[step.before.instruction].stream;
    notes.push_back(findings.name(step.event.rank, step.event.instruction));
    notes.push_back(fmt::format("  comes after {}{}", findings.name(step.before.rank, step.before.instruction),
                                same ? ", which is before it on its stream" : ", for which it waits"));
    Event next = cycle[(i + 1) % cycle.size()].event;
    if (!(next == step.before)) notes.push_back("  which completes only together with");
  }
  notes.push_back("and so on: the last of them waits for the first");
  Event first = cycle.front().event;
  findings.add(support::Code::E0604, first.rank, first.instruction,
               fmt::format("deadlock: {} instructions wait for each other in a circle", cycle.size()), std::move(notes));
}

}  // namespace

void find_deadlock(const Plan& plan, const Matches& matches, Findings& findings) {
  std::vector<std::vector<int>> previous;
  for (const plan::Program& program : plan.programs) previous.push_back(previous_on_stream(program));
  if (folded_is_acyclic(plan, matches, previous)) return;
  Graph graph;
  std::vector<const std::vector<int>*> unit_previous;
  for (const plan::RankEntry& rank : plan.ranks) {
    graph.add(plan.programs[rank.program]);
    unit_previous.push_back(&previous[rank.program]);
  }
  Nodes nodes(graph.size);
  for (const std::vector<Event>& together : matches.together) {
    auto number = [&](Event e) { return graph.first[e.rank] + e.instruction; };
    for (Event event : together) nodes.join(number(together[0]), number(event));
  }
  std::vector<bool> left = stuck(graph, nodes, unit_previous);
  if (!any(left)) return;
  report_cycle(plan, CycleFinder(plan, graph, nodes, unit_previous, left).find(), findings);
}

}  // namespace piper::verify
