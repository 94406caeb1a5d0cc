// Loopback: all ranks are threads of one process and meet in a hub. For `--in-process`, tests, ThreadSanitizer and
// debuggers. Enter at LoopbackHub::make.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/transport.h"

namespace piper::runtime {

struct LoopbackOptions {
  bool rendezvous = false;  // sends block until the receiver took the message; otherwise they copy and return
  uint64_t delay_seed = 0;  // not 0: every call first sleeps for a random time (tests of orders)
  int max_delay_us = 200;
};

// Who called abort() first, and why.
struct AbortCause {
  int rank = -1;
  std::string why;
};

class LoopbackHub {
 public:
  static std::shared_ptr<LoopbackHub> make(int world_size, const LoopbackOptions& options = {});
  virtual ~LoopbackHub() = default;

  // The transport of one rank; it keeps the hub alive.
  virtual std::unique_ptr<Transport> connect(int rank) = 0;
  // Fails all pending and later calls of all ranks; `rank` is who did it, -1 for none of them. The first call counts.
  virtual void abort(int rank, const std::string& why) = 0;
  virtual std::optional<AbortCause> first_abort() const = 0;
};

}  // namespace piper::runtime
