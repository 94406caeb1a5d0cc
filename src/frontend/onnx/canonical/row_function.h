// What the matchers of mixtures of experts share: functions of single rows, moved from rows in one
// order to the same rows in another.
#pragma once

#include "frontend/onnx/canonical/rewriter.h"

namespace piper::frontend {

// The number of elements; -1 when it is not linear in the batch size.
ir::Dim elements(const ir::Shape& shape);
ir::ValueId reshaped(Rewriter& r, ir::ValueId value, ir::Shape shape);
// The value that reshapes started from; they keep the elements in their order.
ir::ValueId through_reshapes(const Rewriter& r, ir::ValueId value);
// Whether the permutation swaps the last two of `rank` dims and keeps the others.
bool swaps_last_two(const ir::Op& transpose, size_t rank);

// A value that is computed from leaves by operations on single rows, where rows are the leading
// dims of every value on the way. It is checked first and built then, as nothing that was emitted
// can be taken back.
class RowFunction {
 public:
  // `before` rows where the function is found, `after` where it is built.
  RowFunction(Rewriter& r, ir::Dim before, ir::Dim after) : r_(r), before_(before), after_(after) {}
  virtual ~RowFunction() = default;

  bool fits(ir::ValueId value) const;
  // The function as [after, width]; the value must fit.
  ir::ValueId build(ir::ValueId value);
  // The same in the place of `root`.
  bool replace(const ir::Op& root, ir::ValueId value);

 protected:
  // Where the function starts: what an op is there, whether it fits, and its rows in the new order.
  virtual bool is_leaf(const ir::Op& op) const = 0;
  virtual bool leaf_fits(const ir::Op& op) const = 0;
  virtual ir::ValueId leaf(const ir::Op& op) = 0;

  const Rewriter& rewriter() const { return r_; }
  Rewriter& rewriter() { return r_; }
  ir::Dim rows_before() const { return before_; }
  // Elements of a row, when the rows are the leading dims.
  std::optional<int64_t> width(ir::ValueId value) const;

 private:
  bool is_shared(ir::ValueId input, const ir::Op& op) const;
  std::optional<ir::Attrs> slice_attrs(const ir::Op& slice) const;
  ir::Attrs attrs(const ir::Op& op) const;
  std::vector<ir::ValueId> inputs(const ir::Op& op);

  Rewriter& r_;
  ir::Dim before_, after_;
};

}  // namespace piper::frontend
