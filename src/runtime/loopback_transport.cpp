#include "runtime/loopback_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "runtime/sum.h"

namespace piper::runtime {

namespace {

using support::Error;
using support::ErrorKind;

// A message on its way. Buffered ones own their bytes; rendezvous ones point into the sender's memory.
struct Message {
  std::vector<std::byte> copy;
  const void* data = nullptr;
  size_t bytes = 0;
  bool taken = false;
};

// Messages of one (source, destination, tag), oldest first.
struct Mailbox {
  std::deque<std::shared_ptr<Message>> messages;
  int receivers = 0;  // inside recv
  std::condition_variable changed;
};

// One running collective of one (group, tag).
struct Meeting {
  size_t arrived = 0;
  size_t left = 0;
  size_t waiting = 0;  // at the barrier between two phases
  size_t working = 0;  // between two barriers, reading the memory of others
  uint64_t phase = 0;
  std::vector<const void*> inputs;  // by member; all_reduce writes through its own
  size_t bytes = 0;
  std::condition_variable changed;
};

class Hub : public LoopbackHub, public std::enable_shared_from_this<Hub> {
 public:
  Hub(int world_size, const LoopbackOptions& options) : world_size_(world_size), options_(options) {}

  std::unique_ptr<Transport> connect(int rank) override;
  void abort(int rank, const std::string& why) override;
  std::optional<AbortCause> first_abort() const override {
    std::lock_guard lock(mutex_);
    return cause_;
  }

  int world_size() const { return world_size_; }
  void maybe_delay(int rank);
  Expected<void> send(int from, int to, uint64_t tag, const void* data, size_t bytes);
  Expected<void> recv(int from, int to, uint64_t tag, void* data, size_t bytes);

  // Runs a collective of `size` members: everybody hands in its pointer, then `work` runs on every member at once with
  // all of them in sight, then (if given) `after` when every member's `work` is done.
  using Work = std::function<void(const Meeting&)>;
  Expected<void> meet(int rank, int group, uint64_t tag, size_t size, size_t member, const void* input,
                      size_t bytes, const Work& work, const Work& after = {});

 private:
  using MailKey = std::tuple<int, int, uint64_t>;
  using MeetKey = std::pair<int, uint64_t>;

  Error aborted_error() const {
    const std::string who = cause_->rank < 0 ? "" : fmt::format(" by rank {}", cause_->rank);
    return Error{ErrorKind::kUser, fmt::format("job stopped{}: {}", who, cause_->why), ""};
  }
  void abort_locked(int rank, const std::string& why);
  Expected<void> barrier(std::unique_lock<std::mutex>& lock, Meeting& meeting, size_t size);

  const int world_size_;
  const LoopbackOptions options_;
  std::atomic<uint64_t> delays_{0};
  mutable std::mutex mutex_;  // guards all below
  std::optional<AbortCause> cause_;
  std::map<MailKey, std::shared_ptr<Mailbox>> mail_;
  std::map<MeetKey, std::shared_ptr<Meeting>> meetings_;
};

void Hub::maybe_delay(int rank) {
  if (options_.delay_seed == 0) return;
  // splitmix64 of a counter: cheap, and every seed gives other orders.
  uint64_t x = options_.delay_seed + 0x9e3779b97f4a7c15ULL * (delays_.fetch_add(1) * 64 + static_cast<uint64_t>(rank));
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  x ^= x >> 31;
  std::this_thread::sleep_for(std::chrono::microseconds(x % static_cast<uint64_t>(options_.max_delay_us + 1)));
}

void Hub::abort_locked(int rank, const std::string& why) {
  if (!cause_) cause_ = AbortCause{rank, why};
  for (auto& [key, box] : mail_) box->changed.notify_all();
  for (auto& [key, meeting] : meetings_) meeting->changed.notify_all();
}

void Hub::abort(int rank, const std::string& why) {
  std::lock_guard lock(mutex_);
  abort_locked(rank, why);
}

Expected<void> Hub::send(int from, int to, uint64_t tag, const void* data, size_t bytes) {
  auto message = std::make_shared<Message>();
  message->bytes = bytes;
  if (options_.rendezvous) {
    message->data = data;
  } else {
    const auto* begin = static_cast<const std::byte*>(data);
    message->copy.assign(begin, begin + bytes);
    message->data = message->copy.data();
  }
  std::unique_lock lock(mutex_);
  if (cause_) return tl::make_unexpected(aborted_error());
  auto& slot = mail_[{from, to, tag}];
  if (!slot) slot = std::make_shared<Mailbox>();
  std::shared_ptr<Mailbox> box = slot;
  box->messages.push_back(message);
  box->changed.notify_all();
  if (!options_.rendezvous) return {};
  // After an abort a receiver may still be copying from our memory; receivers take a message out of the box before they
  // copy, so a message that is still inside will not be touched.
  auto inside = [&] {
    return std::find(box->messages.begin(), box->messages.end(), message) != box->messages.end();
  };
  box->changed.wait(lock, [&] { return message->taken || (cause_ && inside()); });
  if (message->taken) return {};
  box->messages.erase(std::find(box->messages.begin(), box->messages.end(), message));
  return tl::make_unexpected(aborted_error());
}

Expected<void> Hub::recv(int from, int to, uint64_t tag, void* data, size_t bytes) {
  std::unique_lock lock(mutex_);
  if (cause_) return tl::make_unexpected(aborted_error());
  const MailKey key{from, to, tag};
  auto& slot = mail_[key];
  if (!slot) slot = std::make_shared<Mailbox>();
  std::shared_ptr<Mailbox> box = slot;
  box->receivers++;
  box->changed.wait(lock, [&] { return cause_ || !box->messages.empty(); });
  box->receivers--;
  if (cause_) return tl::make_unexpected(aborted_error());
  std::shared_ptr<Message> message = box->messages.front();
  if (message->bytes != bytes) {
    abort_locked(to, fmt::format("rank {} expected {} bytes from rank {} (tag {}) and got {}", to, bytes, from, tag,
                                 message->bytes));
    return tl::make_unexpected(aborted_error());
  }
  box->messages.pop_front();
  if (box->messages.empty() && box->receivers == 0) mail_.erase(key);
  lock.unlock();
  if (bytes != 0) std::memcpy(data, message->data, bytes);
  lock.lock();
  message->taken = true;
  box->changed.notify_all();
  return {};
}

Expected<void> Hub::barrier(std::unique_lock<std::mutex>& lock, Meeting& meeting, size_t size) {
  const uint64_t phase = meeting.phase;
  if (++meeting.waiting == size) {
    meeting.waiting = 0;
    meeting.phase++;
    meeting.changed.notify_all();
  }
  meeting.changed.wait(lock, [&] { return cause_ || meeting.phase != phase; });
  if (!cause_) return {};
  // Whoever returns may free its memory, so nobody leaves while a member still works on it.
  meeting.changed.wait(lock, [&] { return meeting.working == 0; });
  return tl::make_unexpected(aborted_error());
}

Expected<void> Hub::meet(int rank, int group, uint64_t tag, size_t size, size_t member, const void* input,
                         size_t bytes, const Work& work, const Work& after) {
  std::unique_lock lock(mutex_);
  const MeetKey key{group, tag};
  std::shared_ptr<Meeting> meeting;
  while (!meeting) {
    if (cause_) return tl::make_unexpected(aborted_error());
    auto& slot = meetings_[key];
    if (!slot) {
      slot = std::make_shared<Meeting>();
      slot->inputs.resize(size);
      slot->bytes = bytes;
    }
    if (slot->arrived < size) {
      meeting = slot;
    } else {
      // The previous collective of this tag still has members inside.
      std::shared_ptr<Meeting> previous = slot;
      previous->changed.wait(lock, [&] { return cause_ || previous->left == size; });
    }
  }
  if (meeting->bytes != bytes) {
    abort_locked(rank, fmt::format("members of group {} call a collective (tag {}) with {} and {} bytes", group, tag,
                                 meeting->bytes, bytes));
    return tl::make_unexpected(aborted_error());
  }
  meeting->arrived++;
  meeting->inputs[member] = input;
  const int phases = after ? 3 : 2;
  for (int i = 0; i < phases; i++) {
    if (auto met = barrier(lock, *meeting, size); !met) return met;
    if (i == phases - 1) break;
    meeting->working++;
    lock.unlock();
    (i == 0 ? work : after)(*meeting);
    lock.lock();
    if (--meeting->working == 0 && cause_) meeting->changed.notify_all();
  }
  if (++meeting->left == size) {
    meetings_.erase(key);
    meeting->changed.notify_all();
  }
  return {};
}

class LoopbackTransport : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  int rank() const override { return rank_; }
  int world_size() const override { return hub_->world_size(); }

  Expected<void> set_groups(const std::vector<std::vector<int32_t>>& groups) override {
    groups_ = groups;
    return {};
  }
  Expected<void> send(int peer, uint64_t tag, const void* data, size_t bytes) override {
    hub_->maybe_delay(rank_);
    return hub_->send(rank_, peer, tag, data, bytes);
  }
  Expected<void> recv(int peer, uint64_t tag, void* data, size_t bytes) override {
    hub_->maybe_delay(rank_);
    return hub_->recv(peer, rank_, tag, data, bytes);
  }

  Expected<void> all_reduce(int group, uint64_t tag, void* data, size_t elements, ir::DType dtype) override;
  Expected<void> reduce_scatter(int group, uint64_t tag, const void* data, void* out, size_t out_elements,
                                ir::DType dtype) override;
  Expected<void> all_gather(int group, uint64_t tag, const void* part, void* out, size_t part_bytes) override;
  Expected<void> all_to_all(int group, uint64_t tag, const void* data, const size_t* sent, void* out,
                            const size_t* received) override;
  Expected<void> broadcast(int group, uint64_t tag, void* data, size_t bytes, int root_index) override;
  Expected<void> barrier() override {
    hub_->maybe_delay(rank_);
    return hub_->meet(rank_, -1, 0, static_cast<size_t>(world_size()), static_cast<size_t>(rank_), nullptr, 0,
                      [](const Meeting&) {});
  }
  void abort(const std::string& why) override { hub_->abort(rank_, why); }

 private:
  struct Place {
    size_t size = 0;
    size_t member = 0;
  };
  // Our place in a group; an error when we are not in it.
  Expected<Place> enter(int group) {
    hub_->maybe_delay(rank_);
    PIPER_CHECK(group >= 0 && group < static_cast<int>(groups_.size()), fmt::format("no group {}", group));
    const auto& ranks = groups_[static_cast<size_t>(group)];
    auto found = std::find(ranks.begin(), ranks.end(), rank_);
    PIPER_CHECK(found != ranks.end(), fmt::format("rank {} is not in group {}", rank_, group));
    return Place{ranks.size(), static_cast<size_t>(found - ranks.begin())};
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
  std::vector<std::vector<int32_t>> groups_;
};

std::byte* at(void* data, size_t offset) { return static_cast<std::byte*>(data) + offset; }
const std::byte* at(const void* data, size_t offset) { return static_cast<const std::byte*>(data) + offset; }

Expected<void> LoopbackTransport::all_reduce(int group, uint64_t tag, void* data, size_t elements, ir::DType dtype) {
  auto place = enter(group);
  if (!place) return tl::make_unexpected(place.error());
  PIPER_CHECK(is_summable(dtype), "only f32 and f64 are reduced");
  const size_t width = static_cast<size_t>(ir::dtype_size(dtype));
  // Every member sums its own slice into its own memory, which nobody else reads in this phase, then copies the
  // others'.
  auto work = [&](const Meeting& meeting) {
    const Slice mine = slice_of(elements, place->size, place->member);
    std::vector<const void*> parts;
    for (const void* input : meeting.inputs) parts.push_back(at(input, mine.begin * width));
    sum_in_order(parts, at(data, mine.begin * width), mine.size(), dtype);
  };
  auto after = [&](const Meeting& meeting) {
    for (size_t j = 0; j < place->size; j++) {
      const Slice slice = slice_of(elements, place->size, j);
      if (j == place->member || slice.size() == 0) continue;
      std::memcpy(at(data, slice.begin * width), at(meeting.inputs[j], slice.begin * width), slice.size() * width);
    }
  };
  return hub_->meet(rank_, group, tag, place->size, place->member, data, elements * width, work, after);
}

Expected<void> LoopbackTransport::reduce_scatter(int group, uint64_t tag, const void* data, void* out,
                                                 size_t out_elements, ir::DType dtype) {
  auto place = enter(group);
  if (!place) return tl::make_unexpected(place.error());
  PIPER_CHECK(is_summable(dtype), "only f32 and f64 are reduced");
  const size_t bytes = out_elements * static_cast<size_t>(ir::dtype_size(dtype));
  // `out` may lie in `data`: nobody else reads our part of it.
  auto work = [&](const Meeting& meeting) {
    std::vector<const void*> parts;
    for (const void* input : meeting.inputs) parts.push_back(at(input, place->member * bytes));
    sum_in_order(parts, out, out_elements, dtype);
  };
  return hub_->meet(rank_, group, tag, place->size, place->member, data, bytes, work);
}

Expected<void> LoopbackTransport::all_gather(int group, uint64_t tag, const void* part, void* out, size_t part_bytes) {
  auto place = enter(group);
  if (!place) return tl::make_unexpected(place.error());
  auto work = [&](const Meeting& meeting) {
    for (size_t j = 0; j < place->size; j++) {
      std::byte* to = at(out, j * part_bytes);
      if (to != meeting.inputs[j] && part_bytes != 0) std::memcpy(to, meeting.inputs[j], part_bytes);
    }
  };
  return hub_->meet(rank_, group, tag, place->size, place->member, part, part_bytes, work);
}

Expected<void> LoopbackTransport::all_to_all(int group, uint64_t tag, const void* data, const size_t* sent, void* out,
                                             const size_t* received) {
  auto place = enter(group);
  if (!place) return tl::make_unexpected(place.error());
  // What a member shows the others.
  struct Offer {
    const void* data;
    const size_t* sent;
  };
  const Offer offer{data, sent};
  bool agreed = true;
  auto work = [&](const Meeting& meeting) {
    std::byte* to = static_cast<std::byte*>(out);
    for (size_t j = 0; j < place->size; j++) {
      const Offer& from = *static_cast<const Offer*>(meeting.inputs[j]);
      size_t begin = 0;
      for (size_t m = 0; m < place->member; m++) begin += from.sent[m];
      agreed = agreed && from.sent[place->member] == received[j];
      if (agreed && received[j] != 0) std::memcpy(to, at(from.data, begin), received[j]);
      to += received[j];
    }
  };
  auto met = hub_->meet(rank_, group, tag, place->size, place->member, &offer, 0, work);
  if (met && !agreed) return support::user_error("what members send and what others expect differ in size");
  return met;
}

Expected<void> LoopbackTransport::broadcast(int group, uint64_t tag, void* data, size_t bytes, int root_index) {
  auto place = enter(group);
  if (!place) return tl::make_unexpected(place.error());
  const size_t root = static_cast<size_t>(root_index);
  auto work = [&](const Meeting& meeting) {
    if (place->member != root && bytes != 0) std::memcpy(data, meeting.inputs[root], bytes);
  };
  return hub_->meet(rank_, group, tag, place->size, place->member, data, bytes, work);
}

std::unique_ptr<Transport> Hub::connect(int rank) {
  PIPER_CHECK(rank >= 0 && rank < world_size_, fmt::format("no rank {} of {}", rank, world_size_));
  return std::make_unique<LoopbackTransport>(shared_from_this(), rank);
}

}  // namespace

std::shared_ptr<LoopbackHub> LoopbackHub::make(int world_size, const LoopbackOptions& options) {
  return std::make_shared<Hub>(world_size, options);
}

}  // namespace piper::runtime
