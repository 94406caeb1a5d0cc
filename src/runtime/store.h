// The rendezvous of a job: a small key-value server of the launcher, and its client in every worker. Values appear once
// and are waited for. Whoever connects must say the job's token first; a stranger learns nothing and changes nothing.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "support/error.h"

namespace piper::runtime {

using support::Expected;

// 32 random bytes as hexadecimal digits.
std::string random_token();

class StoreServer {
 public:
  // Serves on `host` (an IPv4 address) from a thread of its own until destroyed. port 0: any free one.
  static Expected<std::unique_ptr<StoreServer>> start(const std::string& host, int port, const std::string& token);
  virtual ~StoreServer() = default;

  virtual int port() const = 0;
  // Sets a key from the server's own process; safe from any thread.
  virtual void set(const std::string& key, const std::string& value) = 0;
};

class StoreClient {
 public:
  static Expected<std::unique_ptr<StoreClient>> connect(const std::string& host, int port, const std::string& token,
                                                        std::chrono::milliseconds timeout);
  virtual ~StoreClient() = default;

  // Calls are safe from any thread; they run one after the other.
  virtual Expected<void> set(const std::string& key, const std::string& value) = 0;
  // The key's value, as soon as somebody has set it.
  virtual Expected<std::string> get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Waits until the key is there.
  Expected<void> wait(const std::string& key, std::chrono::milliseconds timeout) {
    return get(key, timeout).map([](const std::string&) {});
  }
};

}  // namespace piper::runtime
