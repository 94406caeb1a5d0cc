// Where a chunk whose forward is computed again is cut, so that only a part of it is computed again at a time.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ir/dag.h"

namespace piper::passes {

// Lists of repeated modules, found by the paths of operations: `h.0`, `h.1`, … are items of the list `h`.
class ModuleLists {
 public:
  explicit ModuleLists(const ir::Model& model);
  // The item that a path is in, of the outermost list that has several: "transformer.h.3"; "" when there is none.
  std::string item_of(const std::string& path) const;

 private:
  std::map<std::string, std::set<std::string>> items_;  // of each list
};

struct Segments {
  std::vector<size_t> cuts;    // positions in the forward before which a segment begins, ascending; without the first
  std::set<ir::ValueId> kept;  // values that cross a cut and are made in the chunk, by the memory that they have
};

// Cuts between items of lists where that spares memory, and none inside a single one. A chunk that is of no list is cut such that what is kept and
// the largest segment are small together.
Segments cut_into_segments(const ir::Model& model, const ir::Chunk& chunk, const ModuleLists& lists);

}  // namespace piper::passes
