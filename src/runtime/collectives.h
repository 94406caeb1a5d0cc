// Collectives made of messages, for transports that only have those. Sums are taken in the order of the members, so all
// members, runs and transports get equal bits; sum.h has the order.
//
// Small all-reduces go to the lowest member and back (two hops, fewest messages: what counts with more ranks than
// cores). Large ones are cut into a slice per member; every member sums its slice in pieces while the next piece is on
// its way, and sends sums out as they are ready: twice the payload times (n-1)/n per member, as a ring, in two hops.
#pragma once

#include <memory>
#include <vector>

#include "runtime/transport.h"

namespace piper::runtime {

// Messages that are posted now and waited for later. Messages of one slot between two ranks arrive in the order posted.
class Messenger {
 public:
  // A posted message; its memory belongs to the messenger until wait() returned or the request is destroyed.
  class Request {
   public:
    virtual ~Request() = default;
    virtual Expected<void> wait() = 0;
  };
  virtual ~Messenger() = default;
  virtual Expected<std::unique_ptr<Request>> post_send(int peer, uint64_t slot, const void* data, size_t bytes) = 0;
  virtual Expected<std::unique_ptr<Request>> post_recv(int peer, uint64_t slot, void* data, size_t bytes) = 0;
};

// A running collective: the members' ranks in ascending order, which of them we are, and a slot of its own.
struct Collective {
  Messenger* messenger = nullptr;
  const std::vector<int32_t>* ranks = nullptr;
  size_t member = 0;
  uint64_t slot = 0;

  size_t size() const { return ranks->size(); }
  int peer(size_t other) const { return (*ranks)[other]; }
};

// Payloads up to this many bytes are all-reduced through the lowest member.
inline constexpr size_t kSmallReduceBytes = 64 * 1024;

Expected<void> run_all_reduce(const Collective& job, void* data, size_t elements, ir::DType dtype);
Expected<void> run_reduce_scatter(const Collective& job, const void* data, void* out, size_t out_elements,
                                  ir::DType dtype);
Expected<void> run_all_gather(const Collective& job, const void* part, void* out, size_t part_bytes);
Expected<void> run_all_to_all(const Collective& job, const void* data, const size_t* sent, void* out,
                              const size_t* received);
Expected<void> run_broadcast(const Collective& job, void* data, size_t bytes, size_t root);
Expected<void> run_barrier(const Collective& job);

}  // namespace piper::runtime
