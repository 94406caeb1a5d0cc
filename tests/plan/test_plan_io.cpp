// Plans survive writing and reading; files that are no plans, or no longer, are refused with a reason.
#include <sys/resource.h>
#include <xxhash.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <random>

#include "plan/check.h"
#include "plan/codec.h"
#include "plan/plan_io.h"
#include "tests/plan/random_plan.h"
#include "tests/temp_folder.h"
#include "tests/verify/plan_builder.h"

namespace {

using namespace piper;
using plan::Plan;

std::string varint(uint64_t v) {
  std::string out;
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  return out + static_cast<char>(v);
}

// The envelope by hand, with a right checksum around any content.
std::string envelope(const std::string& payload, uint64_t version = 2) {
  uint64_t sum = XXH3_64bits(payload.data(), payload.size());
  std::string bytes = "\x0a\x0apiper-plan\x10";
  bytes.append(varint(version)).append("\x19");
  bytes.append(reinterpret_cast<const char*>(&sum), 8);
  bytes.append("\x22").append(varint(payload.size())).append(payload);
  return bytes;
}

std::string error_of(const std::string& bytes) {
  auto plan = plan::parse_plan(bytes, "x/plan.pb");
  REQUIRE(!plan.has_value());
  CHECK(plan.error().kind == support::ErrorKind::kUser);
  return plan.error().message;
}

// The first problem that `change` makes in a valid plan.
template <class Change>
std::string problem(Change change) {
  Plan plan = testing::build_plan({.widths = {2, 1}, .microbatches = 3, .batch = 7});
  REQUIRE(plan::check(plan).empty());
  change(plan);
  std::vector<plan::Problem> problems = plan::check(plan);
  // The reader says the same.
  CHECK(plan::parse_plan(plan::serialize(plan), "x").has_value() == problems.empty());
  return problems.empty() ? "" : problems.front().where(plan) + problems.front().message;
}

}  // namespace

TEST_CASE("every field of a plan survives") {
  for (uint64_t seed = 0; seed < 300; seed++) {
    Plan plan = testing::random_plan(seed);
    auto bytes = plan::encode(plan);
    REQUIRE(bytes.has_value());
    auto back = plan::decode(*bytes);
    REQUIRE(back.has_value());
    REQUIRE(*back == plan);
    REQUIRE(*plan::encode(*back) == *bytes);
  }
}

TEST_CASE("a plan is written to its folder and read back, and its hash follows its content") {
  const test::TempFolder folder;
  Plan plan = testing::build_plan({});
  std::string where = (folder.path() / "deep" / "a.plan").string();
  REQUIRE(plan::write_plan(plan, where).has_value());
  REQUIRE(plan::write_plan(plan, where).has_value());  // over the old one
  auto back = plan::read_plan(where);
  REQUIRE(back.has_value());
  CHECK(*back == plan);
  CHECK(plan::plan_hash(*back) == plan::plan_hash(plan));
  back->seed++;
  CHECK(plan::plan_hash(*back) != plan::plan_hash(plan));
  // Nothing is left beside it.
  CHECK(std::distance(std::filesystem::directory_iterator(where), {}) == 1);
}

TEST_CASE("what is no folder, or no plan, is said") {
  const test::TempFolder folder;
  std::filesystem::create_directories(folder.path() / "plan.pb");
  CHECK_THAT(plan::read_plan(folder.path().string()).error().message, Catch::Contains("is not a file"));
  CHECK_THAT(plan::read_plan("/nowhere").error().message, Catch::Contains("there is no plan at"));
  CHECK_THAT(plan::write_plan(Plan(), "/proc/x").error().message, Catch::Contains("cannot make the folder"));
  CHECK_THAT(error_of(""), Catch::Contains("is not a Piper plan"));
  CHECK_THAT(error_of("\x08\x07some other protobuf"), Catch::Contains("is not a Piper plan"));
}

TEST_CASE("newer, truncated and changed files are told apart") {
  std::string bytes = plan::serialize(testing::build_plan({}));
  CHECK(bytes == envelope(*plan::encode(testing::build_plan({}))));
  std::string newer = error_of(envelope("\xff\xff\xff", 7));
  CHECK_THAT(newer, Catch::Contains("has format 7") && Catch::Contains("reads formats up to 2"));
  for (size_t size = 12; size < bytes.size(); size += bytes.size() / 97) {
    CHECK_THAT(error_of(bytes.substr(0, size)), Catch::Contains("damaged"));
  }
  std::string changed = bytes;
  changed[bytes.size() / 2] ^= 1;
  CHECK_THAT(error_of(changed), Catch::Contains("checksum"));
  CHECK_THAT(error_of(envelope("\xff\xff\xff")), Catch::Contains("cannot be decoded"));
}

TEST_CASE("hostile content under a right checksum neither crashes nor allocates without bound") {
  std::string payload = *plan::encode(testing::build_plan({.widths = {2, 1}, .microbatches = 3, .batch = 7}));
  std::mt19937_64 rng(11);
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  int read = 0;
  for (int k = 0; k < 20000; k++) {
    std::string bytes = payload;
    for (uint64_t n = 1 + rng() % 3; n > 0; n--) {
      size_t at = rng() % bytes.size();
      if (rng() % 4 == 0) bytes.erase(at, 1 + rng() % 8);
      if (bytes.size() > at) bytes[at] = rng() % 3 == 0 ? '\xff' : static_cast<char>(rng());
    }
    auto plan = plan::parse_plan(envelope(bytes), "x");
    read += plan.has_value() ? 1 : 0;
    // What is accepted is well formed: a second look finds nothing.
    if (plan) REQUIRE(plan::check(*plan).empty());
  }
  getrusage(RUSAGE_SELF, &after);
  CHECK(read > 0);
  CHECK(read < 20000);
  // KiB; AddressSanitizer alone keeps 256 MiB of what was freed.
  CHECK(after.ru_maxrss - before.ru_maxrss < 1024 * 1024);
}

TEST_CASE("indices and sizes are checked") {
  using plan::Opcode;
  auto first = [](Plan& plan, int p, Opcode opcode) -> plan::Instruction& {
    for (plan::Instruction& i : plan.programs[p].instructions) {
      if (i.opcode == opcode) return i;
    }
    throw std::logic_error("no such instruction");
  };
  struct Case {
    const char* text;
    std::function<void(Plan&)> change;
  };
  const Case cases[] = {
      {"its chunk does not exist", [&](Plan& p) { first(p, 0, Opcode::kCompute).chunk = 99; }},
      {"its chunk does not exist", [&](Plan& p) { first(p, 0, Opcode::kCompute).chunk = -1; }},
      {"ranges to the", [&](Plan& p) { first(p, 0, Opcode::kCompute).ranges.pop_back(); }},
      {"declares a wrong access", [&](Plan& p) { first(p, 0, Opcode::kCompute).ranges[0].access = plan::Access::kWrite; }},
      {"its stream does not exist", [&](Plan& p) { first(p, 0, Opcode::kSend).stream = 7; }},
      {"the buffer of a range does not exist", [&](Plan& p) { first(p, 0, Opcode::kSend).ranges[0].buffer = -1; }},
      {"a range is outside buffer", [&](Plan& p) { first(p, 0, Opcode::kSend).ranges[0].offset = 1 << 20; }},
      {"a range is outside buffer", [&](Plan& p) { first(p, 0, Opcode::kSend).ranges[0].per_sample = int64_t{1} << 45; }},
      {"a range of impossible size", [&](Plan& p) { first(p, 0, Opcode::kSend).ranges[0].offset = -4; }},
      {"a range of impossible size", [&](Plan& p) { first(p, 0, Opcode::kSend).ranges[0].fixed = INT64_MAX; }},
      {"which is not an earlier one", [&](Plan& p) { first(p, 0, Opcode::kSend).waits = {1000}; }},
      {"its microbatch does not exist", [&](Plan& p) { first(p, 0, Opcode::kSend).microbatch = 3; }},
      {"a share but no microbatch", [&](Plan& p) { first(p, 0, Opcode::kSend).microbatch = -1; }},
      {"uses a peer that the rank lacks", [&](Plan& p) { first(p, 0, Opcode::kSend).peer = 1; }},
      {"send has no peer", [&](Plan& p) { first(p, 0, Opcode::kSend).peer = -1; }},
      {"uses a piece that the rank lacks", [&](Plan& p) { first(p, 1, Opcode::kRecv).piece = 6; }},
      {"a range is outside buffer", [&](Plan& p) { p.programs[1].buffers[first(p, 1, Opcode::kRecv).ranges[0].buffer].bytes = 16; }},
      {"a piece is outside the batch", [&](Plan& p) { p.ranks[2].pieces[5].offset = 8; }},
      {"uses a group that the rank lacks", [&](Plan& p) { first(p, 0, Opcode::kAllReduce).group = 2; }},
      {"which has another type", [&](Plan& p) { first(p, 0, Opcode::kAllReduce).dtype = plan::DType::kF64; }},
      {"uses a share that the rank lacks", [&](Plan& p) { first(p, 0, Opcode::kSend).share = 1; }},
      {"a share does not list every microbatch", [&](Plan& p) { p.ranks[1].shares[0].pop_back(); }},
      {"a share is outside the batch", [&](Plan& p) { p.ranks[1].shares[0][0].count = 8; }},
      {"has no kernels for 0 samples", [&](Plan& p) { p.ranks[1].shares[0][0].count = 0; }},
      {"its program does not exist", [&](Plan& p) { p.ranks[1].program = 2; }},
      {"is not another rank", [&](Plan& p) { p.ranks[1].peers[0] = 1; }},
      {"is not another rank", [&](Plan& p) { p.ranks[1].peers[0] = 3; }},
      {"a group does not exist", [&](Plan& p) { p.ranks[1].groups[0] = 9; }},
      {"the rank is not in its group", [&](Plan& p) { p.ranks[1].groups[0] = 1; }},
      {"are not ascending ranks", [&](Plan& p) { std::swap(p.groups[0].ranks[0], p.groups[0].ranks[1]); }},
      {"coordinates do not fit the mesh", [&](Plan& p) { p.ranks[1].coordinates.push_back(0); }},
      {"is outside the arena", [&](Plan& p) { p.programs[0].arena_bytes -= 64; }},
      {"is not aligned", [&](Plan& p) { p.programs[0].buffers[0].offset = 4; }},
      {"impossible arena size", [&](Plan& p) { p.programs[0].arena_bytes = INT64_MAX; }},
      {"its input does not exist", [&](Plan& p) { first(p, 0, Opcode::kLoadBatch).input = 2; }},
      {"is smaller than its samples", [&](Plan& p) { first(p, 0, Opcode::kLoadBatch).ranges[0].per_sample = 8; }},
      {"its update does not exist", [&](Plan& p) { first(p, 0, Opcode::kUpdate).update = 1; }},
      {"the optimizer asks for 3", [&](Plan& p) { p.optimizer.kind = plan::OptimizerKind::kSgd; }},
      {"are outside its bucket", [&](Plan& p) { p.updates[0].runs[1].end = 33; }},
      {"are not ascending", [&](Plan& p) { p.updates[0].runs[1].begin = 15; }},
      {"outside the statistics", [&](Plan& p) { p.loss[0].count_index = 4; }},
      {"the statistics buffer is of another kind or too small", [&](Plan& p) { p.stats_count = 5; }},
      {"the statistics buffer does not exist", [&](Plan& p) { p.programs[0].stats_buffer = 99; }},
      {"does not size every slot", [&](Plan& p) { p.chunks[0].variants[0].slot_bytes.pop_back(); }},
      {"uses bytes outside its slot", [&](Plan& p) { p.chunks[0].variants[0].calls[0].inputs[0].offset = 16; }},
      {"uses bytes outside its slot", [&](Plan& p) { p.chunks[0].variants[0].calls[0].inputs[0].shape = {INT64_MAX, 16}; }},
      {"uses a slot that it lacks", [&](Plan& p) { p.chunks[0].variants[0].calls[0].inputs[0].slot = 9; }},
      {"writes its read-only slot", [&](Plan& p) { p.chunks[0].variants[0].calls[0].outputs[0].slot = 0; }},
      {"is smaller than slot", [&](Plan& p) { p.chunks[0].variants[0].slot_bytes[0] = 1 << 20; }},
      {"has no kernels", [&](Plan& p) { p.chunks[0].variants.clear(); }},
      {"is outside buffer `own.w`", [&](Plan& p) { p.programs[0].params[0].offset = 128; }},
      {"a parameter's home does not exist", [&](Plan& p) { p.programs[0].params[0].param = 50; }},
      {"has an impossible shape", [&](Plan& p) { p.params[0].shape = {-1}; }},
      {"a constant's home does not exist", [&](Plan& p) { p.programs[0].constants = {{0, 0}}; }},
      {"its shape asks for 8", [&](Plan& p) { p.constants = {{"c", plan::DType::kF32, {2}, {}}}; }},
      {"its source does not exist", [&](Plan& p) { first(p, 0, Opcode::kSend).source = 2; }},
      {"a contribution of the contract", [&](Plan& p) { p.contract.contributions[0].chunk = 2; }},
      {"the contract's chunks lack names", [&](Plan& p) { p.contract.chunk_names.pop_back(); }},
      {"impossible number of microbatches", [&](Plan& p) { p.microbatches = 0; }},
      {"impossible batch", [&](Plan& p) { p.batch = 0; }},
      {"the plan has no ranks", [&](Plan& p) { p.ranks.clear(); }},
  };
  for (const Case& c : cases) {
    std::string found = problem(c.change);
    INFO(found);
    CHECK_THAT(found, Catch::Contains(c.text));
  }
}
