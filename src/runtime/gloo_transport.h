// Transport between processes over TCP, by Gloo. Messages are Gloo's; collectives are ours (collectives.h), because
// Gloo has no reduce-scatter, its sums depend on the algorithm, and its small all-reduces are slow with more ranks than
// cores. All ranks must have finished before any of them destroys its transport: closing drops unread bytes.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "runtime/store.h"
#include "runtime/transport.h"

namespace piper::runtime {

struct GlooOptions {
  int rank = 0;
  int world_size = 1;
  std::string address = "127.0.0.1";  // of ours, that others connect to
  std::string interface;              // network interface, instead of `address`
  std::chrono::milliseconds connect_timeout{60000};
};

class GlooTransport : public Transport {
 public:
  // Connects to all other ranks; every rank calls it with a client of the same store.
  static Expected<std::unique_ptr<GlooTransport>> connect(StoreClient& store, const GlooOptions& options);

  // Whether the first failure was a broken connection, and not abort() of our own: then somebody else has the cause.
  virtual bool lost_peer() const = 0;
};

}  // namespace piper::runtime
