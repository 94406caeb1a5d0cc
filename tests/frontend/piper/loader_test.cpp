// The loader's options, files and hash.
#include <catch2/catch.hpp>

#include "tests/frontend/piper/toy_model.h"

using namespace piper;

TEST_CASE("a file that is not there", "[loader]") {
  test::Loaded loaded = test::load_file("tests/no_such.piper", nullptr);
  CHECK(!loaded.parsed);
  CHECK(loaded.errors.starts_with("error[E0001]: cannot read `tests/no_such.piper`"));
  CHECK(!test::load_file("tests", nullptr).parsed);
}

TEST_CASE("-D and --set override", "[loader]") {
  const std::string text =
      "param pp = 2 param lr = 0.1 param name = \"a\" param m = 2 * pp\nmesh dev[pp = pp]\ndim \"sequence\" = 64\n"
      "split all() into m as mb\nstream name\ntrain { optimizer sgd(lr = lr) batch 4 }";
  frontend::LoadOptions options;
  options.defines = {{"pp", "4"}, {"lr", "1"}, {"name", "some stream"}, {"sequence", "128"}};
  options.sets = {{"train.batch", "2 * 8"}, {"train.precision", "bf16"}, {"train.loss", "mse(prediction = output \"prediction\", target = input \"y\")"}};
  test::Loaded loaded = test::load(text, nullptr, options);
  INFO(loaded.errors);
  REQUIRE(loaded.ok());
  const ir::Strategy& s = loaded.strategy;
  CHECK(s.mesh.world_size() == 4);
  CHECK(s.dims.at("sequence") == 128);
  CHECK(s.split->count == 8);
  CHECK(s.streams[0].name == "some stream");
  CHECK(s.train.optimizer.lr == 1.0);
  CHECK(s.train.batch == 16);
  CHECK(s.train.precision == ir::DType::kBF16);
  REQUIRE(s.train.loss.size() == 1);
  CHECK(s.train.loss[0].output == "prediction");
}

TEST_CASE("--set changes one argument of a setting, or adds it", "[loader]") {
  frontend::LoadOptions options;
  options.sets = {{"train.optimizer.lr", "lr / 2"}, {"train.optimizer.eps", "1e-3"}, {"train.batch", "8"}};
  test::Loaded loaded = test::load("param lr = 0.5\ntrain { optimizer adamw(lr = lr, weight_decay = 0.2) batch 4 }", nullptr, options);
  INFO(loaded.errors);
  REQUIRE(loaded.ok());
  const ir::Optimizer& o = loaded.strategy.train.optimizer;
  CHECK(o.lr == 0.25);
  CHECK(o.eps == 1e-3);
  CHECK(o.weight_decay == 0.2);
  CHECK(loaded.strategy.train.batch == 8);
}

TEST_CASE("the hash covers text, imports and options", "[loader]") {
  const std::string text = "use pipeline param pp = 2";
  frontend::LoadOptions define, set;
  define.defines = {{"pp", "3"}};
  set.sets = {{"train.batch", "3"}};
  uint64_t plain = test::load(text, nullptr).strategy.hash;
  CHECK(plain == test::load(text, nullptr).strategy.hash);
  CHECK(plain != test::load(text + " ", nullptr).strategy.hash);
  CHECK(plain != test::load(text, nullptr, define).strategy.hash);
  CHECK(plain != test::load(text, nullptr, set).strategy.hash);
  CHECK(test::load(text, nullptr).strategy.text == text);
}

TEST_CASE("a byte order mark does not move spans", "[loader]") {
  test::Loaded loaded = test::load("\xEF\xBB\xBFlet a = \xC3\xA4\n", nullptr);
  CHECK(loaded.errors.find("test.piper:1:10") != std::string::npos);  // the mark is a code point of the first line
}

TEST_CASE("selectors of the library are blamed on the user's line", "[loader]") {
  test::Loaded loaded = test::load("use pipeline\ntag stage = 0\nsplit all() into 2 as mb\norder pipeline.gpipe(0, 1, 2)\n", nullptr);
  REQUIRE(loaded.ok());
  const ir::Selector& s = loaded.strategy.orders.at(0).elements.at(0).selectors.at(0);
  CHECK(s.span.begin == loaded.strategy.orders[0].span.begin + 6);
  CHECK(s.constraints[0].span == s.span);
}

TEST_CASE("operations that depend on no parameter are left to adoption", "[loader]") {
  const ir::Model model = test::toy_model(2);
  test::Loaded loaded = test::load("tag layer = i where path \"transformer.h.{i}.**\"\ntag stage = balanced(layer, 2)", &model);
  REQUIRE(loaded.ok());
  std::vector<std::pair<ir::OpId, int64_t>> expected;
  // Operation 0 is the mask, 1 the embedding, 2..5 the layers, 6 and 7 the head.
  for (auto [op, stage] : {std::pair{1, 0}, {2, 0}, {3, 0}, {4, 1}, {5, 1}, {6, 1}, {7, 1}}) expected.emplace_back(ir::OpId(op), stage);
  CHECK(loaded.strategy.tags.at(1).ops == expected);
}
