// strategies/lib/pipeline.piper against checked schedules: four worked examples in torch's CSV form, and a grid of
// (P, V, M) as digests. The shipped strategies load for every model they claim to fit.
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "support/strings.h"
#include "tests/frontend/piper/toy_model.h"

using namespace piper;

namespace {

std::string letter(uint32_t passes) { return passes == ir::kPassF ? "F" : passes == ir::kPassB ? "B" : passes == ir::kPassI ? "I" : passes == ir::kPassW ? "W" : "?"; }

// "0F3" for a selector F(stage = 0, mb = 3).
std::string action(const ir::Selector& s) {
  REQUIRE(s.constraints.size() == 2);
  CHECK(s.constraints[0].tag == "stage");
  CHECK(s.constraints[1].tag == "mb");
  return std::to_string(s.constraints[0].values.at(0)) + letter(s.passes) + std::to_string(s.constraints[1].values.at(0));
}

// "0F3", or a group: "0F3&3B1" in lists, "(0F3;3B1)OVERLAP_F_B" in torch's CSV.
std::string element_text(const ir::OrderElement& element, bool csv) {
  std::vector<std::string> actions;
  for (const ir::Selector& s : element.selectors) actions.push_back(action(s));
  if (actions.size() == 1) return actions[0];
  return csv ? fmt::format("({})OVERLAP_F_B", support::join(actions, ";")) : support::join(actions, "&");
}

// The ranks' actions, one line a rank; or the diagnostics when the schedule refuses.
std::string schedule(const std::string& name, int p, int v, int m, const char* separator, bool* refused) {
  bool looped = name == "interleaved_1f1b" || name == "looped_bfs" || name == "interleaved_zb";
  std::string text = fmt::format("use pipeline\ntag stage = 0\nsplit all() into {} as mb\nfor r in 0..{} {{ order pipeline.{}(r, {}, {}{}) }}\n", m, p, name, p,
                                 looped ? std::to_string(v) + ", " : "", m);
  test::Loaded loaded = test::load(text, nullptr);
  *refused = !loaded.ok();
  if (!loaded.ok()) return loaded.errors;
  std::vector<std::string> lines;
  for (const ir::Order& order : loaded.strategy.orders) {
    std::vector<std::string> actions;
    for (const ir::OrderElement& element : order.elements) actions.push_back(element_text(element, *separator == ','));
    lines.push_back(support::join(actions, separator));
  }
  return support::join(lines, "\n");
}

uint64_t fnv1a(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (unsigned char c : text) hash = (hash ^ c) * 1099511628211u;
  return hash;
}

}  // namespace

TEST_CASE("schedules equal the worked examples", "[schedules]") {
  const std::pair<const char*, const char*> kFiles[] = {
      {"gpipe", "gpipe"}, {"one_f_one_b", "1f1b"}, {"interleaved_1f1b", "interleaved_1f1b"}, {"looped_bfs", "looped_bfs"},
      {"zb_h1", "zb_h1"}, {"zb_h2", "zb_h2"}, {"interleaved_zb", "interleaved_zb"}, {"zb_v", "zb_v"}, {"v_half", "v_half"}, {"v_min", "v_min"},
      {"dualpipe_v", "dualpipe_v"}, {"dualpipe", "dualpipe"}};
  for (const auto& [function, file] : kFiles) {
    INFO(function);
    std::ifstream in(std::string("tests/data/schedules/") + file + "_P4_M8.csv");
    REQUIRE(in);
    std::string expected, line;
    while (std::getline(in, line)) {
      if (line.ends_with('\r')) line.pop_back();
      expected += (expected.empty() ? "" : "\n") + line;
    }
    bool refused = false;
    CHECK(schedule(function, 4, 2, 8, ",", &refused) == expected);
  }
}

TEST_CASE("schedules equal the grid", "[schedules]") {
  std::ifstream in("tests/data/schedules/grid.txt");
  REQUIRE(in);
  int cases = 0, refusals = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string name, digest;
    int p = 0, v = 0, m = 0;
    words >> name >> p >> v >> m >> digest;
    INFO(line);
    bool refused = false;
    std::string text = schedule(name, p, v, m, " ", &refused);
    CHECK((refused ? "refused" : fmt::format("{:016x}", fnv1a(text))) == digest);
    cases++;
    refusals += refused;
  }
  CHECK(cases == 2304 + 256);
  CHECK(refusals == 154 + 176);
}

TEST_CASE("shipped strategies load", "[schedules]") {
  const ir::Model model = test::toy_model(8);
  for (const char* name : {"single", "dp", "gpipe", "1f1b", "1f1b_recompute", "interleaved", "looped_bfs", "zb_h1", "zb_h2", "interleaved_zb", "zb_v", "v_half", "v_min", "dualpipe", "dualpipe_v", "fsdp", "hsdp", "interleaved_zero3", "unequal"}) {
    INFO(name);
    test::Loaded loaded = test::load_file(std::string("strategies/") + name + ".piper", &model);
    INFO(loaded.errors);
    CHECK(loaded.ok());
    CHECK(loaded.errors.empty());
  }
  for (const char* name : {"gpipe", "1f1b", "interleaved", "looped_bfs", "zb_h1", "zb_h2", "interleaved_zb"}) {
    frontend::LoadOptions options;
    options.defines = {{"pp", "4"}, {"dp", "2"}, {"microbatches", "4"}};
    test::Loaded loaded = test::load_file(std::string("strategies/") + name + ".piper", &model, options);
    INFO(loaded.errors);
    CHECK(loaded.ok());
    CHECK(loaded.strategy.mesh.world_size() == 8);
    CHECK(loaded.strategy.orders.size() == 4);
  }
}

// The layer globs of the shipped strategies pick the block index in each family's paths, and no other number.
TEST_CASE("layer globs of the families", "[schedules]") {
  const std::pair<const char*, int> kPaths[] = {
      {"transformer.h.3.attn.c_attn", 3}, {"model.layers.11.mlp.up_proj", 11}, {"layers.2", 2}, {"layers.2.linear", 2},
      {"model.layers.4.block_sparse_moe.experts.7.w1", 4}, {"h.5.mlp", 5},
      {"bert.encoder.layer.6.attention.self.query", 6}, {"vit.blocks.7.mlp.fc1", 7}, {"encoder.block.8.layer.1.DenseReluDense.wi", 8}};
  for (const auto& [path, index] : kPaths) {
    INFO(path);
    ir::Model model = test::toy_model(1);
    model.ops[2].path = path;
    model.ops[3].path = path;
    frontend::LoadOptions options;
    options.defines = {{"pp", "1"}};
    test::Loaded loaded = test::load_file("strategies/1f1b.piper", &model, options);
    INFO(loaded.errors);
    REQUIRE(loaded.strategy.tags.size() == 2);
    CHECK(loaded.strategy.tags[0].ops == std::vector<std::pair<ir::OpId, int64_t>>{{ir::OpId(2), index}, {ir::OpId(3), index}});
  }
}
