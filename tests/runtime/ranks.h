// Runs a function as every rank of a job, each in a thread, over any transport; for tests.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/gloo_transport.h"
#include "runtime/loopback_transport.h"
#include "runtime/store.h"

namespace piper::runtime {

// Catch2's assertions are for one thread only, so ranks collect what went wrong and the test asserts on the list.
class Failures {
 public:
  void add(const std::string& text) {
    std::lock_guard lock(mutex_);
    texts_.push_back(text);
  }
  void check(bool condition, const std::string& text) {
    if (!condition) add(text);
  }
  template <class T>
  bool ok(const Expected<T>& result, const std::string& what) {
    if (!result) add(what + ": " + result.error().message);
    return result.has_value();
  }
  std::string all() const {
    std::lock_guard lock(mutex_);
    std::string text;
    for (const auto& t : texts_) text += t + "\n";
    return text;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
};

inline void run_threads(int count, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; i++) threads.emplace_back(work, i);
  for (auto& thread : threads) thread.join();
}

// One transport a rank. The vector owns them until every rank is done.
using Job = std::vector<std::unique_ptr<Transport>>;

inline Job loopback_job(int world_size, const LoopbackOptions& options, Failures&) {
  auto hub = LoopbackHub::make(world_size, options);
  Job job;
  for (int r = 0; r < world_size; r++) job.push_back(hub->connect(r));
  return job;
}

inline Job gloo_job(int world_size, Failures& failures) {
  const std::string token = random_token();
  auto server = StoreServer::start("127.0.0.1", 0, token);
  if (!failures.ok(server, "store")) return {};
  Job job(static_cast<size_t>(world_size));
  run_threads(world_size, [&](int rank) {
    auto client = StoreClient::connect("127.0.0.1", (*server)->port(), token, std::chrono::seconds(10));
    if (!failures.ok(client, "store client")) return;
    GlooOptions options;
    options.rank = rank;
    options.world_size = world_size;
    auto transport = GlooTransport::connect(**client, options);
    if (failures.ok(transport, "connect")) job[static_cast<size_t>(rank)] = std::move(*transport);
  });
  for (auto& transport : job) {
    if (!transport) return {};
  }
  return job;
}

}  // namespace piper::runtime
