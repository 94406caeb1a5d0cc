#include "passes/segments.h"

#include <algorithm>

#include "passes/chunks.h"

namespace piper::passes {

using ir::OpId;
using ir::ValueId;

namespace {

// Calls f(list, item) for every component of a path that is a number, outermost first, until it returns true.
template <class F>
void for_each_item(const std::string& path, F f) {
  for (size_t begin = 0; begin < path.size();) {
    size_t end = path.find('.', begin);
    if (end == std::string::npos) end = path.size();
    const bool number = std::all_of(path.begin() + static_cast<std::ptrdiff_t>(begin), path.begin() + static_cast<std::ptrdiff_t>(end),
                                    [](char c) { return c >= '0' && c <= '9'; });
    if (number && end > begin && f(path.substr(0, begin), path.substr(0, end))) return;
    begin = end + 1;
  }
}

int64_t bytes_per_sample(const ir::TensorType& type) {
  return ir::num_elements(ir::at(type.shape, 1)) * ir::dtype_size(type.dtype);
}

// The forward of a chunk as a line of operations that values cross.
class Line {
 public:
  Line(const ir::Model& model, const ir::Chunk& chunk) : model_(model), chunk_(chunk) {
    const std::set<ValueId> inputs(chunk.inputs.begin(), chunk.inputs.end());
    std::map<OpId, size_t> position;
    for (size_t i = 0; i < size(); ++i) position[chunk.forward[i]] = i;
    needed_.assign(size(), 0);
    auto life_of = [&](ValueId read) -> Life* {
      if (!read.valid()) return nullptr;
      const ValueId v = memory_of(model, read, inputs);
      const auto made = position.find(model.value(v).producer);
      if (made == position.end()) return nullptr;
      return &lives_.try_emplace(v, Life{made->second, made->second, false}).first->second;
    };
    for (size_t i = 0; i < size(); ++i) {
      const ir::Op& op = model.op(chunk.forward[i]);
      // A reshape reads nothing by itself.
      if (memory_of(model, op.outputs[0], inputs) != op.outputs[0]) continue;
      for (ValueId v : op.inputs) {
        if (Life* life = life_of(v)) life->last = i;
      }
    }
    for (OpId id : chunk.backward) {
      for (ValueId read : model.op(id).inputs) {
        Life* life = life_of(read);
        if (!life || life->needed) continue;
        life->needed = true;
        needed_[life->first] += bytes_per_sample(model.value(memory_of(model, read, inputs)).type);
      }
    }
  }

  size_t size() const { return chunk_.forward.size(); }
  const std::string& path(size_t i) const { return model_.op(chunk_.forward[i]).path; }
  int64_t bytes(ValueId v) const { return bytes_per_sample(model_.value(v).type); }
  int64_t needed(size_t i) const { return needed_[i]; }  // bytes that the backward reads of what operation i makes

  // Values made before position `at` and read there or later.
  std::set<ValueId> crossing(size_t at) const {
    std::set<ValueId> values;
    for (const auto& [v, life] : lives_) {
      if (life.first < at && at <= life.last) values.insert(v);
    }
    return values;
  }

  struct Crossing {
    int64_t values = 0, bytes = 0;
  };
  // Of every position up to the end.
  std::vector<Crossing> crossings() const {
    std::vector<Crossing> at(size() + 1);
    for (const auto& [v, life] : lives_) {
      const int64_t size = bytes(v);
      at[life.first + 1].values += 1;
      at[life.first + 1].bytes += size;
      at[life.last + 1].values -= 1;
      at[life.last + 1].bytes -= size;
    }
    for (size_t i = 1; i < at.size(); ++i) {
      at[i].values += at[i - 1].values;
      at[i].bytes += at[i - 1].bytes;
    }
    return at;
  }

 private:
  struct Life {
    size_t first = 0, last = 0;  // the operation that makes it, and the last that reads it
    bool needed = false;         // by the backward
  };

  const ir::Model& model_;
  const ir::Chunk& chunk_;
  std::map<ValueId, Life> lives_;
  std::vector<int64_t> needed_;
};

// Where each item begins, and where the last one ends; each moved back to where the fewest bytes cross, by half an item at
// most. Sets `of_lists` when anything of the chunk is in a list.
std::vector<size_t> cuts_between_items(const Line& line, const ModuleLists& lists, bool* of_lists) {
  std::vector<size_t> begins;
  std::set<std::string> seen;
  size_t end = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const std::string item = lists.item_of(line.path(i));
    if (item.empty()) continue;
    end = i + 1;
    if (seen.insert(item).second) begins.push_back(i);
  }
  *of_lists = !begins.empty();
  if (begins.size() < 2) return {};
  begins.push_back(end);
  const auto crossings = line.crossings();
  std::vector<size_t> cuts;
  size_t previous = 0;
  for (size_t begin : begins) {
    size_t best = begin;
    for (size_t at = begin; 2 * at > previous + begin; --at) {
      if (crossings[at].bytes < crossings[best].bytes) best = at;
    }
    previous = begin;
    if (best > 0 && best < line.size() && crossings[best].values > 0) cuts.push_back(best);
  }
  return cuts;
}

// Without the cuts that make the forward keep as much as computing the segment before them again would spare.
std::vector<size_t> worthwhile(const Line& line, const std::vector<size_t>& cuts) {
  std::vector<size_t> good;
  std::set<ValueId> kept;
  for (size_t at : cuts) {
    const std::set<ValueId> crossing = line.crossing(at);
    int64_t spared = 0, spent = 0;
    for (size_t i = good.empty() ? 0 : good.back(); i < at; ++i) spared += line.needed(i);
    for (ValueId v : crossing) spent += kept.count(v) ? 0 : line.bytes(v);
    if (spent >= spared) continue;
    good.push_back(at);
    kept.insert(crossing.begin(), crossing.end());
  }
  return good;
}

// Of places where one value crosses, those that make the bytes that are kept and those of the largest segment small
// together: for each bound of segments the cheapest cuts, of all bounds the best.
std::vector<size_t> cuts_by_size(const Line& line) {
  constexpr int64_t kMostSegments = 32;
  const auto crossings = line.crossings();
  std::vector<size_t> places{0};
  std::vector<int64_t> before{0};  // bytes that the backward needs of what is made before each place
  int64_t total = 0, gap = 0;
  for (size_t at = 1; at <= line.size(); ++at) {
    total += line.needed(at - 1);
    if (at < line.size() && crossings[at].values != 1) continue;
    gap = std::max(gap, total - before.back());
    places.push_back(at);
    before.push_back(total);
  }
  int64_t best_cost = total;
  std::vector<size_t> best;
  for (int64_t n = 2; n <= kMostSegments; ++n) {
    const int64_t bound = std::max(gap, (total + n - 1) / n);
    std::vector<int64_t> cost(places.size(), 0);
    std::vector<size_t> from(places.size(), 0);
    for (size_t j = 1; j < places.size(); ++j) {
      cost[j] = -1;
      for (size_t i = j; i-- > 0 && before[j] - before[i] <= bound;) {
        if (cost[j] >= 0 && cost[i] >= cost[j]) continue;
        cost[j] = cost[i];
        from[j] = i;
      }
      if (places[j] < line.size()) cost[j] += crossings[places[j]].bytes;
    }
    if (cost.back() + bound >= best_cost) continue;
    best_cost = cost.back() + bound;
    best.clear();
    for (size_t j = from.back(); j > 0; j = from[j]) best.push_back(places[j]);
  }
  std::reverse(best.begin(), best.end());
  return best;
}

}  // namespace

ModuleLists::ModuleLists(const ir::Model& model) {
  for (const ir::Op& op : model.ops) {
    for_each_item(op.path, [&](const std::string& list, const std::string& item) {
      items_[list].insert(item);
      return false;
    });
  }
}

std::string ModuleLists::item_of(const std::string& path) const {
  std::string found;
  for_each_item(path, [&](const std::string& list, const std::string& item) {
    if (items_.at(list).size() < 2) return false;
    found = item;
    return true;
  });
  return found;
}

Segments cut_into_segments(const ir::Model& model, const ir::Chunk& chunk, const ModuleLists& lists) {
  const Line line(model, chunk);
  Segments segments;
  bool of_lists = false;
  segments.cuts = worthwhile(line, cuts_between_items(line, lists, &of_lists));
  if (!of_lists) segments.cuts = cuts_by_size(line);
  for (size_t at : segments.cuts) segments.kept.merge(line.crossing(at));
  return segments;
}

}  // namespace piper::passes
