#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/store.h"
#include "runtime/store_wire.h"

namespace piper::runtime {

namespace {

using namespace store_wire;
using Clock = std::chrono::steady_clock;

// Time for a connection to say the token; strangers must not hold our descriptors.
constexpr auto kHelloTime = std::chrono::seconds(10);

// Equal in a time that does not depend on where they differ.
bool equal_tokens(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); i++) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

struct Connection {
  int fd = -1;
  bool known = false;  // said the token
  bool closing = false;
  std::string in, out;
  std::optional<std::string> wanted;  // key of a get that waits
  Clock::time_point deadline;         // of the greeting, then of the get
};

class Server : public StoreServer {
 public:
  Server(int listener, int wake, int port, std::string token)
      : listener_(listener), wake_(wake), port_(port), token_(std::move(token)) {
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake();
    thread_.join();
    for (Connection& c : connections_) ::close(c.fd);
    ::close(listener_);
    ::close(wake_);
  }

  int port() const override { return port_; }
  void set(const std::string& key, const std::string& value) override {
    {
      std::lock_guard lock(mutex_);
      values_[key] = value;
    }
    wake();
  }

 private:
  void wake() {
    const uint64_t one = 1;
    // The counter of an eventfd is only full when the thread is about to wake anyway.
    [[maybe_unused]] ssize_t written = ::write(wake_, &one, sizeof(one));
  }
  void serve();
  int poll_once();
  void accept_all();
  void read_some(Connection& c);
  void take_frames(Connection& c);
  void handle(Connection& c, std::string_view payload);
  void answer_waiting(Connection& c);
  static void reply(Connection& c, char kind, std::string_view rest = {}) {
    put_u32(c.out, static_cast<uint32_t>(rest.size() + 1));
    c.out.push_back(kind);
    c.out.append(rest);
  }

  const int listener_, wake_, port_;
  const std::string token_;
  std::list<Connection> connections_;  // of the thread alone
  std::mutex mutex_;                   // guards values_, stop_
  std::map<std::string, std::string> values_;
  bool stop_ = false;
  std::thread thread_;
};

void Server::serve() {
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (stop_) return;
    }
    poll_once();
    for (Connection& c : connections_) answer_waiting(c);
    for (auto c = connections_.begin(); c != connections_.end();) {
      if (!c->out.empty()) {
        const ssize_t sent = ::send(c->fd, c->out.data(), c->out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) c->out.erase(0, static_cast<size_t>(sent));
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
          c->closing = true;
          c->out.clear();
        }
      }
      if (c->closing && c->out.empty()) {
        ::close(c->fd);
        c = connections_.erase(c);
      } else {
        ++c;
      }
    }
  }
}

int Server::poll_once() {
  std::vector<pollfd> fds = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
  auto next = Clock::now() + std::chrono::hours(1);
  for (Connection& c : connections_) {
    fds.push_back({c.fd, static_cast<short>(POLLIN | (c.out.empty() ? 0 : POLLOUT)), 0});
    if (c.wanted || !c.known) next = std::min(next, c.deadline);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
  const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(std::max<int64_t>(left, 0)));
  if (ready <= 0) return ready;
  if (fds[0].revents != 0) {
    uint64_t count = 0;
    [[maybe_unused]] ssize_t got = ::read(wake_, &count, sizeof(count));
  }
  size_t i = 2;
  for (Connection& c : connections_) {
    if (fds[i++].revents & (POLLIN | POLLHUP | POLLERR)) read_some(c);
  }
  if (fds[1].revents != 0) accept_all();
  return ready;
}

void Server::accept_all() {
  while (true) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    Connection c;
    c.fd = fd;
    c.deadline = Clock::now() + kHelloTime;
    connections_.push_back(std::move(c));
  }
}

void Server::read_some(Connection& c) {
  char buffer[16384];
  while (!c.closing) {
    const ssize_t got = ::recv(c.fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (got <= 0) {
      c.closing = true;
      c.out.clear();
      return;
    }
    c.in.append(buffer, static_cast<size_t>(got));
    take_frames(c);
  }
}

void Server::take_frames(Connection& c) {
  while (!c.closing && c.in.size() >= 4) {
    const size_t length = get_u32(c.in);
    if (length == 0 || length > (c.known ? kMaxFrame : kMaxHello)) {
      c.closing = true;
      return;
    }
    if (c.in.size() < 4 + length) return;
    handle(c, std::string_view(c.in).substr(4, length));
    c.in.erase(0, 4 + length);
  }
}

void Server::handle(Connection& c, std::string_view payload) {
  const char kind = payload[0];
  payload.remove_prefix(1);
  if (!c.known) {
    const bool greeted = kind == kHello && payload.substr(0, kGreeting.size()) == kGreeting;
    c.known = greeted && equal_tokens(payload.substr(kGreeting.size()), token_);
    reply(c, c.known ? kOk : kRefused);
    c.closing = !c.known;
    return;
  }
  if (kind == kSet && payload.size() >= 4) {
    const size_t length = get_u32(payload);
    if (payload.size() - 4 >= length) {
      std::lock_guard lock(mutex_);
      values_[std::string(payload.substr(4, length))] = std::string(payload.substr(4 + length));
      return reply(c, kOk);
    }
  }
  if (kind == kGet && payload.size() >= 4 && !c.wanted) {
    c.deadline = Clock::now() + std::chrono::milliseconds(get_u32(payload));
    c.wanted = std::string(payload.substr(4));
    return;  // answered by answer_waiting, now or later
  }
  c.closing = true;
}

void Server::answer_waiting(Connection& c) {
  if (!c.known) {
    if (Clock::now() >= c.deadline) c.closing = true;
    return;
  }
  if (!c.wanted) return;
  std::lock_guard lock(mutex_);
  auto found = values_.find(*c.wanted);
  if (found != values_.end()) {
    reply(c, kValue, found->second);
  } else if (Clock::now() >= c.deadline) {
    reply(c, kTimeout);
  } else {
    return;
  }
  c.wanted.reset();
}

}  // namespace

std::string random_token() {
  unsigned char bytes[32];
  size_t filled = 0;
  while (filled < sizeof(bytes)) {
    const ssize_t got = ::getrandom(bytes + filled, sizeof(bytes) - filled, 0);
    PIPER_CHECK(got > 0 || errno == EINTR, "no random numbers from the kernel");
    if (got > 0) filled += static_cast<size_t>(got);
  }
  std::string token;
  for (unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

Expected<std::unique_ptr<StoreServer>> StoreServer::start(const std::string& host, int port,
                                                          const std::string& token) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (port < 0 || port > 65535) return support::user_error(fmt::format("{} is not a port", port));
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    return support::user_error(fmt::format("`{}` is not an IPv4 address", host));
  }
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return support::user_error(fmt::format("cannot open a socket: {}", std::strerror(errno)));
  // A port of a job that just ended is free for us; one that is listened on is not.
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  socklen_t length = sizeof(address);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(fd, SOMAXCONN) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    const int error = errno;
    ::close(fd);
    if (error == EADDRINUSE) {
      return support::user_error(fmt::format("port {} is in use", port),
                                 "choose another with `--port`, or leave it out to take any free one");
    }
    return support::user_error(fmt::format("cannot listen on {}:{}: {}", host, port, std::strerror(error)));
  }
  const int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) {
    ::close(fd);
    return support::user_error(fmt::format("cannot make an eventfd: {}", std::strerror(errno)));
  }
  return std::make_unique<Server>(fd, wake, ntohs(address.sin_port), token);
}

}  // namespace piper::runtime
