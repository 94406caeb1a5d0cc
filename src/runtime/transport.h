// Transport: messages and collectives between ranks. Calls block until the caller's memory may be reused; each stream
// of the executor has its own thread, so several calls of one rank run at once (on different channels).
// After an error the transport is unusable: every pending and later call of every rank fails soon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/types.h"
#include "support/error.h"

namespace piper::runtime {

using support::Expected;

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // Declares the groups that collectives will name by index; called once, by all ranks, before any collective.
  // `groups[g]` lists ranks in ascending order; ranks that are not in a group pass it all the same.
  virtual Expected<void> set_groups(const std::vector<std::vector<int32_t>>& groups) = 0;

  // Point to point, matched by (source, destination, tag); `tag` is any 64-bit number.
  virtual Expected<void> send(int peer, uint64_t tag, const void* data, size_t bytes) = 0;
  virtual Expected<void> recv(int peer, uint64_t tag, void* data, size_t bytes) = 0;

  // Sum in place over a group, in an order that depends on nothing but the group and the size: equal bits on every
  // member and in every run. dtype f32 or f64. `tag` tells concurrent collectives of one group apart.
  virtual Expected<void> all_reduce(int group, uint64_t tag, void* data, size_t elements, ir::DType dtype) = 0;
  // `data` holds `elements` (a multiple of the group's size) per rank; the sum of part i ends in member i's `out`.
  virtual Expected<void> reduce_scatter(int group, uint64_t tag, const void* data, void* out, size_t out_elements,
                                        ir::DType dtype) = 0;
  virtual Expected<void> all_gather(int group, uint64_t tag, const void* part, void* out, size_t part_bytes) = 0;
  // Sends the next `sent[i]` bytes of `data` to member i and puts what member i sends, `received[i]` bytes, next into
  // `out`. What one sends is what the other receives: who calls knows both. The arrays have an element a member.
  virtual Expected<void> all_to_all(int group, uint64_t tag, const void* data, const size_t* sent, void* out,
                                    const size_t* received) = 0;
  virtual Expected<void> broadcast(int group, uint64_t tag, void* data, size_t bytes, int root_index) = 0;
  virtual Expected<void> barrier() = 0;

  // Makes every pending call of this process fail; safe from any thread.
  virtual void abort(const std::string& why) = 0;
};

}  // namespace piper::runtime
