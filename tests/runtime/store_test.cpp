// The rendezvous store: values that wait for each other, strangers kept out, ports in use.
#include <arpa/inet.h>
#include <catch2/catch.hpp>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "runtime/store.h"
#include "tests/runtime/ranks.h"

namespace piper::runtime {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::unique_ptr<StoreServer> serve(const std::string& token) {
  auto server = StoreServer::start("127.0.0.1", 0, token);
  REQUIRE(server);
  return std::move(*server);
}

// What the server answers to raw bytes, until it closes.
std::string answer_to(int port, const std::string& bytes) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  timeval limit = {5, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  REQUIRE(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  std::string answer;
  char buffer[256];
  ssize_t got = 0;
  while ((got = ::recv(fd, buffer, sizeof(buffer), 0)) > 0) answer.append(buffer, static_cast<size_t>(got));
  // Closed by the server (0, or a reset), not our time limit.
  const bool closed = got == 0 || errno == ECONNRESET;
  ::close(fd);
  CHECK(closed);
  return answer;
}

}  // namespace

TEST_CASE("store: values reach those who waited and those who come later", "[store]") {
  auto server = serve("secret");
  Failures failures;
  run_threads(6, [&](int i) {
    auto client = StoreClient::connect("127.0.0.1", server->port(), "secret", seconds(5));
    if (!failures.ok(client, "connect")) return;
    if (i == 0) {
      std::this_thread::sleep_for(milliseconds(50));
      server->set("local", "here");
      failures.ok((*client)->set("key", std::string("a\0b", 3)), "set");
      failures.ok((*client)->set("empty", ""), "set");
      return;
    }
    auto value = (*client)->get("key", seconds(5));
    if (failures.ok(value, "get")) failures.check(*value == std::string("a\0b", 3), "wrong value");
    auto empty = (*client)->get("empty", seconds(5));
    if (failures.ok(empty, "get")) failures.check(empty->empty(), "not empty");
    auto local = (*client)->get("local", seconds(5));
    if (failures.ok(local, "get")) failures.check(*local == "here", "wrong value");
  });
  CHECK(failures.all() == "");
}

TEST_CASE("store: large values arrive whole", "[store]") {
  auto server = serve("secret");
  auto a = StoreClient::connect("127.0.0.1", server->port(), "secret", seconds(5));
  auto b = StoreClient::connect("127.0.0.1", server->port(), "secret", seconds(5));
  REQUIRE(a);
  REQUIRE(b);
  std::string value(3 << 20, 'x');
  for (size_t i = 0; i < value.size(); i++) value[i] = static_cast<char>(i * 31);
  REQUIRE((*a)->set("big", value));
  CHECK((*b)->get("big", seconds(5)).value() == value);
  CHECK_FALSE((*a)->set("too big", std::string(65 << 20, 'x')));
}

TEST_CASE("store: waiting has an end", "[store]") {
  auto server = serve("secret");
  auto client = StoreClient::connect("127.0.0.1", server->port(), "secret", seconds(5));
  REQUIRE(client);
  const auto start = std::chrono::steady_clock::now();
  auto value = (*client)->get("never", milliseconds(100));
  REQUIRE_FALSE(value);
  CHECK(value.error().message == "nobody set `never` at the rendezvous within 0.1 s");
  CHECK(std::chrono::steady_clock::now() - start < seconds(3));
  // The connection is still good.
  REQUIRE((*client)->set("never", "now"));
  CHECK((*client)->get("never", milliseconds(100)).value() == "now");
}

TEST_CASE("store: a wrong token is refused and changes nothing", "[store]") {
  auto server = serve("secret");
  for (const std::string token : {"", "secret2", "secre", "Secret"}) {
    auto stranger = StoreClient::connect("127.0.0.1", server->port(), token, seconds(5));
    REQUIRE_FALSE(stranger);
    CHECK(stranger.error().message.find("refused our token") != std::string::npos);
  }
  const std::string set = std::string("\x08\0\0\0", 4) + std::string("S\x01\0\0\0kxx", 8);
  const std::string refused = std::string("\x01\0\0\0N", 5);
  CHECK(answer_to(server->port(), set) == refused);
  CHECK(answer_to(server->port(), std::string("\xff\xff\xff\x7fH", 5)) == "");  // 2 GB of greeting
  CHECK(answer_to(server->port(), std::string(4, '\0')) == "");
  CHECK(answer_to(server->port(), "GET / HTTP/1.1\r\n\r\n") == "");
  auto client = StoreClient::connect("127.0.0.1", server->port(), "secret", seconds(5));
  REQUIRE(client);
  CHECK_FALSE((*client)->get("k", milliseconds(10)));
}

TEST_CASE("store: a port in use is named", "[store]") {
  auto server = serve("a");
  auto second = StoreServer::start("127.0.0.1", server->port(), "b");
  REQUIRE_FALSE(second);
  CHECK(second.error().message == "port " + std::to_string(server->port()) + " is in use");
  CHECK(second.error().help.find("--port") != std::string::npos);
  CHECK_FALSE(StoreServer::start("127.0.0.1", 70000, "b"));
}

TEST_CASE("store: a server that is gone fails its clients", "[store]") {
  auto server = serve("secret");
  auto client = StoreClient::connect("127.0.0.1", server->port(), "secret", seconds(5));
  REQUIRE(client);
  const int port = server->port();
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(50));
    server.reset();
  });
  auto value = (*client)->get("key", seconds(30));
  later.join();
  REQUIRE_FALSE(value);
  CHECK(value.error().message.find("connection to the rendezvous lost") != std::string::npos);
  CHECK_FALSE(StoreClient::connect("127.0.0.1", port, "secret", seconds(5)));
}

TEST_CASE("store: tokens are long and differ", "[store]") {
  CHECK(random_token().size() == 64);
  CHECK(random_token() != random_token());
}

}  // namespace piper::runtime
