// Reading and writing safetensors files, broken and hostile ones included.
#include "runtime/safetensors.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "tests/runtime/tiny_plan.h"
#include "tests/temp_folder.h"

namespace piper::runtime {

namespace {

std::vector<std::byte> file_of(const std::string& header, size_t data_bytes, uint64_t claimed = UINT64_MAX) {
  const uint64_t length = claimed == UINT64_MAX ? header.size() : claimed;
  std::vector<std::byte> bytes(sizeof length + header.size() + data_bytes);
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + sizeof length, header.data(), header.size());
  return bytes;
}

void require_error(const std::vector<std::byte>& bytes, const std::string& part) {
  auto parsed = parse_safetensors(bytes, "hostile.safetensors");
  REQUIRE_FALSE(parsed);
  CHECK_THAT(parsed.error().message, Catch::Contains(part) && Catch::Contains("hostile.safetensors"));
}

}  // namespace

TEST_CASE("a file is read as it was written") {
  test::TempFolder folder;
  const std::string path = folder.file("a.safetensors");
  const double wide[] = {1, 2};
  const float narrow[] = {3, 4, 5, 6, 7, 8};
  {
    auto writer = SafetensorsWriter::create(path, {{"wide", ir::DType::kF64, {2}}, {"narrow", ir::DType::kF32, {2, 3}}, {"none", ir::DType::kF32, {0, 3}}});
    REQUIRE(writer);
    REQUIRE(writer->append(wide, sizeof wide));
    REQUIRE(writer->append(narrow, sizeof narrow));
    CHECK_FALSE(std::filesystem::exists(path));
    REQUIRE(writer->finish());
  }
  CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
  auto file = SafetensorsFile::open(path);
  REQUIRE(file);
  CHECK(file->tensors().size() == 3);
  const TensorView* tensor = file->find("narrow");
  REQUIRE(tensor);
  CHECK(tensor->shape == std::vector<int64_t>{2, 3});
  CHECK(std::memcmp(tensor->data.data(), narrow, sizeof narrow) == 0);
  CHECK(file->find("other") == nullptr);
  CHECK_THAT(file->contents(), Catch::Contains("`wide` f64[2]"));
}

TEST_CASE("a writer that does not finish leaves the old file and nothing else") {
  test::TempFolder folder;
  const std::string path = folder.file("a.safetensors");
  const float value = 1;
  for (bool finish : {true, false}) {
    auto writer = SafetensorsWriter::create(path, {{"a", ir::DType::kF32, {finish ? 1 : 2}}});
    REQUIRE(writer->append(&value, sizeof value));
    if (finish) REQUIRE(writer->finish());
  }
  auto file = SafetensorsFile::open(path);
  REQUIRE(file);
  CHECK(file->find("a")->shape == std::vector<int64_t>{1});
  CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST_CASE("files that others wrote are read") {
  auto file = SafetensorsFile::open("models/gpt_tiny/data.safetensors");
  REQUIRE(file);
  REQUIRE(file->find("tokens"));
  CHECK(file->find("tokens")->shape == std::vector<int64_t>{32, 16});
  CHECK(file->find("tokens")->dtype == ir::DType::kI64);
}

TEST_CASE("broken headers are errors") {
  require_error({}, "0 bytes");
  require_error(file_of("{}", 0, 3), "header claims 3 bytes");
  require_error(file_of("{}", 0, uint64_t{1} << 62), "header claims");
  require_error(file_of("{}", 0, UINT64_MAX - 7), "header claims");
  require_error(file_of("{\"a\":", 0), "not a JSON object");
  require_error(file_of("[1]", 0), "not a JSON object");
  require_error(file_of(std::string(200000, '['), 0), "not a JSON object");
  require_error(file_of("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}", 0), "is no object");
  require_error(file_of("{\"a\":1}", 0), "is no object");
}

TEST_CASE("tensors outside the file, overlapping or of the wrong size are errors") {
  auto entry = [](const std::string& type, const std::string& shape, const std::string& offsets) {
    return R"({"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  auto file = [&](const std::string& a, const std::string& more, size_t bytes) {
    return file_of("{\"a\":" + a + more + "}", bytes);
  };
  require_error(file(entry("F32", "[2]", "[0,8]"), "", 4), "outside the file");
  require_error(file(entry("F32", "[2]", "[8,0]"), "", 8), "outside the file");
  require_error(file(entry("F32", "[2]", "[0,-8]"), "", 8), "data_offsets");
  require_error(file(entry("F32", "[2]", "[0]"), "", 8), "data_offsets");
  require_error(file(entry("F32", "[2]", "[0,8.0]"), "", 8), "data_offsets");
  require_error(file(entry("F32", "[2]", "[0,18446744073709551615]"), "", 8), "data_offsets");
  require_error(file(entry("F32", "[-2]", "[0,8]"), "", 8), "shape");
  require_error(file(entry("F32", "3", "[0,8]"), "", 8), "shape");
  require_error(file(entry("F32", "[3]", "[0,8]"), "", 8), "another size");
  // The product of these sizes is 2 modulo 2^64.
  require_error(file(entry("F32", "[9223372036854775807,2,9223372036854775807]", "[0,8]"), "", 8), "another size");
  require_error(file(entry("F32", "[2]", "[0,8]"), "", 16), "unused");
  require_error(file(entry("F32", "[2]", "[0,8]"), ",\"b\":" + entry("F32", "[2]", "[4,12]"), 12), "overlap");
  require_error(file(entry("F32", "[1]", "[4,8]"), "", 8), "unused");
}

TEST_CASE("types that are not ours are listed, not refused") {
  auto bytes = file_of(R"({"__metadata__":{"k":"v"},"h":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})", 4);
  auto parsed = parse_safetensors(bytes, "f");
  REQUIRE(parsed);
  REQUIRE(parsed->size() == 1);
  CHECK_FALSE((*parsed)[0].dtype);
  CHECK(describe((*parsed)[0]) == "F16[2]");
}

}  // namespace piper::runtime
