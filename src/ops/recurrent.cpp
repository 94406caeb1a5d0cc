// ONNX's recurrent layers, RNN, GRU and LSTM, unrolled: the products with the inputs are one Linear over all steps, the
// rest of a step is canonical ops. The number of steps must be known when the model is read; gradients, and cuts into
// samples and stages, then are those of any other ops.
//
// Shapes: T steps, B batch, D directions, I input width, H hidden width, G gates (1, 3 or 4).

#include "ops/recurrent.h"

#include <algorithm>

#include "ops/import_helpers.h"
#include "support/strings.h"

namespace piper::ops {

namespace {

using support::user_error;
using Ints = std::vector<int64_t>;
using Strings = std::vector<std::string>;

constexpr int64_t kMostSteps = 4096;  // a step is a dozen ops

// What the three kinds of layer differ in.
struct Cell {
  int64_t gates;
  Strings activations;  // of one direction
};

// One layer on its way to ops. Places of the inputs: X, W, R, B, sequence_lens, initial_h, initial_c, P.
class Layer {
 public:
  Layer(ImportContext& context, Cell cell) : c_(context), cell_(std::move(cell)) {}

  Expected<void> run();

 private:
  struct State {
    ValueId h, c;  // [B, H] each; invalid: zero
  };

  Expected<void> read();
  Expected<void> check_attributes();
  Expected<void> run_direction(int64_t d, std::vector<ValueId>* steps, State* last);
  State step(ValueId x, const State& before);
  State rnn(ValueId x, const State& before);
  State gru(ValueId x, const State& before);
  State lstm(ValueId x, const State& before);

  ValueId slice(ValueId v, size_t dim, int64_t start, int64_t size) {
    Shape shape = c_.type(v).shape;
    Ints starts(shape.size(), 0), steps(shape.size(), 1);
    starts[dim] = start;
    shape[dim] = size;
    return c_.emit("Slice", {v}, {{"starts", starts}, {"steps", steps}, {"shape", shape}});
  }
  // One place of dim 0, without that dim.
  ValueId at(ValueId v, int64_t place) {
    const Shape shape = c_.type(v).shape;
    return reshape(slice(v, 0, place, 1), Shape(shape.begin() + 1, shape.end()));
  }
  ValueId reshape(ValueId v, Shape shape) { return c_.emit("Reshape", {v}, {{"shape", std::move(shape)}}); }
  ValueId transpose(ValueId v, const Ints& perm) { return c_.emit("Transpose", {v}, {{"perm", perm}}); }
  ValueId make(const char* kind, ValueId a) { return c_.emit(kind, {a}); }
  ValueId make(const char* kind, ValueId a, ValueId b) { return c_.emit(kind, {a, b}); }
  // a + b, where an invalid b is zero.
  ValueId plus(ValueId a, ValueId b) { return b.valid() ? make("Add", a, b) : a; }
  ValueId gate(ValueId v, int64_t k) { return slice(v, 1, k * hidden_, hidden_); }
  ValueId linear(ValueId v, ValueId weight, ValueId bias) { return c_.emit("Linear", {v, weight, bias}, {{"trans_w", int64_t{1}}}); }
  // h R^T (+ bias) of `count` gates from gate `k` on; invalid when the state is zero and there is no bias.
  ValueId recurrent(ValueId h, int64_t k, int64_t count, ValueId bias = ValueId()) {
    if (!h.valid()) return bias;
    return linear(h, count == cell_.gates ? r_ : slice(r_, 0, k * hidden_, count * hidden_), bias);
  }
  // The peephole from state c into gate k.
  ValueId peephole(ValueId c, int64_t k) {
    if (!p_.valid() || !c.valid()) return ValueId();
    return make("Mul", c, slice(p_, 0, k * hidden_, hidden_));
  }
  // Concatenates along a new first dim.
  ValueId stack(const std::vector<ValueId>& values) {
    std::vector<ValueId> rows;
    for (ValueId v : values) {
      Shape shape = c_.type(v).shape;
      shape.insert(shape.begin(), 1);
      rows.push_back(reshape(v, shape));
    }
    return rows.size() == 1 ? rows[0] : c_.emit("Concat", rows, {{"axis", int64_t{0}}});
  }

  ImportContext& c_;
  Cell cell_;
  bool batch_first_ = false;
  std::string direction_;
  int64_t directions_ = 1, hidden_ = 0, steps_ = 0;
  Dim batch_;
  ValueId x_;  // [T, B, I]
  // Of the direction at hand: R [G H, H], the bias of R [G H], peepholes [3 H].
  ValueId r_, bias_r_, p_;
};

Expected<void> Layer::check_attributes() {
  const Attrs& attrs = c_.attrs();
  direction_ = attrs.s("direction", "forward");
  if (direction_ != "forward" && direction_ != "reverse" && direction_ != "bidirectional") {
    return user_error("its direction is `" + direction_ + "`");
  }
  directions_ = direction_ == "bidirectional" ? 2 : 1;
  if (attrs.has("clip")) return user_error("it clips its gates, which is not supported");
  if (attrs.i("input_forget", 0) != 0) return user_error("it couples input and forget gates, which is not supported");
  const Strings given = attrs.has("activations") ? support::split(attrs.s("activations"), ' ') : Strings();
  for (size_t i = 0; i < given.size(); i++) {
    const std::string& usual = cell_.activations[i % cell_.activations.size()];
    // The only activations of an RNN may be others.
    if (cell_.gates == 1 && (given[i] == "Tanh" || given[i] == "Relu" || given[i] == "Sigmoid") && given[i] == given[0]) continue;
    if (given[i] != usual) return user_error("its activation " + std::to_string(i) + " is `" + given[i] + "`; only `" + usual + "` is supported");
  }
  if (cell_.gates == 1 && !given.empty()) cell_.activations = {given[0]};
  return {};
}

Expected<void> Layer::read() {
  if (auto ok = check_attributes(); !ok) return ok;
  x_ = c_.input(0);
  batch_first_ = c_.attrs().i("layout", 0) != 0;
  const Shape w = c_.type(c_.input(1)).shape, r = c_.type(c_.input(2)).shape;
  Shape x = c_.type(x_).shape;
  if (x.size() != 3 || w.size() != 3 || r.size() != 3 || !r[2].is_static()) {
    return user_error("its input is " + ir::to_string(c_.type(x_)) + " and its weights are " + ir::to_string(w) + " and " + ir::to_string(r));
  }
  hidden_ = r[2].constant;
  const int64_t rows = cell_.gates * hidden_;
  if (w != Shape{directions_, rows, x[2]} || r != Shape{directions_, rows, hidden_}) {
    return user_error("its weights " + ir::to_string(w) + " and " + ir::to_string(r) + " do not fit " + std::to_string(directions_) +
                      (directions_ == 1 ? " direction of " : " directions of ") + std::to_string(hidden_) + " units over " +
                      ir::to_string(c_.type(x_)));
  }
  if (batch_first_) {
    x_ = transpose(x_, {1, 0, 2});
    std::swap(x[0], x[1]);
  }
  batch_ = x[1];
  if (!x[0].is_static()) return user_error("its steps run along the batch: " + ir::to_string(c_.type(c_.input(0))));
  steps_ = x[0].constant;
  if (steps_ < 1 || steps_ > kMostSteps) return user_error("it has " + std::to_string(steps_) + " steps, not 1 to " + std::to_string(kMostSteps));
  if (c_.has_input(4)) {
    const std::vector<Dim>* lengths = c_.known_ints(4);
    if (!lengths || !std::all_of(lengths->begin(), lengths->end(), [&](Dim l) { return l == Dim(steps_); })) {
      return user_error("its samples differ in length, which is not supported", "export the model without lengths of sequences");
    }
  }
  return {};
}

Layer::State Layer::rnn(ValueId x, const State& before) {
  return {make(cell_.activations[0].c_str(), plus(x, recurrent(before.h, 0, 1, bias_r_))), {}};
}

// Gates z, r, h. Until `linear_before_reset`, the reset gate is applied to the state, from then on to its product.
Layer::State Layer::gru(ValueId x, const State& before) {
  const ValueId bias = bias_r_.valid() ? slice(bias_r_, 0, 0, 2 * hidden_) : ValueId();
  const ValueId bias_h = bias_r_.valid() ? slice(bias_r_, 0, 2 * hidden_, hidden_) : ValueId();
  const ValueId both = make("Sigmoid", plus(slice(x, 1, 0, 2 * hidden_), recurrent(before.h, 0, 2, bias)));
  const ValueId z = gate(both, 0), r = gate(both, 1);
  ValueId candidate;
  if (c_.attrs().i("linear_before_reset", 0) != 0) {
    const ValueId product = recurrent(before.h, 2, 1, bias_h);
    candidate = product.valid() ? make("Mul", r, product) : ValueId();
  } else {
    candidate = recurrent(before.h.valid() ? make("Mul", r, before.h) : ValueId(), 2, 1, bias_h);
  }
  candidate = make("Tanh", plus(gate(x, 2), candidate));
  // (1 - z) candidate + z h = candidate + z (h - candidate)
  const ValueId towards = before.h.valid() ? make("Sub", before.h, candidate) : make("Neg", candidate);
  return {make("Add", candidate, make("Mul", z, towards)), {}};
}

// Gates i, o, f, c; peepholes i, o, f.
Layer::State Layer::lstm(ValueId x, const State& before) {
  const ValueId all = plus(x, recurrent(before.h, 0, 4, bias_r_));
  const ValueId in = make("Sigmoid", plus(gate(all, 0), peephole(before.c, 0)));
  const ValueId forget = make("Sigmoid", plus(gate(all, 2), peephole(before.c, 2)));
  State after;
  after.c = make("Mul", in, make("Tanh", gate(all, 3)));
  if (before.c.valid()) after.c = make("Add", make("Mul", forget, before.c), after.c);
  const ValueId out = make("Sigmoid", plus(gate(all, 1), peephole(after.c, 1)));
  after.h = make("Mul", out, make("Tanh", after.c));
  return after;
}

Layer::State Layer::step(ValueId x, const State& before) {
  return cell_.gates == 1 ? rnn(x, before) : cell_.gates == 3 ? gru(x, before) : lstm(x, before);
}

Expected<void> Layer::run_direction(int64_t d, std::vector<ValueId>* steps, State* last) {
  const int64_t rows = cell_.gates * hidden_;
  r_ = at(c_.input(2), d);
  ValueId bias_x;
  if (c_.has_input(3)) {
    const ValueId bias = at(c_.input(3), d);
    bias_x = slice(bias, 0, 0, rows);
    bias_r_ = slice(bias, 0, rows, rows);
  }
  p_ = c_.has_input(7) ? at(c_.input(7), d) : ValueId();
  State state;
  for (size_t i : {size_t{5}, size_t{6}}) {
    if (!c_.has_input(i)) continue;
    ValueId all = c_.input(i);
    if (batch_first_) all = transpose(all, {1, 0, 2});
    if (c_.type(all).shape != Shape{directions_, batch_, hidden_}) {
      return user_error("its initial state is " + ir::to_string(c_.type(c_.input(i))));
    }
    (i == 5 ? state.h : state.c) = at(all, d);
  }
  const bool backwards = direction_ == "reverse" || d == 1;
  const ValueId projected = linear(x_, at(c_.input(1), d), bias_x);  // [T, B, G H]
  steps->resize(static_cast<size_t>(steps_));
  for (int64_t k = 0; k < steps_; k++) {
    const int64_t t = backwards ? steps_ - 1 - k : k;
    state = step(at(projected, t), state);
    (*steps)[static_cast<size_t>(t)] = state.h;
  }
  *last = state;
  return {};
}

Expected<void> Layer::run() {
  if (auto ok = read(); !ok) return ok;
  std::vector<std::vector<ValueId>> steps(static_cast<size_t>(directions_));
  std::vector<ValueId> last_h, last_c, rows;
  for (int64_t d = 0; d < directions_; d++) {
    State last;
    if (auto ok = run_direction(d, &steps[static_cast<size_t>(d)], &last); !ok) return ok;
    last_h.push_back(last.h);
    last_c.push_back(last.c);
  }
  const auto used = [&](size_t i) { return i < c_.num_outputs() && c_.output_used(i); };
  if (used(0)) {  // [T, D, B, H]
    for (size_t t = 0; t < static_cast<size_t>(steps_); t++) {
      std::vector<ValueId> both;
      for (const auto& direction : steps) both.push_back(direction[t]);
      rows.push_back(stack(both));
    }
    const ValueId y = stack(rows);
    c_.set_output(0, batch_first_ ? transpose(y, {2, 0, 1, 3}) : y);
  }
  const auto set_state = [&](size_t i, const std::vector<ValueId>& states) {
    if (!used(i)) return;
    const ValueId all = stack(states);
    c_.set_output(i, batch_first_ ? transpose(all, {1, 0, 2}) : all);
  };
  set_state(1, last_h);
  if (cell_.gates == 4) set_state(2, last_c);
  return {};
}

Expected<void> import_rnn(ImportContext& c) { return Layer(c, {1, {"Tanh"}}).run(); }
Expected<void> import_gru(ImportContext& c) { return Layer(c, {3, {"Sigmoid", "Tanh"}}).run(); }
Expected<void> import_lstm(ImportContext& c) { return Layer(c, {4, {"Sigmoid", "Tanh", "Tanh"}}).run(); }

}  // namespace

const std::vector<ImportRule>& recurrent_rules() {
  static const std::vector<ImportRule> kRules = {{"GRU", "", 7, kLastOpset, import_gru},
                                                 {"LSTM", "", 7, kLastOpset, import_lstm},
                                                 {"RNN", "", 7, kLastOpset, import_rnn}};
  return kRules;
}

}  // namespace piper::ops
