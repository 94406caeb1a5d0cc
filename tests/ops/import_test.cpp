// How ONNX nodes become canonical ops: shapes with a batch size, forms of different opsets, what is refused.

#include "tests/ops/fake_import.h"

namespace piper::ops::test {

namespace {

using Ints = std::vector<int64_t>;
using Values = std::vector<double>;
const Dim B = Dim::batch_size();

FakeImport::Input tensor(ir::Shape shape, DType dtype = DType::kF64) { return FakeImport::tensor(std::move(shape), dtype); }
FakeImport::Input ints(std::vector<Dim> values) { return FakeImport::ints(std::move(values)); }
FakeImport::Input number(double value, DType dtype = DType::kF64) { return FakeImport::number(value, dtype); }

struct Result {
  std::string error;
  ir::Shape shape;
};
Result import(FakeImport node) {
  std::string error = node.import();
  return {error, error.empty() ? node.result().shape : ir::Shape()};
}

Result reshape(ir::Shape from, std::vector<Dim> to, int64_t allow_zero = 0) {
  return import(FakeImport("Reshape", 14, {{"allowzero", allow_zero}}, {tensor(std::move(from)), ints(std::move(to))}));
}

}  // namespace

TEST_CASE("a reshape follows the batch size") {
  CHECK(reshape({B, 64, 160}, {-1, 160}).shape == ir::Shape{Dim(0, 64), 160});
  CHECK(reshape({Dim(0, 64), 160}, {-1, 64, 160}).shape == ir::Shape{B, 64, 160});
  CHECK(reshape({B, 64, 160}, {0, 0, 4, -1}).shape == ir::Shape{B, 64, 4, 40});
  CHECK(reshape({B, 64, 160}, {B, 64, -1}).shape == ir::Shape{B, 64, 160});
  CHECK(reshape({B, 6}, {Dim(0, 2), -1}).shape == ir::Shape{Dim(0, 2), 3});
  CHECK(reshape({3, 4}, {-1}).shape == ir::Shape{12});
  CHECK(reshape({3, 0}, {0, 7}, 1).shape == ir::Shape{0, 7});
  CHECK(reshape({1, 1}, {}).shape == ir::Shape{});
}

TEST_CASE("a reshape that cannot be is refused") {
  CHECK(reshape({B, 64}, {2, 64}).error == "it reshapes [B, 64] to [2, 64], which does not follow the batch size");
  CHECK(reshape({B, 64}, {-1, 7}).error == "it reshapes [B, 64] to [-1, 7], which does not follow the batch size");
  CHECK(reshape({3, 4}, {5, 2}).error == "it reshapes [3, 4] to [5, 2], which has another number of elements");
  CHECK(reshape({3, 4}, {-1, -1}).error == "two dims of the target shape are -1");
  CHECK(reshape({3}, {3, 0}).error == "dim 1 is to be copied, but the input is [3]");
  CHECK_FALSE(import(FakeImport("Reshape", 13, {}, {tensor({3}), tensor({1}, DType::kI64)})).error.empty());
}

TEST_CASE("squeeze, unsqueeze and flatten are reshapes") {
  CHECK(import(FakeImport("Squeeze", 13, {}, {tensor({B, 1, 3, 1}), ints({-1})})).shape == ir::Shape{B, 1, 3});
  CHECK(import(FakeImport("Squeeze", 13, {}, {tensor({B, 1, 3, 1})})).shape == ir::Shape{B, 3});
  CHECK(import(FakeImport("Squeeze", 13, {}, {tensor({2}), ints({0})})).error == "it removes dim 0 of [2], which is not 1");
  CHECK(import(FakeImport("Unsqueeze", 13, {}, {tensor({B, 3}), ints({0, -1})})).shape == ir::Shape{1, B, 3, 1});
  CHECK(import(FakeImport("Unsqueeze", 13, {}, {tensor({}), ints({0})})).shape == ir::Shape{1});
  CHECK(import(FakeImport("Flatten", 13, {}, {tensor({B, 3, 4})})).shape == ir::Shape{B, 12});
  CHECK(import(FakeImport("Flatten", 13, {{"axis", int64_t{0}}}, {tensor({B, 3})})).shape == ir::Shape{1, Dim(0, 3)});
  CHECK(import(FakeImport("Flatten", 13, {{"axis", int64_t{2}}}, {tensor({2, 3})})).shape == ir::Shape{6, 1});
}

TEST_CASE("a slice clamps its ends and runs backwards") {
  auto slice = [](Ints starts, Ints ends, Ints axes, Ints steps) {
    auto dims = [](const Ints& v) { return std::vector<Dim>(v.begin(), v.end()); };
    FakeImport node("Slice", 13, {}, {tensor({5}), ints(dims(starts)), ints(dims(ends)), ints(dims(axes)), ints(dims(steps))});
    REQUIRE(node.import() == "");
    return node.values({{0, {0, 1, 2, 3, 4}}});
  };
  CHECK(slice({1}, {INT64_MAX}, {0}, {1}) == Values{1, 2, 3, 4});
  CHECK(slice({-2}, {100}, {-1}, {1}) == Values{3, 4});
  CHECK(slice({-100}, {-3}, {0}, {1}) == Values{0, 1});
  CHECK(slice({-1}, {INT64_MIN}, {0}, {-1}) == Values{4, 3, 2, 1, 0});
  CHECK(slice({100}, {0}, {0}, {-2}) == Values{4, 2});
  CHECK(slice({3}, {1}, {0}, {1}) == Values{});
}

TEST_CASE("the batch dim is cut at fixed distances from its ends only") {
  auto slice = [](Dim start, Dim end) {
    return import(FakeImport("Slice", 13, {}, {tensor({B, 3}), ints({start}), ints({end}), ints({0})}));
  };
  CHECK(slice(0, INT64_MAX).shape == ir::Shape{B, 3});
  CHECK(slice(0, 1'000'000'000).shape == ir::Shape{B, 3});
  CHECK(slice(1, B).shape == ir::Shape{Dim(-1, 1), 3});
  CHECK(slice(0, -1).shape == ir::Shape{Dim(-1, 1), 3});
  CHECK_FALSE(slice(-1, INT64_MAX).error.empty());
  CHECK_FALSE(slice(0, 1).error.empty());
  const OpDef* def = find_op("Slice");
  const ir::TensorType whole{DType::kF32, {B, 3}}, part{DType::kF32, {Dim(-1, 1), 3}}, columns{DType::kF32, {B, 2}};
  CHECK(def->couples_samples({}, {whole}, {part}));
  CHECK_FALSE(def->couples_samples({}, {whole}, {columns}));
}

TEST_CASE("a split is slices, of given or of equal sizes") {
  FakeImport equal("Split", 18, {{"axis", int64_t{1}}, {"num_outputs", int64_t{3}}}, {tensor({B, 8})}, 3);
  REQUIRE(equal.import() == "");
  CHECK(equal.result(0).shape == ir::Shape{B, 3});
  CHECK(equal.result(2).shape == ir::Shape{B, 2});
  CHECK(equal.values({{0, {0, 1, 2, 3, 4, 5, 6, 7}}}, 2) == Values{6, 7});
  FakeImport given("Split", 13, {{"axis", int64_t{-1}}}, {tensor({B, 8}), ints({5, 3})}, 2);
  REQUIRE(given.import() == "");
  CHECK(given.values({{0, {0, 1, 2, 3, 4, 5, 6, 7}}}, 1) == Values{5, 6, 7});
  CHECK(FakeImport("Split", 13, {}, {tensor({8}), ints({5, 2})}, 2).import() == "its sizes sum to 7, but the dim has 8");
  CHECK(FakeImport("Split", 13, {}, {tensor({B, 8})}, 2).import() == "it splits the batch dim of [B, 8]");
}

TEST_CASE("axes are an attribute or an input, and may be missing") {
  auto mean = [](int opset, Attrs attrs, std::vector<FakeImport::Input> inputs) {
    return import(FakeImport("ReduceMean", opset, std::move(attrs), std::move(inputs))).shape;
  };
  const Ints last = {-1};
  CHECK(mean(13, {{"axes", last}}, {tensor({B, 3})}) == ir::Shape{B, 1});
  CHECK(mean(18, {{"keepdims", int64_t{0}}}, {tensor({B, 3}), ints({1})}) == ir::Shape{B});
  CHECK(mean(18, {}, {tensor({4, 3})}) == ir::Shape{1, 1});
  CHECK(mean(18, {{"noop_with_empty_axes", int64_t{1}}}, {tensor({4, 3})}) == ir::Shape{4, 3});
  CHECK(mean(18, {}, {tensor({})}) == ir::Shape{});
  CHECK(import(FakeImport("ReduceSum", 13, {}, {tensor({2}), ints({3})})).error == "axis 3 of a tensor with 1 dims");
}

TEST_CASE("other reductions are made of sums and maxima") {
  const Values x = {3, -4, 1, 2};
  auto reduce = [&](const char* op) {
    FakeImport node(op, 18, {{"keepdims", int64_t{0}}}, {tensor({2, 2}), ints({1})});
    REQUIRE(node.import() == "");
    CHECK(node.result().shape == ir::Shape{2});
    return node.values({{0, x}});
  };
  CHECK(reduce("ReduceL1") == Values{7, 3});
  CHECK(reduce("ReduceL2")[0] == Approx(5));
  CHECK(reduce("ReduceSumSquare") == Values{25, 5});
  CHECK(reduce("ReduceLogSumExp")[1] == Approx(2.3132616875));
}

TEST_CASE("variadic ops are chains") {
  auto over = [](const char* op) {
    FakeImport node(op, 13, {}, {tensor({2}), tensor({1}), tensor({2})});
    REQUIRE(node.import() == "");
    return node.values({{0, {1, 5}}, {1, {3}}, {2, {2, 10}}});
  };
  CHECK(over("Sum") == Values{6, 18});
  CHECK(over("Max") == Values{3, 10});
  CHECK(over("Min") == Values{1, 3});
  CHECK(over("Mean") == Values{2, 6});
  FakeImport one("Max", 13, {}, {tensor({2})});
  REQUIRE(one.import() == "");
  CHECK(one.kinds.empty());
}

TEST_CASE("clip has optional bounds") {
  FakeImport both("Clip", 13, {}, {tensor({4}), number(-1), number(2)}), upper("Clip", 13, {}, {tensor({4}), FakeImport::absent(), number(2)});
  REQUIRE(both.import() == "");
  REQUIRE(upper.import() == "");
  CHECK(both.values({{0, {-5, 0, 2, 7}}}) == Values{-1, 0, 2, 2});
  CHECK(upper.values({{0, {-5, 0, 2, 7}}}) == Values{-5, 0, 2, 2});
}

TEST_CASE("expand broadcasts both ways and tile repeats") {
  CHECK(import(FakeImport("Expand", 13, {}, {tensor({3, 1}), ints({B, 1, 4})})).shape == ir::Shape{B, 3, 4});
  CHECK(import(FakeImport("Expand", 13, {}, {tensor({3}), ints({2})})).error == "shapes [3] and [2] do not broadcast");
  FakeImport tile("Tile", 13, {}, {tensor({2, 2}), ints({2, 1})});
  REQUIRE(tile.import() == "");
  CHECK(tile.values({{0, {1, 2, 3, 4}}}) == Values{1, 2, 3, 4, 1, 2, 3, 4});
  FakeImport columns("Tile", 13, {}, {tensor({2, 2}), ints({1, 2})});
  REQUIRE(columns.import() == "");
  CHECK(columns.values({{0, {1, 2, 3, 4}}}) == Values{1, 2, 1, 2, 3, 4, 3, 4});
}

TEST_CASE("casts name their types, and casts to the same type vanish") {
  FakeImport node("Cast", 13, {{"to", int64_t{7}}}, {tensor({3})}), none("Cast", 13, {{"to", int64_t{11}}}, {tensor({3})});
  REQUIRE(node.import() == "");
  CHECK(node.values({{0, {1.5, -2.5, 3}}}) == Values{1, -2, 3});
  REQUIRE(none.import() == "");
  CHECK(none.kinds.empty());
  FakeImport like("CastLike", 15, {}, {tensor({1}), tensor({2}, DType::kBool)});
  REQUIRE(like.import() == "");
  CHECK(like.result().dtype == DType::kBool);
  CHECK(FakeImport("Cast", 13, {{"to", int64_t{10}}}, {tensor({1})}).import() == "it casts to float16, which Piper does not have");
}

TEST_CASE("transpose reverses by default") {
  CHECK(import(FakeImport("Transpose", 13, {}, {tensor({B, 3, 4})})).shape == ir::Shape{4, 3, B});
  const Ints twice = {0, 0};
  CHECK(import(FakeImport("Transpose", 13, {{"perm", twice}}, {tensor({2, 3})})).error == "its perm does not name every dim of f64[2, 3] once");
}

TEST_CASE("constants of a shape, ranges and triangles") {
  FakeImport zeros("ConstantOfShape", 13, {}, {ints({2, B})});
  REQUIRE(zeros.import() == "");
  CHECK(zeros.result() == ir::TensorType{DType::kF32, {2, B}});
  FakeImport sevens("ConstantOfShape", 13, {}, {ints({2})});
  sevens.tensor_name = "value";
  sevens.tensor_dtype = DType::kI64;
  sevens.tensor_value = 7;
  REQUIRE(sevens.import() == "");
  CHECK(sevens.result().dtype == DType::kI64);
  CHECK(sevens.values({}) == Values{7, 7});
  FakeImport range("Range", 13, {}, {number(1, DType::kI64), number(7, DType::kI64), number(2, DType::kI64)});
  REQUIRE(range.import() == "");
  CHECK(range.values({}) == Values{1, 3, 5});
  FakeImport lower("Trilu", 14, {{"upper", int64_t{0}}}, {tensor({2, 2}), number(-1, DType::kI64)});
  REQUIRE(lower.import() == "");
  CHECK(lower.values({{0, {1, 2, 3, 4}}}) == Values{0, 0, 3, 0});
}

TEST_CASE("a negative padding cuts") {
  FakeImport node("Pad", 18, {}, {tensor({3}), ints({-1, 2}), number(9), ints({0})});
  REQUIRE(node.import() == "");
  CHECK(node.values({{0, {1, 2, 3}}}) == Values{2, 3, 9, 9});
  CHECK(FakeImport("Pad", 18, {}, {tensor({B, 3}), ints({1, 0, 0, 0})}).import() == "it pads the batch dim of f64[B, 3]");
}

TEST_CASE("a padding repeats the tensor's own values by its mode") {
  auto padded = [](const char* mode, Ints pads, Ints axes, ir::Shape shape, Values x) {
    std::vector<Dim> p(pads.begin(), pads.end()), a(axes.begin(), axes.end());
    FakeImport node("Pad", 19, {{"mode", std::string(mode)}}, {tensor(shape), ints(p), FakeImport::absent(), ints(a)});
    REQUIRE(node.import() == "");
    return node.values({{0, x}});
  };
  CHECK(padded("reflect", {2, 1}, {0}, {4}, {1, 2, 3, 4}) == Values{3, 2, 1, 2, 3, 4, 3});
  CHECK(padded("reflect", {0, 3}, {0}, {4}, {1, 2, 3, 4}) == Values{1, 2, 3, 4, 3, 2, 1});
  CHECK(padded("edge", {2, 1}, {0}, {3}, {1, 2, 3}) == Values{1, 1, 1, 2, 3, 3});
  CHECK(padded("wrap", {2, 1}, {0}, {3}, {1, 2, 3}) == Values{2, 3, 1, 2, 3, 1});
  CHECK(padded("reflect", {1, 0, 0, 1}, {0, 1}, {2, 2}, {1, 2, 3, 4}) == Values{3, 4, 3, 1, 2, 1, 3, 4, 3});
  CHECK(padded("reflect", {-1, 1}, {0}, {4}, {1, 2, 3, 4}) == Values{2, 3, 4, 3});
  auto error = [](const char* mode, ir::Shape shape, std::vector<Dim> pads) {
    return FakeImport("Pad", 19, {{"mode", std::string(mode)}}, {tensor(shape), ints(pads)}).import();
  };
  CHECK(error("reflect", {3}, {3, 0}) == "it pads a dim of 3 by 3 with mode `reflect`");
  CHECK(error("wrap", {3}, {0, 4}) == "it pads a dim of 3 by 4 with mode `wrap`");
  CHECK(error("edge", {B, 3}, {1, 0, 0, 0}) == "it pads the batch dim of f64[B, 3]");
  CHECK(error("mirror", {3}, {1, 1}) == "its mode is `mirror`");
}

TEST_CASE("what old opsets have as attributes") {
  FakeImport clip("Clip", 9, {{"min", -1.0}, {"max", 2.0}}, {tensor({4})});
  REQUIRE(clip.import() == "");
  CHECK(clip.values({{0, {-5, 0, 2, 7}}}) == Values{-1, 0, 2, 2});
  FakeImport pad("Pad", 9, {{"pads", Ints{1, 2}}, {"value", 9.0}}, {tensor({2})});
  REQUIRE(pad.import() == "");
  CHECK(pad.values({{0, {1, 2}}}) == Values{9, 1, 2, 9, 9});
  FakeImport slice("Slice", 9, {{"starts", Ints{1}}, {"ends", Ints{-1}}, {"axes", Ints{1}}}, {tensor({2, 3})});
  REQUIRE(slice.import() == "");
  CHECK(slice.values({{0, {1, 2, 3, 4, 5, 6}}}) == Values{2, 5});
  FakeImport dropout("Dropout", 10, {{"ratio", 0.5}}, {tensor({3})});
  REQUIRE(dropout.import() == "");
  CHECK(dropout.kinds.empty());
  // All dims from the axis on, which is 1 when it is not given.
  FakeImport softmax("Softmax", 11, {}, {tensor({2, 2, 2})});
  REQUIRE(softmax.import() == "");
  CHECK(softmax.result().shape == ir::Shape{2, 2, 2});
  CHECK(softmax.values({{0, {0, 0, 0, 0, 5, 5, 5, 5}}}) == Values(8, 0.25));
  FakeImport last("Softmax", 11, {{"axis", int64_t{-1}}}, {tensor({2, 2})});
  REQUIRE(last.import() == "");
  CHECK(last.kinds == std::vector<std::string>{"Softmax"});
}

TEST_CASE("dropout only drops in training") {
  FakeImport inference("Dropout", 13, {}, {tensor({B, 3})});
  REQUIRE(inference.import() == "");
  CHECK(inference.kinds.empty());
  FakeImport training("Dropout", 13, {}, {tensor({2, Dim(0, 4), 3}), number(0.25), number(1, DType::kBool)});
  REQUIRE(training.import() == "");
  REQUIRE(training.kinds == std::vector<std::string>{"Dropout"});
  const Attrs& attrs = training.model.ops[0].attrs;
  CHECK(attrs.f("ratio") == 0.25);
  CHECK(attrs.i("outer") == 2);
  CHECK(attrs.i("inner") == 12);
  CHECK(FakeImport("Dropout", 13, {}, {tensor({3}), number(1.5), number(1, DType::kBool)}).import() == "its ratio is 1.500000, not in [0, 1)");
}

TEST_CASE("gather puts the indices' shape in place of the axis") {
  CHECK(import(FakeImport("Gather", 13, {}, {tensor({50, 8}), tensor({B, 4}, DType::kI64)})).shape == ir::Shape{B, 4, 8});
  CHECK(import(FakeImport("Gather", 13, {{"axis", int64_t{1}}}, {tensor({B, 4, 8}), tensor({}, DType::kI64)})).shape == ir::Shape{B, 8});
  CHECK_FALSE(import(FakeImport("Gather", 13, {{"axis", int64_t{1}}}, {tensor({B, 4}), tensor({B}, DType::kI64)})).error.empty());
  const OpDef* def = find_op("Gather");
  const ir::TensorType table{DType::kF32, {50, 8}}, batch{DType::kF32, {B, 8}}, index{DType::kI64, {3}};
  CHECK_FALSE(def->couples_samples({{"axis", int64_t{0}}}, {table, index}, {}));
  CHECK(def->couples_samples({{"axis", int64_t{0}}}, {batch, index}, {}));
}

TEST_CASE("samples are joined by reductions and reshapes only where they meet") {
  const OpDef* sum = find_op("ReduceSum");
  const ir::TensorType x{DType::kF32, {B, 3}}, turned{DType::kF32, {3, B}}, flat{DType::kF32, {Dim(0, 3)}};
  const Ints first = {0}, second = {1};
  CHECK(sum->couples_samples({{"axes", first}}, {x}, {}));
  CHECK_FALSE(sum->couples_samples({{"axes", second}}, {x}, {}));
  const OpDef* reshape_op = find_op("Reshape");
  CHECK_FALSE(reshape_op->couples_samples({}, {x}, {flat}));
  CHECK(reshape_op->couples_samples({}, {x}, {turned}));
}

TEST_CASE("operands of different types are refused") {
  CHECK(import(FakeImport("Add", 13, {}, {tensor({2}), tensor({2}, DType::kI64)})).error == "its operands have types f64[2] and i64[2]");
  CHECK(import(FakeImport("Add", 13, {}, {tensor({2}), tensor({3})})).error == "shapes [2] and [3] do not broadcast");
  CHECK(import(FakeImport("Concat", 13, {{"axis", int64_t{0}}}, {tensor({B, 2}), tensor({B, 2})})).error ==
        "it joins f64[B, 2] and f64[B, 2] along the dim that carries the samples");
}

}  // namespace piper::ops::test
