// Evaluation of small integer tensors in terms of the batch size.

#include <catch2/catch.hpp>

#include <climits>

#include "frontend/onnx/known_ints.h"

namespace {

using namespace piper;
using frontend::KnownInts;
using ir::Dim;

const Dim kB = Dim::batch_size();

KnownInts list(std::vector<Dim> values) {
  return {ir::DType::kI64, {static_cast<int64_t>(values.size())}, std::move(values)};
}
KnownInts number(Dim value) { return {ir::DType::kI64, {}, {value}}; }

// "[1, B]:[2]" for values and shape, or "unknown".
std::string evaluate(const std::string& op, const std::vector<KnownInts>& inputs,
                     const ir::Attrs& attrs = {}, int opset = 17) {
  frontend::KnownNode node{op, opset, attrs, {}};
  for (const KnownInts& input : inputs) node.inputs.push_back(&input);
  auto result = frontend::evaluate_known(node);
  if (!result) return "unknown";
  return to_string(ir::Shape(result->values)) + ":" +
         to_string(ir::Shape(result->shape.begin(), result->shape.end()));
}

}  // namespace

TEST_CASE("arithmetic on dims that follow the batch", "[known]") {
  CHECK(evaluate("Add", {list({kB, 2}), list({1, 3})}) == "[B+1, 5]:[2]");
  CHECK(evaluate("Sub", {list({kB, 2}), list({kB, 3})}) == "[0, -1]:[2]");
  CHECK(evaluate("Mul", {list({kB, 2}), number(3)}) == "[3B, 6]:[2]");
  CHECK(evaluate("Mul", {number(kB), number(kB)}) == "unknown");
  CHECK(evaluate("Div", {number(Dim(0, 6)), number(3)}) == "[2B]:[]");
  CHECK(evaluate("Div", {number(kB), number(2)}) == "unknown");
  CHECK(evaluate("Div", {number(Dim(0, 6)), number(kB)}) == "[6]:[]");
  CHECK(evaluate("Div", {number(-7), number(2)}) == "[-3]:[]");
  CHECK(evaluate("Div", {number(7), number(0)}) == "unknown");
  CHECK(evaluate("Neg", {number(kB)}) == "[-B]:[]");
  CHECK(evaluate("ReduceProd", {list({2, kB, 3})}, {{"keepdims", int64_t{0}}}) == "[6B]:[]");
}

TEST_CASE("comparisons hold for every batch size or are unknown", "[known]") {
  CHECK(evaluate("Equal", {list({kB, 4}), list({-1, 4})}) == "[0, 1]:[2]");
  CHECK(evaluate("Equal", {number(kB), number(3)}) == "unknown");
  CHECK(evaluate("Equal", {number(kB), number(kB)}) == "[1]:[]");
  CHECK(evaluate("Greater", {number(kB), number(0)}) == "[1]:[]");
  CHECK(evaluate("Greater", {number(kB), number(1)}) == "unknown");
  CHECK(evaluate("Less", {number(kB), number(1)}) == "unknown");
  CHECK(evaluate("LessOrEqual", {number(0), number(kB)}) == "[1]:[]");
  CHECK(evaluate("Min", {number(kB), number(0)}) == "[0]:[]");
  CHECK(evaluate("Max", {number(kB), number(0)}) == "[B]:[]");
  CHECK(evaluate("Max", {number(kB), number(4)}) == "unknown");
  CHECK(evaluate("Where", {KnownInts{ir::DType::kBool, {2}, {1, 0}}, list({kB, kB}), number(5)}) ==
        "[B, 5]:[2]");
}

TEST_CASE("picking and joining", "[known]") {
  CHECK(evaluate("Gather", {list({kB, 6, 8}), number(-1)}) == "[8]:[]");
  CHECK(evaluate("Gather", {list({kB, 6, 8}), list({0, 2})}) == "[B, 8]:[2]");
  CHECK(evaluate("Gather", {list({kB}), number(1)}) == "unknown");
  CHECK(evaluate("Concat", {list({kB}), list({2, 3})}, {{"axis", int64_t{0}}}) == "[B, 2, 3]:[3]");
  CHECK(evaluate("Slice", {list({kB, 6, 8}), list({1}), list({INT64_MAX})}) == "[6, 8]:[2]");
  CHECK(evaluate("Slice", {list({kB, 6, 8}), list({INT64_MIN}), list({-1})}) == "[B, 6]:[2]");
  CHECK(evaluate("Slice", {list({1, 2, 3}), list({2}), list({INT64_MIN}), list({0}), list({-1})}) ==
        "[3, 2, 1]:[3]");
  CHECK(evaluate("Slice", {list({1, 2, 3}), list({0}), list({3}), list({0}), list({2})}) ==
        "[1, 3]:[2]");
  CHECK(evaluate("Slice", {list({1, 2, 3}), list({5}), list({9})}) == "[]:[0]");
  CHECK(evaluate("Unsqueeze", {number(kB), list({0})}) == "[B]:[1]");
  CHECK(evaluate("Unsqueeze", {number(kB)}, {{"axes", std::vector<int64_t>{0}}}, 11) == "[B]:[1]");
  CHECK(evaluate("Squeeze", {list({kB})}) == "[B]:[]");
  CHECK(evaluate("Squeeze", {list({kB, 2}), list({0})}) == "unknown");
  CHECK(evaluate("Reshape", {number(kB), list({-1})}) == "[B]:[1]");
  CHECK(evaluate("Reshape", {list({1, 2, 3, 4}), list({2, -1})}) == "[1, 2, 3, 4]:[2, 2]");
  CHECK(evaluate("Reshape", {list({1, 2, 3}), list({2, -1})}) == "unknown");
  CHECK(evaluate("Range", {number(0), number(5), number(2)}) == "[0, 2, 4]:[3]");
  CHECK(evaluate("Range", {number(0), number(kB), number(1)}) == "unknown");
  CHECK(evaluate("Range", {number(0), number(1000000), number(1)}) == "unknown");
}

TEST_CASE("casts between integers, and to bool when the sign is known", "[known]") {
  CHECK(evaluate("Cast", {number(kB)}, {{"to", int64_t{7}}}) == "[B]:[]");
  CHECK(evaluate("Cast", {number(kB)}, {{"to", int64_t{9}}}) == "[1]:[]");
  CHECK(evaluate("Cast", {number(kB)}, {{"to", int64_t{1}}}) == "unknown");
  CHECK(evaluate("Erf", {number(1)}) == "unknown");
}

TEST_CASE("Shape with start and end, and Size", "[known]") {
  const ir::Shape shape{kB, 6, 8};
  auto text = [](const KnownInts& known) { return to_string(ir::Shape(known.values)); };
  CHECK(text(frontend::known_shape(shape, {})) == "[B, 6, 8]");
  CHECK(text(frontend::known_shape(shape, {{"start", int64_t{1}}})) == "[6, 8]");
  CHECK(text(frontend::known_shape(shape, {{"start", int64_t{-1}}})) == "[8]");
  CHECK(text(frontend::known_shape(shape, {{"end", int64_t{-1}}})) == "[B, 6]");
  CHECK(text(frontend::known_shape(shape, {{"start", int64_t{2}}, {"end", int64_t{1}}})) == "[]");
  CHECK(text(frontend::known_shape(shape, {{"end", int64_t{99}}})) == "[B, 6, 8]");
  CHECK(text(*frontend::known_size(shape)) == "[48B]");
  CHECK(!frontend::known_size({kB, kB}));
}
