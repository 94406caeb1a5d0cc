#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "runtime/store.h"
#include "runtime/store_wire.h"

namespace piper::runtime {

namespace {

using namespace store_wire;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The server answers a get that ran out of time itself; only then do we give up on the connection.
constexpr milliseconds kSlack{5000};

class Client : public StoreClient {
 public:
  explicit Client(int fd) : fd_(fd) {}
  ~Client() override { ::close(fd_); }

  Expected<void> set(const std::string& key, const std::string& value) override {
    std::string payload(1, kSet);
    put_u32(payload, static_cast<uint32_t>(key.size()));
    payload += key + value;
    if (payload.size() > kMaxFrame) return support::user_error("a value is too long for the rendezvous");
    auto reply = call(payload, kSlack);
    if (!reply) return tl::make_unexpected(reply.error());
    if ((*reply)[0] != kOk) return support::user_error("the rendezvous refused a value");
    return {};
  }

  Expected<std::string> get(const std::string& key, milliseconds timeout) override {
    std::string payload(1, kGet);
    put_u32(payload, static_cast<uint32_t>(timeout.count()));
    payload += key;
    auto reply = call(payload, timeout + kSlack);
    if (!reply) return reply;
    if ((*reply)[0] == kTimeout) {
      return support::user_error(
          fmt::format("nobody set `{}` at the rendezvous within {:.1f} s", key, timeout.count() / 1000.0));
    }
    return reply->substr(1);
  }

  // Sends a frame and waits for the one that answers it.
  Expected<std::string> call(const std::string& payload, milliseconds timeout) {
    std::lock_guard lock(mutex_);
    const auto deadline = Clock::now() + timeout;
    std::string out = frame(payload);
    size_t sent = 0;
    while (sent < out.size()) {
      const ssize_t n = ::send(fd_, out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return lost(std::strerror(errno));
      sent += static_cast<size_t>(n);
    }
    auto header = receive(4, deadline);
    if (!header) return header;
    const size_t length = get_u32(*header);
    if (length == 0 || length > kMaxFrame) return lost("not a frame of ours");
    return receive(length, deadline);
  }

 private:
  static tl::unexpected<support::Error> lost(std::string_view why) {
    return support::user_error(fmt::format("connection to the rendezvous lost: {}", why));
  }

  Expected<std::string> receive(size_t bytes, Clock::time_point deadline) {
    std::string in(bytes, '\0');
    size_t got = 0;
    while (got < bytes) {
      pollfd ready = {fd_, POLLIN, 0};
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
      const int n = left <= 0 ? 0 : ::poll(&ready, 1, static_cast<int>(std::min<int64_t>(left, 1 << 30)));
      if (n < 0 && errno == EINTR) continue;
      if (n == 0) return lost("no answer");
      const ssize_t count = ::recv(fd_, in.data() + got, bytes - got, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count == 0) return lost("closed");
      if (count < 0) return lost(std::strerror(errno));
      got += static_cast<size_t>(count);
    }
    return in;
  }

  const int fd_;
  std::mutex mutex_;
};

// A connected socket, or -1 with errno set.
int open_socket(const sockaddr_in& address, milliseconds timeout) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  timeval limit = {timeout.count() / 1000, static_cast<suseconds_t>(timeout.count() % 1000 * 1000)};
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));  // also limits connect
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    ::close(fd);
    errno = error;
    return -1;
  }
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

}  // namespace

Expected<std::unique_ptr<StoreClient>> StoreClient::connect(const std::string& host, int port,
                                                            const std::string& token, milliseconds timeout) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    return support::user_error(fmt::format("`{}` is not an IPv4 address", host));
  }
  const int fd = open_socket(address, timeout);
  if (fd < 0) {
    return support::user_error(
        fmt::format("cannot reach the rendezvous at {}:{}: {}", host, port, std::strerror(errno)));
  }
  auto client = std::make_unique<Client>(fd);
  auto reply = client->call(std::string(1, kHello) + std::string(kGreeting) + token, timeout);
  if (!reply) return tl::make_unexpected(reply.error());
  if ((*reply)[0] != kOk) {
    return support::user_error(fmt::format("the rendezvous at {}:{} refused our token", host, port),
                               "another job may use this port");
  }
  return client;
}

}  // namespace piper::runtime
