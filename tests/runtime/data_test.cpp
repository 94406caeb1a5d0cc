// Data sources: what samples they give, in which order, and every way in which data can be wrong.
#include "runtime/data.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <numeric>
#include <set>

#include "runtime/random.h"
#include "tests/runtime/tiny_plan.h"
#include "tests/temp_folder.h"

namespace piper::runtime {

namespace {

using plan::DType;
using plan::Input;

constexpr int64_t kLength = 4;

plan::Plan token_plan(int64_t batch, int64_t vocabulary, DType dtype = DType::kI64) {
  plan::Plan plan;
  plan.batch = batch;
  plan.seed = 3;
  Input tokens{"tokens", dtype, {kLength}};
  Input labels{"labels", dtype, {kLength}, true};
  tokens.vocabulary = labels.vocabulary = vocabulary;
  labels.has_ignore_index = true;
  labels.ignore_index = -100;
  plan.inputs = {tokens, labels};
  return plan;
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string write(const test::TempFolder& folder, const std::string& name, const std::string& bytes) {
  std::ofstream(folder.file(name), std::ios::binary) << bytes;
  return folder.file(name);
}

template <class T = int64_t>
std::vector<T> fill(const Data& data, int32_t input, int64_t step, int64_t start, int64_t count, int64_t elements = kLength) {
  std::vector<T> values(static_cast<size_t>(count * elements));
  auto filled = data.fill(input, step, start, count, reinterpret_cast<std::byte*>(values.data()));
  if (!filled) FAIL(filled.error().message);
  return values;
}

std::vector<uint16_t> counting(int64_t n) {
  std::vector<uint16_t> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), uint16_t{0});
  return values;
}

void require_error(const plan::Plan& plan, const std::string& source, const std::string& part) {
  auto data = Data::open(plan, source, true);
  if (data) {
    auto checked = data->check_values();
    REQUIRE_FALSE(checked);
    CHECK_THAT(checked.error().message, Catch::Contains(part));
  } else {
    CHECK_THAT(data.error().message + "; " + data.error().help, Catch::Contains(part));
  }
}

// A file with one i64 tensor per name, of zeros.
std::string write_tensors(const test::TempFolder& folder, std::vector<TensorInfo> infos) {
  std::sort(infos.begin(), infos.end(), stored_before);
  auto writer = SafetensorsWriter::create(folder.file("d.safetensors"), infos);
  REQUIRE(writer);
  for (const TensorInfo& info : infos) {
    const std::vector<std::byte> zeros(static_cast<size_t>(ir::num_elements(info.shape) * ir::dtype_size(info.dtype)));
    REQUIRE(writer->append(zeros.data(), zeros.size()));
  }
  REQUIRE(writer->finish());
  return folder.file("d.safetensors");
}

}  // namespace

TEST_CASE("the random numbers are Philox's") {
  // Known answers of Philox 4x32-10.
  CHECK(philox(0, 0) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  double sum = 0, squares = 0;
  constexpr int kCount = 20000;
  for (uint64_t i = 0; i < kCount; i++) {
    const double x = random_normal(5, i);
    sum += x;
    squares += x * x;
  }
  CHECK(sum / kCount == Approx(0).margin(0.03));
  CHECK(squares / kCount == Approx(1).epsilon(0.03));
}

TEST_CASE("every epoch is another permutation of all samples") {
  for (int64_t n : {1, 2, 3, 5, 16, 17, 1000}) {
    const SampleOrder order(n, 11, true);
    std::vector<std::vector<int64_t>> epochs;
    for (int64_t epoch = 0; epoch < 3; epoch++) {
      std::vector<int64_t> seen;
      for (int64_t i = 0; i < n; i++) seen.push_back(order.at(epoch * n + i));
      epochs.push_back(seen);
      std::sort(seen.begin(), seen.end());
      for (int64_t i = 0; i < n; i++) REQUIRE(seen[static_cast<size_t>(i)] == i);
    }
    if (n < 16) continue;
    CHECK(epochs[0] != epochs[1]);
    CHECK(epochs[1] != epochs[2]);
    const SampleOrder other(n, 12, true);
    int64_t equal = 0, unmoved = 0;
    for (int64_t i = 0; i < n; i++) {
      equal += other.at(i) == order.at(i);
      unmoved += order.at(i) == i;
    }
    CHECK(equal < n / 2);
    CHECK(unmoved < n / 2);
  }
  const SampleOrder in_order(5, 11, false);
  for (int64_t i = 0; i < 12; i++) CHECK(in_order.at(i) == i % 5);
}

TEST_CASE("tokens come in windows, targets are one ahead") {
  test::TempFolder folder;
  const plan::Plan plan = token_plan(2, 100);
  const std::string path = write(folder, "t.bin", raw(counting(17)));
  auto data = Data::open(plan, path, false);
  REQUIRE(data);
  REQUIRE(data->check_values());
  CHECK(data->samples() == 4);
  CHECK(data->tokens_per_sample() == kLength);
  CHECK(fill(*data, 0, 0, 0, 2) == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(fill(*data, 1, 0, 0, 2) == std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(fill(*data, 1, 1, 1, 1) == std::vector<int64_t>{13, 14, 15, 16});
  // The next epoch starts where the last one ended.
  CHECK(fill(*data, 0, 2, 0, 1) == std::vector<int64_t>{0, 1, 2, 3});
}

TEST_CASE("a step's samples do not depend on who asks, and an epoch has each once") {
  test::TempFolder folder;
  const plan::Plan plan = token_plan(4, 0);
  auto data = Data::open(plan, write(folder, "t.bin", raw(counting(12 * kLength + 1))), true);
  REQUIRE(data);
  std::multiset<int64_t> firsts;
  for (int64_t step = 0; step < 3; step++) {
    const auto whole = fill(*data, 0, step, 0, 4);
    auto parts = fill(*data, 0, step, 0, 1);
    const auto rest = fill(*data, 0, step, 1, 3);
    parts.insert(parts.end(), rest.begin(), rest.end());
    CHECK(parts == whole);
    for (size_t i = 0; i < whole.size(); i += kLength) firsts.insert(whole[i]);
  }
  std::multiset<int64_t> all;
  for (int64_t i = 0; i < 12; i++) all.insert(i * kLength);
  CHECK(firsts == all);
}

TEST_CASE("llm.c's files, 32-bit files and texts are tokens too") {
  test::TempFolder folder;
  std::vector<int32_t> header(256, 0);
  const std::vector<uint32_t> wide = {70000, 1, 2, 3, 4, 5, 6, 7, 8};
  header[0] = 20240801, header[1] = 7, header[2] = 9;
  const plan::Plan plan = token_plan(2, 0, DType::kI32);
  const std::vector<int32_t> expected = {70000, 1, 2, 3};
  auto llmc = Data::open(plan, write(folder, "l.bin", raw(header) + raw(wide)), false);
  REQUIRE(llmc);
  CHECK(fill<int32_t>(*llmc, 0, 0, 0, 1) == expected);
  auto plain = Data::open(plan, "u32:" + write(folder, "w.bin", raw(wide)), false);
  REQUIRE(plain);
  CHECK(fill<int32_t>(*plain, 0, 0, 0, 1) == expected);
  header[0] = 20240520, header[1] = 1;
  auto narrow = Data::open(plan, write(folder, "n.bin", raw(header) + raw(counting(9))), false);
  REQUIRE(narrow);
  CHECK(fill<int32_t>(*narrow, 1, 0, 1, 1) == std::vector<int32_t>{5, 6, 7, 8});
  auto text = Data::open(plan, "text:" + write(folder, "t.txt", "abcdefghi"), false);
  REQUIRE(text);
  CHECK(fill<int32_t>(*text, 0, 0, 0, 1) == std::vector<int32_t>{'a', 'b', 'c', 'd'});

  header[1] = 2;
  require_error(plan, write(folder, "v.bin", raw(header) + raw(counting(9))), "version 2 instead of 1");
  header[1] = 1, header[2] = 10;
  require_error(plan, write(folder, "c.bin", raw(header) + raw(counting(9))), "its header of 10 tokens");
  header[2] = -1;
  require_error(plan, write(folder, "m.bin", raw(header) + raw(counting(9))), "its header of -1 tokens");
}

TEST_CASE("inputs that are known by name are filled beside tokens") {
  test::TempFolder folder;
  plan::Plan plan = token_plan(1, 0);
  plan.inputs.insert(plan.inputs.begin(), Input{"position_ids", DType::kI64, {kLength}});
  plan.inputs.push_back({"attention_mask", DType::kF32, {1, kLength}});
  const std::string path = write(folder, "t.bin", raw(counting(9)));
  auto data = Data::open(plan, path, false);
  REQUIRE(data);
  CHECK(fill(*data, 0, 0, 0, 1) == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(fill(*data, 1, 1, 0, 1) == std::vector<int64_t>{4, 5, 6, 7});
  CHECK(fill<float>(*data, 3, 0, 0, 1) == std::vector<float>(kLength, 1));
  plan.inputs.push_back({"pixels", DType::kF32, {3}});
  require_error(plan, path, "nothing for input `pixels` (f32[3] a sample)");
}

TEST_CASE("tensor files give their rows") {
  const char* path = "models/gpt_tiny/data.safetensors";
  plan::Plan plan = token_plan(8, 64);
  plan.inputs[0].sample_shape = plan.inputs[1].sample_shape = {16};
  auto data = Data::open(plan, path, false);
  REQUIRE(data);
  REQUIRE(data->check_values());  // labels of -100 are fine
  auto file = SafetensorsFile::open(path);
  REQUIRE(file);
  std::vector<int64_t> labels(16);
  std::memcpy(labels.data(), file->find("labels")->data.data() + 9 * 16 * 8, 16 * 8);
  CHECK(fill(*data, 1, 1, 1, 1, 16) == labels);
  plan.inputs[1].has_ignore_index = false;
  require_error(plan, path, "is -100, outside the vocabulary of 64");
}

TEST_CASE("synthetic data has no end and stays in the vocabulary") {
  plan::Plan plan = token_plan(2, 7);
  plan.inputs.push_back({"noise", DType::kF32, {3}});
  auto data = Data::open(plan, "synthetic", true);
  REQUIRE(data);
  std::set<int64_t> seen;
  for (int64_t step = 0; step < 50; step++) {
    const auto tokens = fill(*data, 0, step, 0, 2), labels = fill(*data, 1, step, 0, 2);
    seen.insert(tokens.begin(), tokens.end());
    CHECK(std::equal(tokens.begin() + 1, tokens.begin() + kLength, labels.begin()));
    CHECK(labels[kLength - 1] == tokens[kLength]);
  }
  CHECK(seen == std::set<int64_t>{0, 1, 2, 3, 4, 5, 6});
  CHECK(fill<float>(*data, 2, 0, 0, 2, 3) != fill<float>(*data, 2, 1, 0, 2, 3));
  CHECK(fill<float>(*data, 2, 4, 1, 1, 3) == fill<float>(*data, 2, 4, 1, 1, 3));
}

TEST_CASE("wrong data is refused before the first step") {
  test::TempFolder folder;
  const plan::Plan plan = token_plan(2, 100);
  require_error(plan, "", "no data given");
  require_error(plan, folder.file("none.bin"), "none.bin");
  require_error(plan, folder.file(""), "not a regular file");
  require_error(plan, write(folder, "odd.bin", "abc"), "no whole number of 16-bit tokens");
  require_error(plan, write(folder, "short.bin", raw(counting(8))), "8 tokens, 1 samples of 4; one step takes 2");
  require_error(plan, write(folder, "empty.bin", ""), "0 tokens");
  auto outside = counting(20);
  outside[17] = 100;
  require_error(plan, write(folder, "v.bin", raw(outside)), "token 17 of");
  require_error(plan, folder.file("v.bin"), "is 100, outside the model's vocabulary of 100");

  plan::Plan floats = plan;
  floats.inputs = {{"x", DType::kF32, {4}}};
  require_error(floats, folder.file("v.bin"), "no integer input");
  require_error(plan, write_tensors(folder, {{"tokens", DType::kI64, {2, 4}}, {"other", DType::kI64, {2, 4}}}),
                "no tensor for target `labels` (i64[4] a sample); it has `other` i64[2, 4], `tokens` i64[2, 4]");
  require_error(plan, write_tensors(folder, {{"tokens", DType::kI32, {2, 4}}, {"labels", DType::kI64, {2, 4}}}),
                "is i32[2, 4], unlike input `tokens` (i64[4] a sample)");
  require_error(plan, write_tensors(folder, {{"tokens", DType::kI64, {2, 5}}, {"labels", DType::kI64, {2, 4}}}),
                "is i64[2, 5]");
  require_error(plan, write_tensors(folder, {{"tokens", DType::kI64, {4}}, {"labels", DType::kI64, {2, 4}}}), "is i64[4]");
  require_error(plan, write_tensors(folder, {{"tokens", DType::kI64, {2, 4}}, {"labels", DType::kI64, {3, 4}}}),
                "2 samples of `tokens` but 3 of `labels`");
  require_error(plan, write_tensors(folder, {{"tokens", DType::kI64, {1, 4}}, {"labels", DType::kI64, {1, 4}}}),
                "1 samples; one step takes 2");
  require_error(plan, write(folder, "broken.safetensors", "abc"), "no safetensors file");
}

}  // namespace piper::runtime
