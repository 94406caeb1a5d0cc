// All the forms in which a tensor can be stored.

#include <catch2/catch.hpp>

#include <cstring>
#include <filesystem>

#include "frontend/onnx/initializer_reader.h"
#include "tests/frontend/onnx/graph_builder.h"

namespace {

using namespace piper;
using frontend::Initializer;
using frontend::InitializerReader;
using ::onnx::TensorProto;

template <class T>
std::vector<T> values_of(const Initializer& tensor) {
  std::vector<T> values(tensor.bytes / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.data, tensor.bytes);
  return values;
}

TensorProto* add(test::GraphBuilder& g, const char* name, int type,
                 const std::vector<int64_t>& dims) {
  TensorProto* tensor = g.graph().add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(type);
  for (int64_t dim : dims) tensor->add_dims(dim);
  return tensor;
}

void set_external(TensorProto* tensor, const std::string& location, const std::string& offset,
                  const std::string& length) {
  tensor->set_data_location(TensorProto::EXTERNAL);
  auto entry = [&](const char* key, const std::string& value) {
    if (value.empty()) return;
    auto* e = tensor->add_external_data();
    e->set_key(key);
    e->set_value(value);
  };
  entry("location", location);
  entry("offset", offset);
  entry("length", length);
}

// The error of finding `w`, which is stored outside, or "" when it is found.
std::string external_error(const test::TempFolder& folder, const std::string& location,
                           const std::string& offset = "", const std::string& length = "") {
  test::GraphBuilder g;
  set_external(add(g, "w", TensorProto::FLOAT, {2}), location, offset, length);
  auto reader = InitializerReader::open(folder.write("model.onnx", g.bytes()));
  REQUIRE(reader);
  auto tensor = reader->find("w");
  return tensor ? "" : tensor.error().message;
}

}  // namespace

TEST_CASE("initializers in typed fields and in raw bytes", "[weights]") {
  test::GraphBuilder g;
  TensorProto* t = add(g, "f32", TensorProto::FLOAT, {2, 1});
  t->add_float_data(1.5f);
  t->add_float_data(-2);
  add(g, "f64", TensorProto::DOUBLE, {1})->add_double_data(0.1);
  add(g, "i64", TensorProto::INT64, {1})->add_int64_data(int64_t{1} << 40);
  add(g, "i32", TensorProto::INT32, {})->add_int32_data(-7);
  add(g, "bool", TensorProto::BOOL, {1})->add_int32_data(1);
  add(g, "bf16", TensorProto::BFLOAT16, {1})->add_int32_data(0x3fc0);
  g.floats("raw", {2}, {3, 4});
  add(g, "empty", TensorProto::FLOAT, {0, 3})->set_raw_data("");
  test::TempFolder folder;
  auto reader = InitializerReader::open(folder.write("model.onnx", g.bytes()));
  REQUIRE(reader);
  CHECK(reader->names() ==
        std::vector<std::string>{"f32", "f64", "i64", "i32", "bool", "bf16", "raw", "empty"});
  auto f32 = reader->find("f32");
  REQUIRE(f32);
  CHECK(f32->dims == std::vector<int64_t>{2, 1});
  CHECK(values_of<float>(*f32) == std::vector<float>{1.5f, -2});
  CHECK(values_of<double>(*reader->find("f64")) == std::vector<double>{0.1});
  CHECK(values_of<int64_t>(*reader->find("i64")) == std::vector<int64_t>{int64_t{1} << 40});
  CHECK(values_of<int32_t>(*reader->find("i32")) == std::vector<int32_t>{-7});
  CHECK(values_of<uint8_t>(*reader->find("bool")) == std::vector<uint8_t>{1});
  CHECK(values_of<uint16_t>(*reader->find("bf16")) == std::vector<uint16_t>{0x3fc0});
  CHECK(values_of<float>(*reader->find("raw")) == std::vector<float>{3, 4});
  CHECK(reader->find("empty")->bytes == 0);
  CHECK(reader->find("f32")->data == f32->data);  // converted once
  CHECK(!reader->find("missing"));
}

TEST_CASE("types without a place in Piper and wrong sizes are errors", "[weights]") {
  test::GraphBuilder g;
  add(g, "half", TensorProto::FLOAT16, {1})->add_int32_data(1);
  add(g, "short", TensorProto::FLOAT, {3})->set_raw_data("1234");
  add(g, "negative", TensorProto::FLOAT, {-1})->set_raw_data("");
  add(g, "huge", TensorProto::FLOAT, {int64_t{1} << 40, int64_t{1} << 40})->set_raw_data("");
  test::TempFolder folder;
  auto reader = InitializerReader::open(folder.write("model.onnx", g.bytes()));
  REQUIRE(reader);
  CHECK(reader->find("half").error().message.find("float16") != std::string::npos);
  CHECK(reader->find("short").error().message.find("need 12") != std::string::npos);
  CHECK(!reader->find("negative"));
  CHECK(!reader->find("huge"));
}

TEST_CASE("external data below the model's folder is mapped", "[weights]") {
  test::TempFolder folder;
  const float values[] = {9, 9, 1, 2};
  folder.write("sub/weights.bin",
               std::string(reinterpret_cast<const char*>(values), sizeof(values)));
  test::GraphBuilder g;
  set_external(add(g, "w", TensorProto::FLOAT, {2}), "sub/weights.bin", "8", "8");
  auto reader = InitializerReader::open(folder.write("model.onnx", g.bytes()));
  REQUIRE(reader);
  auto tensor = reader->find("w");
  REQUIRE(tensor);
  CHECK(values_of<float>(*tensor) == std::vector<float>{1, 2});
  CHECK(external_error(folder, "sub/weights.bin") == "");
}

TEST_CASE("external data elsewhere or cut short is refused", "[weights]") {
  test::TempFolder folder;
  test::TempFolder outside;
  folder.write("short.bin", "12345");
  outside.write("secret.bin", "12345678");
  auto says = [](const std::string& message, const char* part) {
    return message.find(part) != std::string::npos;
  };
  CHECK(says(external_error(folder, outside.file("secret.bin")), "not below"));
  CHECK(says(external_error(folder, "../secret.bin"), "not below"));
  CHECK(says(external_error(folder, "sub/../../secret.bin"), "not below"));
  CHECK(says(external_error(folder, ""), "not below"));
  CHECK(says(external_error(folder, "missing.bin"), "missing"));
  CHECK(says(external_error(folder, "short.bin"), "needs 8 bytes"));
  CHECK(says(external_error(folder, "short.bin", "18446744073709551615"), "needs 8 bytes"));
  CHECK(says(external_error(folder, "short.bin", "x"), "not a number"));
  std::filesystem::create_symlink(outside.file("secret.bin"), folder.file("link.bin"));
  CHECK(says(external_error(folder, "link.bin"), "leads out"));
}
