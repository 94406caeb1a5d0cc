// Two operands at a time: a label is of the batch of the product when both have it and it is needed later, is contracted
// when both have it and it is not, and is a row or a column when one has it. That is a MatMul of transposed operands, or
// a Mul where nothing is contracted.

#include "ops/einsum.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

// Letters are themselves; the dims of `...` are counted from the last, as -1, -2, ...
using Labels = std::vector<int>;

bool has(const Labels& labels, int label) { return std::find(labels.begin(), labels.end(), label) != labels.end(); }

struct Operand {
  ValueId value;
  Labels labels;  // of each dim, none twice
};

class Einsum {
 public:
  explicit Einsum(ImportContext& context) : c_(context), equation_(context.attrs().s("equation")) {}

  Expected<void> run() {
    if (auto ok = parse(); !ok) return ok;
    for (Operand& operand : operands_) take_diagonals(operand);
    Operand so_far = operands_[0];
    sum_except(so_far, needed_from(1));
    for (size_t i = 1; i < operands_.size(); i++) {
      const Labels later = needed_from(i + 1);
      Labels needed = later;
      needed.insert(needed.end(), so_far.labels.begin(), so_far.labels.end());
      sum_except(operands_[i], needed);
      auto product = multiply_pair(so_far, operands_[i], later);
      if (!product) return tl::make_unexpected(product.error());
      so_far = *product;
    }
    c_.set_output(0, in_order(so_far, output_));
    return {};
  }

 private:
  Expected<void> parse() {
    std::string text;
    for (char ch : equation_) {
      if (!std::isspace(static_cast<unsigned char>(ch))) text += ch;
    }
    const size_t arrow = text.find("->");
    std::string left = text.substr(0, arrow);
    for (size_t begin = 0, i = 0; begin <= left.size(); i++) {
      const size_t end = std::min(left.find(',', begin), left.size());
      if (i >= c_.num_inputs()) return wrong("has more terms than the node has inputs");
      const ValueId value = c_.input(i);
      auto labels = labels_of(left.substr(begin, end - begin), c_.type(value).shape);
      if (!labels) return tl::make_unexpected(labels.error());
      operands_.push_back({value, *labels});
      begin = end + 1;
    }
    if (operands_.size() != c_.num_inputs()) return wrong("has fewer terms than the node has inputs");
    if (arrow == std::string::npos) return imply_output();
    return parse_output(text.substr(arrow + 2));
  }

  Expected<Labels> labels_of(const std::string& term, const Shape& shape) {
    Labels labels;
    const size_t dots = term.find("...");
    const size_t letters = term.size() - (dots == std::string::npos ? 0 : 3);
    if (letters > shape.size() || (dots == std::string::npos && letters != shape.size())) {
      return wrong("names " + std::to_string(letters) + " dims of " + ir::to_string(shape));
    }
    const int hidden = static_cast<int>(shape.size() - letters);
    for (size_t i = 0; i < term.size(); i++) {
      if (i == dots) {
        for (int k = hidden; k > 0; k--) labels.push_back(-k);
        widest_ = std::max(widest_, hidden);
        i += 2;
      } else if (std::isalpha(static_cast<unsigned char>(term[i]))) {
        labels.push_back(term[i]);
      } else {
        return wrong("has a `" + std::string(1, term[i]) + "`");
      }
    }
    for (size_t i = 0; i < labels.size(); i++) {
      if (!shape[i].is_static() && std::count(labels.begin(), labels.end(), labels[i]) > 1) return wrong("takes a diagonal through the samples");
      auto [it, first] = sizes_.try_emplace(labels[i], shape[i]);
      if (first || it->second == shape[i]) continue;
      // Only the dims of `...` broadcast.
      const bool broadcasts = labels[i] < 0 && (it->second == Dim(1) || shape[i] == Dim(1));
      if (!broadcasts) return wrong("gives `" + (labels[i] < 0 ? std::string("...") : std::string(1, static_cast<char>(labels[i]))) + "` two sizes: " + ir::to_string(it->second) + " and " + ir::to_string(shape[i]));
      if (it->second == Dim(1)) it->second = shape[i];
    }
    return labels;
  }

  // The dims of `...`, then in alphabetical order the labels that occur once.
  Expected<void> imply_output() {
    std::map<int, int> times;
    for (const Operand& operand : operands_) {
      for (int label : operand.labels) times[label] += label > 0;
    }
    for (int k = widest_; k > 0; k--) output_.push_back(-k);
    for (auto [label, n] : times) {
      if (n == 1) output_.push_back(label);
    }
    return {};
  }

  Expected<void> parse_output(const std::string& term) {
    const size_t dots = term.find("...");
    for (size_t i = 0; i < term.size(); i++) {
      if (i == dots) {
        for (int k = widest_; k > 0; k--) output_.push_back(-k);
        i += 2;
        continue;
      }
      if (!sizes_.count(term[i]) || has(output_, term[i])) return wrong("gives no output dim for `" + std::string(1, term[i]) + "`");
      output_.push_back(term[i]);
    }
    return {};
  }

  tl::unexpected<support::Error> wrong(const std::string& what) { return user_error("its equation `" + equation_ + "` " + what); }

  const Shape& shape(const Operand& x) const { return c_.type(x.value).shape; }

  // Of the dim with that label; 1 where the operand lacks it.
  Dim size(const Operand& x, int label) const {
    const auto at = std::find(x.labels.begin(), x.labels.end(), label);
    return at == x.labels.end() ? Dim(1) : shape(x)[static_cast<size_t>(at - x.labels.begin())];
  }

  void take_diagonals(Operand& x) {
    for (size_t i = 0; i < x.labels.size();) {
      const auto again = std::find(x.labels.begin() + static_cast<std::ptrdiff_t>(i) + 1, x.labels.end(), x.labels[i]);
      if (again == x.labels.end()) {
        i++;
      } else {
        take_diagonal(x, i, static_cast<size_t>(again - x.labels.begin()));
        i = 0;  // the dims have moved
      }
    }
  }

  // Dims i and j become one, which comes last: the elements where both indices are equal, every (n + 1)th of n * n.
  void take_diagonal(Operand& x, size_t i, size_t j) {
    std::vector<int64_t> perm;
    Labels labels;
    Shape others;
    for (size_t k = 0; k < x.labels.size(); k++) {
      if (k == i || k == j) continue;
      perm.push_back(static_cast<int64_t>(k));
      labels.push_back(x.labels[k]);
      others.push_back(shape(x)[k]);
    }
    perm.insert(perm.end(), {static_cast<int64_t>(i), static_cast<int64_t>(j)});
    labels.push_back(x.labels[i]);
    const int64_t n = shape(x)[i].constant;
    Shape flat = others, diagonal = others;
    flat.push_back(n * n);
    diagonal.push_back(n);
    const std::vector<int64_t> starts(flat.size(), 0);
    std::vector<int64_t> steps(flat.size(), 1);
    steps.back() = n + 1;
    x.value = c_.emit("Transpose", {x.value}, {{"perm", perm}});
    x.value = c_.emit("Reshape", {x.value}, {{"shape", flat}});
    x.value = c_.emit("Slice", {x.value}, {{"starts", starts}, {"steps", steps}, {"shape", diagonal}});
    x.labels = labels;
  }

  // The labels of the output and of the operands from i on.
  Labels needed_from(size_t i) const {
    Labels needed = output_;
    for (; i < operands_.size(); i++) needed.insert(needed.end(), operands_[i].labels.begin(), operands_[i].labels.end());
    return needed;
  }

  // Sums over the labels that nobody needs.
  void sum_except(Operand& x, const Labels& needed) {
    std::vector<int64_t> axes;
    Labels kept;
    for (size_t i = 0; i < x.labels.size(); i++) {
      if (has(needed, x.labels[i])) kept.push_back(x.labels[i]);
      else axes.push_back(static_cast<int64_t>(i));
    }
    if (axes.empty()) return;
    x.value = c_.emit("ReduceSum", {x.value}, {{"axes", axes}, {"keepdims", int64_t{0}}});
    x.labels = kept;
  }

  ValueId in_order(const Operand& x, const Labels& order) {
    std::vector<int64_t> perm;
    for (int label : order) {
      const auto at = std::find(x.labels.begin(), x.labels.end(), label);
      if (at != x.labels.end()) perm.push_back(at - x.labels.begin());
    }
    if (std::is_sorted(perm.begin(), perm.end())) return x.value;
    return c_.emit("Transpose", {x.value}, {{"perm", perm}});
  }

  // x with the dims of `batch` (1 where it lacks one), then those of rows as one dim and those of columns as one.
  Expected<ValueId> as_matrices(const Operand& x, const Labels& batch, const Labels& rows, const Labels& columns) {
    Labels order = batch;
    order.insert(order.end(), rows.begin(), rows.end());
    order.insert(order.end(), columns.begin(), columns.end());
    Shape to;
    for (int label : batch) to.push_back(size(x, label));
    for (const Labels* part : {&rows, &columns}) {
      Shape dims;
      for (int label : *part) dims.push_back(size(x, label));
      auto product = count_elements(dims);
      if (!product) return tl::make_unexpected(product.error());
      to.push_back(*product);
    }
    const ValueId moved = in_order(x, order);
    return c_.type(moved).shape == to ? moved : c_.emit("Reshape", {moved}, {{"shape", to}});
  }

  Expected<Operand> multiply_pair(const Operand& a, const Operand& b, const Labels& later) {
    Labels batch, contracted, rows, columns;
    for (int label : a.labels) {
      if (!has(b.labels, label)) rows.push_back(label);
      else if (has(later, label)) batch.push_back(label);
      else contracted.push_back(label);
    }
    for (int label : b.labels) {
      if (!has(a.labels, label)) columns.push_back(label);
    }
    Operand out{ValueId(), batch};
    out.labels.insert(out.labels.end(), rows.begin(), rows.end());
    out.labels.insert(out.labels.end(), columns.begin(), columns.end());
    auto left = as_matrices(a, batch, rows, contracted), right = as_matrices(b, batch, contracted, columns);
    if (!left) return tl::make_unexpected(left.error());
    if (!right) return tl::make_unexpected(right.error());
    const ValueId product = c_.emit(contracted.empty() ? "Mul" : "MatMul", {*left, *right});
    Shape to;
    // A dim of `...` that is 1 in both stays 1, whatever other operands have.
    for (int label : out.labels) to.push_back(size(a, label) != Dim(1) ? size(a, label) : size(b, label));
    out.value = c_.type(product).shape == to ? product : c_.emit("Reshape", {product}, {{"shape", to}});
    return out;
  }

  ImportContext& c_;
  std::string equation_;
  std::vector<Operand> operands_;
  Labels output_;
  std::map<int, Dim> sizes_;
  int widest_ = 0;  // dims of the widest `...`
};

}  // namespace

Expected<void> import_einsum(ImportContext& context) { return Einsum(context).run(); }

}  // namespace piper::ops
