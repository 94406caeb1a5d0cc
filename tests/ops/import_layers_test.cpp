// ONNX nodes of layers whose import does more than rename: what is emitted computes what ONNX says.

#include <cmath>

#include "tests/ops/fake_import.h"

namespace piper::ops::test {

namespace {

using Values = std::vector<double>;
const Dim B = Dim::batch_size();

FakeImport node(const std::string& type, Attrs attrs, std::vector<ir::Shape> inputs) {
  std::vector<FakeImport::Input> list;
  for (ir::Shape& shape : inputs) list.push_back(FakeImport::tensor(std::move(shape)));
  return FakeImport(type, 23, std::move(attrs), std::move(list));
}

void check_values(FakeImport& import, const std::map<size_t, Values>& given, const ir::Shape& shape, const Values& want,
                  int64_t batch = 1) {
  REQUIRE(import.import() == "");
  CHECK(import.result().shape == shape);
  Values got = import.values(given, 0, batch);
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); i++) CHECK(got[i] == Approx(want[i]).margin(1e-12));
}

Values waves(size_t n, double phase) {
  Values x;
  for (size_t i = 0; i < n; i++) x.push_back(std::sin(phase + 1.7 * static_cast<double>(i)));
  return x;
}

// x[B, S, H * d] as [B, H, S, d].
Values heads_first(const Values& x, size_t s, size_t heads, size_t d) {
  Values y(x.size());
  for (size_t i = 0; i < x.size(); i++) {
    size_t c = i % d, h = i / d % heads, row = i / (d * heads);
    y[((row / s * heads + h) * s + row % s) * d + c] = x[i];
  }
  return y;
}

}  // namespace

TEST_CASE("MatMul of vectors") {
  const Values v{1, 2}, m{1, 2, 3, 4};
  FakeImport row = node("MatMul", {}, {{2}, {2, 2}});
  check_values(row, {{0, v}, {1, m}}, {2}, {7, 10});
  FakeImport column = node("MatMul", {}, {{2, 2}, {2}});
  check_values(column, {{0, m}, {1, v}}, {2}, {5, 11});
  FakeImport dot = node("MatMul", {}, {{2}, {2}});
  check_values(dot, {{0, v}, {1, v}}, {}, {5});
  FakeImport batch = node("MatMul", {}, {{B, 1, 2}, {2}});
  check_values(batch, {{0, m}, {1, v}}, {B, 1}, {5, 11}, 2);
}

TEST_CASE("Gemm is Linear when it can be") {
  FakeImport linear = node("Gemm", {}, {{B, 2}, {2, 2}, {2}});
  check_values(linear, {{0, {1, 2}}, {1, {1, 2, 3, 4}}, {2, {10, 20}}}, {B, 2}, {17, 30});
  CHECK(linear.kinds == std::vector<std::string>{"Linear"});
  FakeImport transposed = node("Gemm", {{"transB", int64_t{1}}}, {{B, 2}, {3, 2}});
  check_values(transposed, {{0, {1, 2}}, {1, {1, 2, 3, 4, 5, 6}}}, {B, 3}, {5, 11, 17});
  CHECK(transposed.kinds == std::vector<std::string>{"Linear"});
}

TEST_CASE("Gemm in general") {
  const Attrs attrs{{"alpha", 2.0}, {"beta", 0.5}, {"transA", int64_t{1}}};
  FakeImport all = node("Gemm", attrs, {{2, 1}, {2, 2}, {1, 1}});
  check_values(all, {{0, {1, 2}}, {1, {1, 2, 3, 4}}, {2, {10}}}, {1, 2}, {19, 25});
  FakeImport without = node("Gemm", attrs, {{2, 1}, {2, 2}});
  check_values(without, {{0, {1, 2}}, {1, {1, 2, 3, 4}}}, {1, 2}, {14, 20});
  FakeImport column = node("Gemm", {}, {{2, 1}, {1, 2}, {2, 1}});  // no bias: one number a row
  check_values(column, {{0, {1, 2}}, {1, {3, 4}}, {2, {10, 20}}}, {2, 2}, {13, 14, 26, 28});
}

TEST_CASE("LayerNormalization over several dims with a scale that broadcasts") {
  FakeImport norm = node("LayerNormalization", {{"axis", int64_t{1}}, {"epsilon", 0.0}}, {{B, 2, 2}, {2}, {1}});
  check_values(norm, {{0, {1, 3, 1, 3}}, {1, {1, 2}}, {2, {5}}}, {B, 2, 2}, {4, 7, 4, 7});
}

TEST_CASE("statistics of a LayerNormalization are refused when they are read") {
  FakeImport norm("LayerNormalization", 17, {}, {FakeImport::tensor({B, 2}), FakeImport::tensor({2})}, 3);
  CHECK(norm.import().find("statistics") != std::string::npos);
}

TEST_CASE("Conv pads as auto_pad says and refuses what does not fit") {
  const std::vector<int64_t> two{2};
  FakeImport upper = node("Conv", {{"auto_pad", std::string("SAME_UPPER")}, {"strides", two}}, {{B, 1, 4}, {1, 1, 3}});
  check_values(upper, {{0, {1, 2, 3, 4}}, {1, {1, 10, 100}}}, {B, 1, 2}, {321, 43});
  FakeImport lower = node("Conv", {{"auto_pad", std::string("SAME_LOWER")}, {"strides", two}}, {{B, 1, 4}, {1, 1, 3}});
  check_values(lower, {{0, {1, 2, 3, 4}}, {1, {1, 10, 100}}}, {B, 1, 2}, {210, 432});
  CHECK(node("Conv", {}, {{B, 3, 4}, {1, 2, 3}}).import().find("does not fit the channels") != std::string::npos);
  CHECK(node("Conv", {}, {{B, 1, 2}, {1, 1, 3}}).import().find("larger than its input") != std::string::npos);
  CHECK(node("Conv", {}, {{B, 1, B}, {1, 1, 3}}).import().find("only the first dim") != std::string::npos);
  CHECK(node("Conv", {{"strides", std::vector<int64_t>{0}}}, {{B, 1, 4}, {1, 1, 3}})
            .import()
            .find("`strides` has a value of 0") != std::string::npos);
  CHECK(node("Conv", {{"group", int64_t{2}}}, {{B, 2, 4}, {3, 1, 3}}).import().find("its group 2 does not divide") !=
        std::string::npos);
  CHECK(node("ConvTranspose", {{"output_padding", std::vector<int64_t>{5}}}, {{B, 1, 4}, {1, 1, 3}})
            .import()
            .find("does not fit its input") != std::string::npos);
}

TEST_CASE("ConvTranspose with a bias and output_padding") {
  FakeImport transposed =
      node("ConvTranspose", {{"strides", std::vector<int64_t>{2}}, {"output_padding", std::vector<int64_t>{1}}},
           {{B, 1, 2}, {1, 1, 1}, {1}});
  check_values(transposed, {{0, {1, 2}}, {1, {3}}, {2, {10}}}, {B, 1, 4}, {13, 10, 16, 10});
}

TEST_CASE("MaxPool's indices count from the first sample") {
  FakeImport pool("MaxPool", 22, {{"kernel_shape", std::vector<int64_t>{2}}}, {FakeImport::tensor({B, 1, 3})}, 2);
  REQUIRE(pool.import() == "");
  CHECK(pool.values({{0, {1, 3, 2, 6, 5, 4}}}, 1, 2) == Values{1, 1, 3, 4});
}

TEST_CASE("GatherND picks by tuples, within each sample where it has batch dims") {
  const Dim b = Dim::batch_size();
  FakeImport pairs("GatherND", 13, {}, {FakeImport::tensor({2, 3}), FakeImport::tensor({2, 2}, DType::kI64)});
  REQUIRE(pairs.import() == "");
  CHECK(pairs.values({{0, {0, 1, 2, 3, 4, 5}}, {1, {1, 2, -1, -3}}}) == std::vector<double>{5, 3});
  FakeImport rows("GatherND", 13, {}, {FakeImport::tensor({b, 2}), FakeImport::tensor({3, 1}, DType::kI64)});
  REQUIRE(rows.import() == "");
  CHECK(rows.values({{0, {0, 1, 2, 3}}, {1, {1, 0, -1}}}, 0, 2) == std::vector<double>{2, 3, 0, 1, 2, 3});
  FakeImport batched("GatherND", 13, {{"batch_dims", int64_t{1}}}, {FakeImport::tensor({b, 2, 2}), FakeImport::tensor({b, 1, 1}, DType::kI64)});
  REQUIRE(batched.import() == "");
  CHECK(batched.result().shape == ir::Shape{b, 1, 2});
  CHECK(batched.values({{0, {0, 1, 2, 3, 4, 5, 6, 7}}, {1, {1, -2}}}, 0, 2) == std::vector<double>{2, 3, 4, 5});
  FakeImport wide("GatherND", 13, {}, {FakeImport::tensor({2, 3}), FakeImport::tensor({2, 3}, DType::kI64)});
  CHECK(wide.import().find("do not fit") != std::string::npos);
  FakeImport samples("GatherND", 13, {}, {FakeImport::tensor({b, 3}), FakeImport::tensor({2, 2}, DType::kI64)});
  CHECK(samples.import().find("depends on the batch size") != std::string::npos);
}

TEST_CASE("a Range may have a number for each row of the batch") {
  const Dim b = Dim::batch_size();
  FakeImport rows("Range", 13, {}, {FakeImport::number(0, DType::kI64), FakeImport::ints({Dim(0, 3)}), FakeImport::number(1, DType::kI64)});
  REQUIRE(rows.import() == "");
  CHECK(rows.result().shape == ir::Shape{Dim(0, 3)});
  CHECK(rows.values({}, 0, 2) == std::vector<double>{0, 1, 2, 3, 4, 5});
  FakeImport other("Range", 13, {}, {FakeImport::number(1, DType::kI64), FakeImport::ints({b}), FakeImport::number(1, DType::kI64)});
  CHECK(other.import().find("depends on the batch size") != std::string::npos);
}

TEST_CASE("Resize refuses what it does not do") {
  auto resize = [](Attrs attrs, std::vector<Dim> sizes) {
    return FakeImport("Resize", 19, std::move(attrs),
                      {FakeImport::tensor({B, 1, 4}), FakeImport::absent(), FakeImport::absent(),
                       FakeImport::ints(std::move(sizes))});
  };
  FakeImport nearest =
      resize({{"coordinate_transformation_mode", std::string("asymmetric")}, {"nearest_mode", std::string("floor")}},
             {B, 1, 2});
  check_values(nearest, {{0, {1, 2, 3, 4}}}, {B, 1, 2}, {1, 3});
  CHECK(resize({}, {Dim(0, 2), 1, 4}).import().find("depends on the batch size") != std::string::npos);
  CHECK(resize({}, {B, 1, int64_t{1} << 40}).import().find("too much") != std::string::npos);
  CHECK(resize({}, {B, 1, 0}).import().find("to nothing") != std::string::npos);
  CHECK(resize({{"antialias", int64_t{1}}}, {B, 1, 2}).import().find("antialias") != std::string::npos);
  CHECK(resize({{"coordinate_transformation_mode", std::string("tf_crop_and_resize")}}, {B, 1, 2})
            .import()
            .find("tf_crop_and_resize") != std::string::npos);
}

TEST_CASE("BatchNormalization is one of training by its attribute, and by its outputs in old opsets") {
  auto norm = [](int opset, Attrs attrs, size_t outputs) {
    std::vector<FakeImport::Input> inputs{FakeImport::tensor({B, 2, 3})};
    for (int i = 0; i < 4; i++) inputs.push_back(FakeImport::tensor({2}));
    FakeImport import("BatchNormalization", opset, std::move(attrs), std::move(inputs), outputs);
    const std::string error = import.import();
    return error.empty() ? import.kinds.front() : error;
  };
  CHECK(norm(15, {}, 1) == "BatchNormInference");
  CHECK(norm(15, {{"training_mode", int64_t{1}}}, 3) == "BatchNorm");
  CHECK(norm(15, {}, 3).find("`training_mode` is 0") != std::string::npos);
  CHECK(norm(9, {}, 1) == "BatchNormInference");
  CHECK(norm(9, {}, 5).find("saved statistics") != std::string::npos);
  CHECK(norm(9, {}, 3) == "BatchNorm");
}

TEST_CASE("RMSNormalization") {
  for (const char* name : {"RMSNormalization", "SimplifiedLayerNormalization"}) {
    FakeImport norm = node(name, {{"epsilon", 0.0}}, {{B, 2}, {2}});
    check_values(norm, {{0, {1, 7}}, {1, {5, 10}}}, {B, 2}, {1, 14});
  }
}

TEST_CASE("Softmax over an axis counted from either end") {
  for (int64_t axis : {1, -2}) {
    FakeImport softmax = node("Softmax", {{"axis", axis}}, {{B, 2, 1}});
    check_values(softmax, {{0, {0, std::log(3.0)}}}, {B, 2, 1}, {0.25, 0.75});
  }
  CHECK(node("Softmax", {{"axis", int64_t{3}}}, {{B, 2, 1}}).import() != "");
}

TEST_CASE("Attention of three dims is that of four") {
  const Values q = waves(2 * 3 * 8, 0), k = waves(2 * 5 * 4, 1), v = waves(2 * 5 * 6, 2);
  const Attrs causal{{"is_causal", int64_t{1}}};
  FakeImport four = node("Attention", causal, {{B, 4, 3, 2}, {B, 2, 5, 2}, {B, 2, 5, 3}});
  REQUIRE(four.import() == "");
  CHECK(four.result().shape == ir::Shape{B, 4, 3, 3});
  Values want =
      four.values({{0, heads_first(q, 3, 4, 2)}, {1, heads_first(k, 5, 2, 2)}, {2, heads_first(v, 5, 2, 3)}}, 0, 2);
  Attrs attrs = causal;
  attrs.set("q_num_heads", int64_t{4});
  attrs.set("kv_num_heads", int64_t{2});
  FakeImport flat = node("Attention", attrs, {{B, 3, 8}, {B, 5, 4}, {B, 5, 6}});
  REQUIRE(flat.import() == "");
  CHECK(flat.result().shape == ir::Shape{B, 3, 12});
  CHECK(heads_first(flat.values({{0, q}, {1, k}, {2, v}}, 0, 2), 3, 4, 3) == want);
}

TEST_CASE("Attention for generation is refused") {
  const ir::Shape s{B, 1, 2, 4};
  std::vector<FakeImport::Input> inputs(6, FakeImport::tensor(s));
  inputs[3] = FakeImport::absent();
  CHECK(FakeImport("Attention", 23, {}, inputs).import().find("past_key") != std::string::npos);
  CHECK(node("Attention", {{"softcap", 30.0}}, {s, s, s}).import().find("softcap") != std::string::npos);
  CHECK(FakeImport("Attention", 23, {}, {inputs[0], inputs[1], inputs[2]}, 2).import() != "");
}

TEST_CASE("RotaryEmbedding looks angles up by position and leaves the rest of a head") {
  // Positions turn by nothing, a quarter and a half; two heads of three, of which the first two elements turn.
  FakeImport rotary("RotaryEmbedding", 23, {{"num_heads", int64_t{2}}, {"rotary_embedding_dim", int64_t{2}}},
                    {FakeImport::tensor({B, 2, 6}), FakeImport::tensor({3, 1}), FakeImport::tensor({3, 1}),
                     FakeImport::tensor({B, 2}, DType::kI64)});
  check_values(rotary, {{0, {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}}, {1, {1, 0, -1}}, {2, {0, 1, 0}}, {3, {1, 2}}},
               {B, 2, 6}, {-2, 1, 3, -5, 4, 6, -1, -2, 3, -4, -5, 6});
}

TEST_CASE("RotaryEmbedding of four dims with angles of each position") {
  const std::map<size_t, Values> given{{0, {1, 2, 3, 4, 1, 2, 3, 4}}, {1, {0, 1, 0, 1}}, {2, {1, 0, 1, 0}}};
  const std::vector<ir::Shape> shapes{{1, 1, 2, 4}, {1, 2, 2}, {1, 2, 2}};
  FakeImport halves = node("RotaryEmbedding", {}, shapes);
  check_values(halves, given, {1, 1, 2, 4}, {-3, 2, 1, 4, -3, 2, 1, 4});
  FakeImport neighbours = node("RotaryEmbedding", {{"interleaved", int64_t{1}}}, shapes);
  check_values(neighbours, given, {1, 1, 2, 4}, {-2, 1, 3, 4, -2, 1, 3, 4});
}

TEST_CASE("a mean cross-entropy inside the model is a sum and a count") {
  FakeImport loss("SoftmaxCrossEntropyLoss", 13, {{"ignore_index", int64_t{-1}}},
                  {FakeImport::tensor({B, 3}), FakeImport::tensor({B}, ir::DType::kI64)});
  REQUIRE(loss.import().empty());
  // Two equal logits of three, the third out of the race; the second row does not count.
  const std::vector<double> y = loss.values({{0, {5, 5, -1000, 1, 2, 3}}, {1, {1, -1}}}, 0, 2);
  REQUIRE(y.size() == 1);
  CHECK(y[0] == Approx(std::log(2.0)));
  CHECK(loss.result().shape.empty());
}

// Three labels of three classes, the second one ignored; rows of log-probabilities that need not be any.
const std::map<size_t, Values> kRows{{0, {-1, -2, -3, -4, -5, -6, -7, -8, -9}}, {1, {1, -1, 2}}, {2, {10, 1, 3}}};

FakeImport negative_log_likelihood(const std::string& reduction, bool weights, bool ignore) {
  Attrs attrs{{"reduction", reduction}};
  if (ignore) attrs.set("ignore_index", int64_t{-1});
  return FakeImport("NegativeLogLikelihoodLoss", 13, attrs,
                    {FakeImport::tensor({B, 3}), FakeImport::tensor({B}, ir::DType::kI64),
                     weights ? FakeImport::tensor({3}) : FakeImport::absent()});
}

TEST_CASE("negative log-likelihoods with weights and every reduction") {
  const auto value = [&](const std::string& reduction, bool weights) {
    FakeImport loss = negative_log_likelihood(reduction, weights, true);
    REQUIRE(loss.import().empty());
    auto given = kRows;
    if (!weights) given.erase(2);
    return loss.values(given, 0, 3);
  };
  CHECK(value("none", false) == Values{2, 0, 9});
  CHECK(value("none", true) == Values{2, 0, 27});
  CHECK(value("sum", true) == Values{29});
  CHECK(value("mean", false) == Values{5.5});
  CHECK(value("mean", true) == Values{29.0 / 4});  // by the weights of the labels, not by their number
  FakeImport all = negative_log_likelihood("mean", false, false);
  REQUIRE(all.import().empty());
  CHECK(all.values({{0, kRows.at(0)}, {1, {0, 1, 2}}}, 0, 3) == Values{5});
  CHECK(negative_log_likelihood("median", false, false).import().find("no reduction `median`") != std::string::npos);
  FakeImport shape("NegativeLogLikelihoodLoss", 13, {}, {FakeImport::tensor({B, 3}), FakeImport::tensor({B, 3}, ir::DType::kI64)});
  CHECK(shape.import().find("not one for each row") != std::string::npos);
}

TEST_CASE("SoftmaxCrossEntropyLoss also gives its log-probabilities") {
  FakeImport loss("SoftmaxCrossEntropyLoss", 13, {{"reduction", std::string("sum")}},
                  {FakeImport::tensor({B, 2}), FakeImport::tensor({B}, ir::DType::kI64), FakeImport::tensor({2})}, 2);
  REQUIRE(loss.import().empty());
  const std::map<size_t, Values> given{{0, {1, 1, 0, std::log(3.0)}}, {1, {0, 1}}, {2, {2, 5}}};
  CHECK(loss.values(given, 0, 2)[0] == Approx(2 * std::log(2.0) + 5 * std::log(4.0 / 3)));
  CHECK(loss.values(given, 1, 2)[2] == Approx(-std::log(4.0)));
}

}  // namespace piper::ops::test
