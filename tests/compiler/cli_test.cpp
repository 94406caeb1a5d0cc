// The command line as a user meets it: exit codes, messages, and nothing left behind.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>

#include "tests/temp_folder.h"

namespace fs = std::filesystem;

namespace {

struct Output {
  int code = -1;
  std::string text;
};

Output run_piper(const std::string& arguments) {
  Output out;
  std::FILE* pipe = popen(fmt::format("'{}' {} 2>&1 </dev/null", PIPER_BINARY, arguments).c_str(), "r");
  std::array<char, 4096> chunk;
  while (size_t n = std::fread(chunk.data(), 1, chunk.size(), pipe)) out.text.append(chunk.data(), n);
  out.code = WEXITSTATUS(pclose(pipe));
  return out;
}

void expect(const std::string& arguments, int code, const std::vector<std::string>& parts) {
  const Output out = run_piper(arguments);
  INFO(arguments << "\n" << out.text);
  CHECK(out.code == code);
  for (const std::string& part : parts) {
    INFO("expected: " << part);
    CHECK(out.text.find(part) != std::string::npos);
  }
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

const std::string kModel = "models/gpt_tiny/gpt_tiny.onnx";

}  // namespace

TEST_CASE("fmt writes files back, or only says what it would do") {
  const piper::test::TempFolder folder;
  const std::string file = folder.file("a.piper"), good = folder.file("b.piper"), bad = folder.file("c.piper");
  write(file, "let a=1\nlet b = 2\n");
  write(good, "let a = 1\n");
  write(bad, "let a =\n");
  expect(fmt::format("fmt --check '{}' '{}'", file, good), 1, {"a.piper"});
  expect(fmt::format("fmt --diff '{}'", file), 0, {"-let a=1\n+let a = 1\n let b = 2\n"});
  expect(fmt::format("fmt --check '{}'", good), 0, {});
  CHECK(read(file) == "let a=1\nlet b = 2\n");
  expect(fmt::format("fmt '{}' '{}' '{}'", bad, file, folder.file("none.piper")), 1, {"error[E0101]", "cannot read"});
  CHECK(read(file) == "let a = 1\nlet b = 2\n");
  CHECK(read(bad) == "let a =\n");
  expect(fmt::format("fmt --message-format=json '{}'", bad), 1, {"\"code\":\"E0101\""});
  expect("fmt -", 0, {});
}

TEST_CASE("init writes a strategy, and never over another file") {
  const piper::test::TempFolder folder;
  const std::string file = folder.file("first.piper");
  expect(fmt::format("init {} --pp 2 --dp 2 -o '{}'", kModel, file), 0, {"it compiles", "piper launch"});
  const std::string first = read(file);
  expect(fmt::format("fmt --check '{}'", file), 0, {});
  expect(fmt::format("init {} -o '{}'", kModel, file), 1, {"is there already", "--force"});
  CHECK(read(file) == first);
  expect(fmt::format("init {} --force -o '{}'", kModel, file), 0, {});
  CHECK(read(file) != first);
  expect(fmt::format("init {} --pp 8 -o -", kModel), 1, {"8 stages for a model of 4 layers", "use a smaller --pp"});
  expect("init models/variants/gpt/script17_both.onnx -o -", 0, {"param sequence = 16", "dim \"sequence\" = sequence"});
  expect("init models/variants/gpt/script17_both.onnx -D sequence=8 -o -", 0, {"param sequence = 8"});
  expect(fmt::format("init {} -D sequence -o -", kModel), 2, {"not of the form name=value"});
}

TEST_CASE("inspect shows the tree, also of what cannot be imported, and what a strategy does") {
  const piper::test::TempFolder folder;
  expect(fmt::format("inspect {} --depth 2", kModel), 0, {"    h.{0..3}     x 4", "list    path \"transformer.h.{i}.**\", i = 0..3"});
  expect(fmt::format("inspect {} --path nothing", kModel), 0, {"no module matches `nothing`"});
  expect(fmt::format("inspect {} --depth -1", kModel), 2, {"--depth"});
  expect("inspect models/variants/gpt/script17_both.onnx", 0, {"dim     `sequence` of `tokens` has no size"});
  expect("inspect models/variants/gpt/script17_both.onnx -D sequence=12", 0, {"tokens: i64[B, 12]"});
  // Copied into every stage that reads it, with the reason.
  expect("inspect models/bert_tiny/bert_tiny.onnx --strategy strategies/1f1b.piper", 0,
         {"layer.{0,1}     stage=0", "adopted", "stage=0 + stage=1", "it depends on no parameter: copied", "stage=1#1", "placed on", "devices"});
  expect(fmt::format("inspect {} --strategy strategies/1f1b.piper -D pp=4", kModel), 0, {"h.3        stage=3", "pp=3"});
  // A strategy with a mistake: the model is shown, then the mistake.
  expect(fmt::format("inspect {} --strategy strategies/1f1b.piper -D pp=9", kModel), 1, {"h.{0..3}", "error[E0302]"});
  std::string unknown = read(kModel);
  for (size_t at = unknown.find("LayerNormalization"); at != std::string::npos; at = unknown.find("LayerNormalization", at)) unknown.replace(at, 18, "LayerNormalizatioX");
  write(folder.file("unknown.onnx"), unknown);
  expect(fmt::format("inspect '{}'", folder.file("unknown.onnx")), 1, {"h.{0..3}", "not supported", "LayerNormalizatioX      9  transformer.h.0.ln_1", "error[E0402]"});
  expect(fmt::format("inspect '{}' --json", folder.file("unknown.onnx")), 1, {"\"op\": \"LayerNormalizatioX\""});
  expect(fmt::format("inspect '{}'", folder.file("missing.onnx")), 1, {"error[E0001]"});
}

TEST_CASE("a strategy called like a library uses the library") {
  const piper::test::TempFolder folder;
  write(folder.file("pipeline.piper"), read("strategies/1f1b.piper"));
  expect(fmt::format("check '{}' {}", folder.file("pipeline.piper"), kModel), 0, {"no errors"});
}

TEST_CASE("usage errors exit with 2 and name what was meant") {
  expect("compil", 2, {"unknown command `compil`", "did you mean `compile`?"});
  expect("compile", 2, {"model is required"});
  expect(fmt::format("compile {} strategies/dp.piper --emit dag:after=nothing", kModel), 2, {"nothing called `dag:after=nothing`", "dag:after=place"});
  expect(fmt::format("compile {} strategies/dp.piper -D dp", kModel), 2, {"`dp` is not of the form name=value"});
  expect("launch --step 3 x.plan", 2, {"unknown option `--step`", "did you mean `--steps`?", "`piper launch --help`"});
  expect("check --message-fromat=json x.piper", 2, {"did you mean `--message-format`?"});
  expect("--version", 0, {"0.1"});
  for (const char* command : {"check", "compile", "explain", "fmt", "init", "inspect", "launch", "show", "verify"}) expect(fmt::format("{} --help", command), 0, {"Example:"});
}

TEST_CASE("a bad model file is refused, and nothing is written") {
  const piper::test::TempFolder folder;
  const std::string bytes = read(kModel);
  write(folder.file("short.onnx"), bytes.substr(0, bytes.size() / 2));
  write(folder.file("text.onnx"), "this is a text, not a model\n");
  std::string unknown = bytes;
  size_t at = unknown.find("LayerNormalization");
  REQUIRE(at != std::string::npos);
  for (; at != std::string::npos; at = unknown.find("LayerNormalization", at)) unknown.replace(at, 18, "LayerNormalizatioX");
  write(folder.file("unknown.onnx"), unknown);
  const size_t before = folder.entries();
  auto compile = [&](const std::string& model) { return fmt::format("compile '{}' strategies/single.piper -o '{}'", model, folder.file("x.plan")); };
  expect(compile(folder.file("missing.onnx")), 1, {"error[E0001]", "missing.onnx"});
  expect(compile(folder.file("short.onnx")), 1, {"error[E0401]"});
  expect(compile(folder.file("text.onnx")), 1, {"error[E0401]"});
  expect(compile(folder.file("unknown.onnx")), 1, {"error[E0402]", "LayerNormalizatioX", "9 nodes", "/transformer/h.0/ln_1/"});
  expect(compile(kModel) + " -D microbatch=2", 1, {"error[E0209]", "did you mean `microbatches`?"});
  CHECK(folder.entries() == before);
}

TEST_CASE("a bad plan, and data that does not fit, are refused before the first step") {
  const piper::test::TempFolder folder;
  const std::string plan = folder.file("x.plan");
  fs::copy_file(kModel, folder.file("model.onnx"));
  expect(fmt::format("compile '{}' strategies/dp.piper --set train.batch=8 -o '{}'", folder.file("model.onnx"), plan), 0, {"compiled and verified"});
  auto launch = [&](const std::string& rest) { return fmt::format("launch '{}' --quiet {}", plan, rest); };
  expect(launch("--data nowhere.bin"), 1, {"nowhere.bin"});
  write(folder.file("short.txt"), "abc");
  expect(launch(fmt::format("--data 'text:{}'", folder.file("short.txt"))), 1, {"error:"});
  // Bytes above 63 are outside this model's vocabulary of 64.
  expect(launch("--data text:models/text/kjv.txt"), 1, {"vocabulary"});
  expect(launch("--data models/mlp/data.safetensors"), 1, {"tokens"});
  expect("launch nowhere.plan --data synthetic", 1, {"nowhere.plan"});

  const int taken = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(bind(taken, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(listen(taken, 1) == 0);
  socklen_t length = sizeof address;
  getsockname(taken, reinterpret_cast<sockaddr*>(&address), &length);
  expect(launch(fmt::format("--data models/gpt_tiny/data.safetensors --port {}", ntohs(address.sin_port))), 1, {"port", "in use"});
  close(taken);

  std::string bytes = read(folder.file("model.onnx"));
  bytes[bytes.size() / 2] ^= 1;
  write(folder.file("model.onnx"), bytes);
  expect(launch("--data models/gpt_tiny/data.safetensors"), 1, {"another model"});
  const std::string file = plan + "/plan.pb";
  write(file, read(file).substr(0, 1000));
  expect(launch("--data models/gpt_tiny/data.safetensors"), 1, {"error:"});
  expect(fmt::format("show '{}'", plan), 1, {"error:"});
}

TEST_CASE("inspect, show, verify and explain answer") {
  const piper::test::TempFolder folder;
  expect("inspect models/mlp/mlp.onnx", 0, {"layers.2.weight"});
  expect("inspect models/mlp/mlp.onnx --json", 0, {"\"layers.2.weight\""});
  expect(fmt::format("compile {} strategies/1f1b.piper -o '{}'", kModel, folder.file("x.plan")), 0, {"pp=0", "pp=1"});
  expect(fmt::format("verify '{}'", folder.file("x.plan")), 0, {"free of deadlock"});
  expect(fmt::format("show '{}' --memory", folder.file("x.plan")), 0, {"activation"});
  expect(fmt::format("show '{}'", folder.file("x.plan")), 0, {"strategies/1f1b.piper"});
  expect("explain e0504", 0, {"E0504"});
  expect("explain E9999", 1, {"there is no code"});
  expect("check strategies/1f1b.piper", 0, {"no errors"});
  expect("check strategies/1f1b.piper models/gpt_tiny/gpt_tiny.onnx", 0, {"no errors"});
}

TEST_CASE("the help of every command is what it was") {
  const std::string golden = "tests/golden/help.txt";
  std::string all;
  for (const char* command : {"", "check", "compile", "explain", "fmt", "init", "inspect", "launch", "show", "verify"}) {
    const Output out = run_piper(fmt::format("{}{}--help", command, *command ? " " : ""));
    REQUIRE(out.code == 0);
    all += fmt::format("$ piper {}{}--help\n{}\n", command, *command ? " " : "", out.text);
  }
  if (std::getenv("PIPER_UPDATE_GOLDEN") != nullptr) write(golden, all);
  CHECK(all == read(golden));
}

TEST_CASE("every kind of error has the form that was asked for") {
  const piper::test::TempFolder folder;
  const std::string bad = folder.write("bad.piper", "mesh dev[dp = 2]\nreplicate all() over pd\n");
  const auto check_json = [&](const std::string& arguments, int code, bool has_code) {
    const Output out = run_piper(arguments + " --message-format=json");
    INFO(arguments << "\n" << out.text);
    CHECK(out.code == code);
    const auto json = nlohmann::json::parse(out.text, nullptr, false);
    REQUIRE(json.is_object());
    CHECK(json["severity"] == "error");
    CHECK(json["code"].is_string() == has_code);
    CHECK(json["message"].is_string());
  };
  check_json(fmt::format("check '{}'", bad), 1, true);
  check_json("show nothing.plan", 1, false);
  check_json("explain E9999", 1, false);
  check_json("compil x y", 2, false);
  check_json("launch --step 3 x.plan", 2, false);
  expect(fmt::format("check '{}' --message-format=short", bad), 1, {":2:22: error[E0303]: "});
  expect("show nothing.plan --message-format short", 1, {"error: there is no plan at"});
}

TEST_CASE("inspect gives a strategy's facts as JSON, too") {
  const Output out = run_piper("inspect models/bert_tiny/bert_tiny.onnx --strategy strategies/1f1b.piper --json");
  REQUIRE(out.code == 0);
  const auto json = nlohmann::json::parse(out.text)["strategy"];
  REQUIRE(json["chunks"].size() == 3);
  CHECK(json["chunks"][0]["placed_on"] == std::vector<std::string>{"pp=0"});
  REQUIRE(json["devices"].size() == 2);
  double share = 0, whole = 0;
  for (const auto& chunk : json["chunks"]) whole += chunk["forward_flops_per_sample"].get<double>();
  for (const auto& device : json["devices"]) share += device["forward_flops_per_sample"].get<double>();
  CHECK(share == whole);
  CHECK(json["devices"][0]["parameters"].get<int64_t>() + json["devices"][1]["parameters"].get<int64_t>() == 28096 + 28640);
  REQUIRE(json["adopted"].size() == 1);
  CHECK(json["adopted"][0]["by"] == std::vector<std::string>{"stage=0", "stage=1"});
  CHECK(json["adopted"][0]["operations"].size() == 4);
  const auto layer = std::find_if(json["tags"].begin(), json["tags"].end(), [](const auto& row) { return row["path"] == "layer.3"; });
  REQUIRE(layer != json["tags"].end());
  CHECK((*layer)["tags"] == std::vector<std::string>{"stage=1"});
}

TEST_CASE("a strategy without a train block only says how inspect reads a model") {
  const piper::test::TempFolder folder;
  const std::string file = folder.write("a.piper", "treat \"**.wpe.weight\" as constant\n");
  const Output out = run_piper(fmt::format("inspect {} --json --strategy '{}'", kModel, file));
  CHECK(out.code == 0);
  const auto json = nlohmann::json::parse(out.text);
  CHECK_FALSE(json.contains("strategy"));
  CHECK(json["totals"]["trainable_elements"] == 53440 - 512);
}
