// Files and nodes that must be refused, each with the code and the words that help.

#include <catch2/catch.hpp>

#include <fstream>
#include <iterator>

#include "tests/frontend/onnx/graph_builder.h"

namespace {

using namespace piper;
using test::GraphBuilder;

void check_refused(const test::Imported& imported, const std::string& code,
                   const std::string& words) {
  INFO(imported.messages);
  CHECK(!imported.model);
  CHECK(imported.errors >= 1);
  CHECK(imported.has(code));
  CHECK(imported.has(words));
}

GraphBuilder small_graph() {
  GraphBuilder g;
  g.output(g.node("MatMul", {g.input("x", {"batch", 4}), g.weight("fc.weight", {4, 4})}));
  return g;
}

}  // namespace

TEST_CASE("files that are no ONNX models", "[bad]") {
  check_refused(test::import_file("/nonexistent/model.onnx"), "E0001", "cannot open");
  check_refused(test::import_file("/tmp"), "E0001", "not a regular file");
  check_refused(test::import_bytes(""), "E0401", "empty");
  check_refused(test::import_bytes("this is some text, and nothing else"), "E0401",
                "not an ONNX model");
  check_refused(test::import_bytes(std::string("PK\x03\x04 and so on", 14)), "E0401",
                "zip archive");
  check_refused(test::import_bytes("GGUF...."), "E0401", "GGUF");
  check_refused(test::import_bytes("version https://git-lfs.github.com/spec/v1\n"), "E0401",
                "git lfs pull");
  check_refused(test::import_bytes(std::string("\x10\0\0\0\0\0\0\0{\"a\": 1}", 16)), "E0401",
                "safetensors");
}

TEST_CASE("a model that was cut off anywhere is refused", "[bad]") {
  const std::string bytes = small_graph().bytes();
  REQUIRE(test::import_bytes(bytes).model);
  for (size_t size = 0; size < bytes.size(); size++) {
    const test::Imported imported = test::import_bytes(bytes.substr(0, size));
    // Only the opset import after the graph may be cut away without a trace in the wire format.
    if (imported.errors == 0) CHECK(size > bytes.size() - 12);
  }
  check_refused(test::import_bytes(bytes.substr(0, bytes.size() / 2)), "E0401", "cut off");
}

TEST_CASE("flipped bytes never crash the importer", "[bad]") {
  const std::string bytes = small_graph().bytes();
  for (size_t at = 0; at < bytes.size(); at++) {
    for (unsigned char flip : {0x01, 0x80, 0xff}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(static_cast<unsigned char>(damaged[at]) ^ flip);
      const test::Imported imported = test::import_bytes(damaged);
      CHECK((imported.model.has_value() != (imported.errors > 0)));
    }
  }
}

TEST_CASE("a newer IR version or opset is a warning (W0401)", "[bad]") {
  GraphBuilder g(24, 14);
  g.output(g.node("Relu", {g.input("x", {"batch", 4})}));
  const test::Imported imported = test::import_graph(g);
  INFO(imported.messages);
  CHECK(imported.model);
  CHECK(imported.errors == 0);
  CHECK(imported.has("IR version 14"));
  CHECK(imported.has("opset 24"));
}

TEST_CASE("all unsupported operators are one error with counts and places", "[bad]") {
  GraphBuilder g;
  std::string x = g.input("x", {"batch", 4});
  x = g.node("RoiAlign", {x}, {}, "/encoder/pool/RoiAlign");
  x = g.node("RoiAlign", {x}, {}, "/encoder/pool/RoiAlign_1");
  x = g.node("NonZero", {x}, {}, "/router/NonZero");
  g.output(x);
  const test::Imported imported = test::import_graph(g);
  check_refused(imported, "E0402", "`NonZero`, `RoiAlign`");
  CHECK(imported.errors == 1);
  CHECK(imported.has("2 nodes"));
  CHECK(imported.has("docs/experts.md"));
  CHECK(imported.has("/encoder/pool/RoiAlign"));
  CHECK(imported.has("/router/NonZero"));
}

TEST_CASE("an operator of another opset or vendor says so", "[bad]") {
  GraphBuilder old(8);
  old.output(old.node("Softmax", {old.input("x", {"batch", 4})}));
  check_refused(test::import_graph(old), "E0402", "not in opset 8");
  GraphBuilder vendor;
  vendor.output(vendor.node("FusedThing", {vendor.input("x", {"batch", 4})}));
  vendor.last_node().set_domain("com.microsoft");
  check_refused(test::import_graph(vendor), "E0402", "without the optimizations");
}

TEST_CASE("malformed attributes are named", "[bad]") {
  GraphBuilder type;
  type.output(
      type.node("Softmax", {type.input("x", {"batch", 4})}, {{"axis", 1.0}}, "/head/Softmax"));
  check_refused(test::import_graph(type), "E0404", "must be an integer");
  GraphBuilder unknown;
  unknown.output(
      unknown.node("Softmax", {unknown.input("x", {"batch", 4})}, {{"axes", 1}}, "/head/Softmax"));
  const test::Imported imported = test::import_graph(unknown);
  check_refused(imported, "E0404", "no attribute `axes`");
  CHECK(imported.has("/head/Softmax"));
  CHECK(imported.has("did you mean `axis`"));
  GraphBuilder twice;
  twice.output(twice.node("Softmax", {twice.input("x", {"batch", 4})}, {{"axis", 1}, {"axis", 1}}));
  check_refused(test::import_graph(twice), "E0404", "twice");
}

TEST_CASE("graphs that do not hang together", "[bad]") {
  GraphBuilder undefined;
  undefined.output(undefined.node("Add", {undefined.input("x", {"batch", 4}), "ghost"}));
  check_refused(test::import_graph(undefined), "E0404", "`ghost`");
  GraphBuilder no_output;
  no_output.node("Relu", {no_output.input("x", {"batch", 4})});
  no_output.output("nothing");
  check_refused(test::import_graph(no_output), "E0404", "`nothing`");
  GraphBuilder cycle;
  const std::string x = cycle.input("x", {"batch", 4});
  const std::string a = cycle.node("Add", {x, "later"});
  cycle.identity(a, "later");
  cycle.output(a);
  check_refused(test::import_graph(cycle), "E0404", "cycle");
  GraphBuilder twice;
  const std::string y = twice.node("Relu", {twice.input("x", {"batch", 4})});
  twice.identity("x", y);
  twice.output(y);
  check_refused(test::import_graph(twice), "E0404", "exists already");
}

TEST_CASE("types and shapes that do not fit name the node, and others are still reported",
          "[bad]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4}), y = g.input("y", {"batch", 5});
  const std::string bad = g.node("Add", {x, y}, {}, "/a/Add");
  g.node("Relu", {bad}, {}, "/a/Relu");  // says nothing of its own
  g.output(g.node("MatMul", {y, g.weight("w", {4, 4})}, {}, "/b/MatMul"));
  const test::Imported imported = test::import_graph(g);
  check_refused(imported, "E0405", "/a/Add");
  CHECK(imported.has("/b/MatMul"));
  CHECK(imported.errors == 2);
}

TEST_CASE("inputs that cannot be fed", "[bad]") {
  GraphBuilder half;
  half.output(half.node("Relu", {half.input("x", {"batch", 4}, ::onnx::TensorProto::FLOAT16)}));
  check_refused(test::import_graph(half), "E0405", "float16");
  GraphBuilder shapeless;
  shapeless.output(shapeless.node("Relu", {shapeless.input("x", {"batch", 4})}));
  shapeless.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->clear_shape();
  check_refused(test::import_graph(shapeless), "E0405", "no shape");
  GraphBuilder uneven;
  uneven.output(uneven.node("Add", {uneven.input("x", {2, 4}), uneven.input("y", {3, 4})}));
  check_refused(test::import_graph(uneven), "E0406", "3 samples");
}

TEST_CASE("external data that is not there", "[bad]") {
  GraphBuilder g = small_graph();
  auto* tensor = g.graph().mutable_initializer(0);
  tensor->clear_raw_data();
  tensor->set_data_location(::onnx::TensorProto::EXTERNAL);
  auto* entry = tensor->add_external_data();
  entry->set_key("location");
  entry->set_value("weights.bin");
  check_refused(test::import_graph(g), "E0408", "`weights.bin`");
  entry->set_value("/etc/passwd");
  check_refused(test::import_graph(g), "E0408", "not below the model's folder");
}

TEST_CASE("parameters that the exporter merged are an error with the recipe", "[bad]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  const std::string y = g.node("Mul", {x, g.weight("ln_1.weight", {4})});
  g.output(g.node("Mul", {y, "ln_1.weight"}));
  test::set_metadata(&g.last_node(), frontend::kNodeMetadata, "pkg.torch.onnx.fx_node",
                     "%mul_1 = call_function(args = (%mul, %p_ln_2_weight), kwargs = {})");
  auto* info = g.graph().add_value_info();
  info->set_name("ln_1.weight");
  test::set_metadata(info, frontend::kValueInfoMetadata,
                     "pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER");
  test::set_metadata(&g.graph(), frontend::kGraphMetadata,
                     "pkg.torch.export.ExportedProgram.graph_signature",
                     "\n# inputs\np_ln_1_weight: PARAMETER target='ln_1.weight'\n"
                     "p_ln_2_weight: PARAMETER target='ln_2.weight'\n");
  check_refused(test::import_graph(g), "E0407", "`ln_2.weight`");
}

TEST_CASE("a parameter that the exporter folded into a constant is an error with the recipe",
          "[bad]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  g.output(g.node("Add", {x, g.weight("embedding_1", {1, 4})}));
  auto* info = g.graph().add_value_info();
  info->set_name("embedding_1");
  test::set_metadata(info, frontend::kValueInfoMetadata, "pkg.onnxscript.optimizer.folded_from",
                     "['wpe.weight', 'arange']");
  test::set_metadata(&g.graph(), frontend::kGraphMetadata,
                     "pkg.torch.export.ExportedProgram.graph_signature",
                     "\n# inputs\np_wpe_weight: PARAMETER target='wpe.weight'\n");
  check_refused(test::import_graph(g), "E0407", "`wpe.weight`");
}
