#include "runtime/gloo_transport.h"

#include <fmt/format.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>

#include "runtime/collectives.h"
#include "runtime/sum.h"

namespace piper::runtime {

namespace {

using support::Error;
using support::ErrorKind;
using std::chrono::milliseconds;

// Gloo always wants a limit. Ours is the launcher's watchdog, which sees all ranks and can tell who hangs.
constexpr milliseconds kForever = std::chrono::hours(24 * 30);
// Longer messages are posted in parts, so that no single one occupies a socket for long.
constexpr size_t kMessageBytes = size_t{64} << 20;

// Gloo begins its messages with the place in its source.
std::string without_place(std::string_view text) {
  if (text.starts_with('[')) {
    const size_t end = text.find("] ");
    if (end != std::string_view::npos) text.remove_prefix(end + 2);
  }
  return std::string(text);
}

// As long as it lives, threads that this one makes are scheduled as batch work: they run when a core is free or their
// turn comes, and do not interrupt others when they wake up. Gloo's event thread polls without sleeping while a sender
// holds a connection's lock, and its waking up is what interrupts the sender inside; with more threads than cores that
// costs the event thread's whole time slice. This makes small collectives up to ten times faster there.
class BatchThreads {
 public:
  BatchThreads() : before_(::sched_getscheduler(0)) { set(SCHED_BATCH); }
  // Both are allowed to everybody; where they are not, all stays as it was.
  ~BatchThreads() { set(before_); }

 private:
  void set(int policy) {
    if (before_ != SCHED_OTHER) return;
    const sched_param parameters = {};
    ::sched_setscheduler(0, policy, &parameters);
  }
  const int before_;
};

std::shared_ptr<gloo::transport::Device> make_device(const gloo::transport::tcp::attr& attributes) {
  BatchThreads batch;
  return gloo::transport::tcp::CreateDevice(attributes);
}

// Our store behind Gloo's interface, with the keys of one mesh of connections apart from those of another.
class StoreAdapter : public gloo::rendezvous::Store {
 public:
  StoreAdapter(StoreClient& store, std::string prefix, milliseconds timeout)
      : store_(store), prefix_(std::move(prefix)), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    check(store_.set(prefix_ + key, std::string(data.begin(), data.end())));
  }
  std::vector<char> get(const std::string& key) override {
    auto value = store_.get(prefix_ + key, timeout_);
    check(value);
    return {value->begin(), value->end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    for (const std::string& key : keys) check(store_.wait(prefix_ + key, timeout));
  }

 private:
  template <class T>
  static void check(const Expected<T>& result) {
    if (!result) throw std::runtime_error(result.error().message);
  }

  StoreClient& store_;
  const std::string prefix_;
  const milliseconds timeout_;
};

using gloo::transport::UnboundBuffer;

// Everything that fails together: the meshes, the operations in flight, and why they failed.
class Link {
 public:
  std::shared_ptr<gloo::rendezvous::Context> messages;     // point to point
  std::shared_ptr<gloo::rendezvous::Context> collectives;  // own sockets: a large reduction must not delay messages

  // An error once the link has failed.
  std::optional<Error> failure() const {
    std::lock_guard lock(mutex_);
    return failure_;
  }
  bool lost_peer() const {
    std::lock_guard lock(mutex_);
    return lost_peer_;
  }

  // Adds an operation in flight, or says that the link has failed.
  std::optional<Error> add(UnboundBuffer* buffer) {
    std::lock_guard lock(mutex_);
    if (!failure_) pending_.insert(buffer);
    return failure_;
  }
  void remove(UnboundBuffer* buffer) {
    std::lock_guard lock(mutex_);
    pending_.erase(buffer);
  }

  // Fails everything, here and (by closing) at the peers; returns the first cause.
  Error fail(const std::string& why, bool lost_peer) {
    {
      std::lock_guard lock(mutex_);
      if (failure_) return *failure_;
      failure_ = Error{ErrorKind::kUser, why, ""};
      lost_peer_ = lost_peer;
      for (UnboundBuffer* buffer : pending_) {
        buffer->abortWaitRecv();
        buffer->abortWaitSend();
      }
    }
    messages->closeConnections();
    collectives->closeConnections();
    return Error{ErrorKind::kUser, why, ""};
  }

 private:
  mutable std::mutex mutex_;
  std::set<UnboundBuffer*> pending_;
  std::optional<Error> failure_;
  bool lost_peer_ = false;
};

class GlooRequest : public Messenger::Request {
 public:
  GlooRequest(Link& link, std::unique_ptr<UnboundBuffer> buffer, int peer, bool sends)
      : link_(link), buffer_(std::move(buffer)), peer_(peer), sends_(sends) {}
  ~GlooRequest() override { link_.remove(buffer_.get()); }

  Expected<void> wait() override {
    try {
      const bool done = sends_ ? buffer_->waitSend(kForever) : buffer_->waitRecv(kForever);
      if (done) return {};
      return tl::make_unexpected(link_.failure().value_or(Error{ErrorKind::kUser, "transfer aborted", ""}));
    } catch (const std::exception& e) {
      return tl::make_unexpected(link_.fail(lost_text(peer_, e), true));
    }
  }

  static std::string lost_text(int peer, const std::exception& e) {
    return fmt::format("connection to rank {} lost: {}", peer, without_place(e.what()));
  }

 private:
  Link& link_;
  std::unique_ptr<UnboundBuffer> buffer_;
  const int peer_;
  const bool sends_;
};

// Messages over one mesh.
class GlooMessenger : public Messenger {
 public:
  GlooMessenger(Link& link, gloo::rendezvous::Context& context) : link_(link), context_(context) {}

  Expected<std::unique_ptr<Request>> post_send(int peer, uint64_t slot, const void* data, size_t bytes) override {
    // Gloo only reads from buffers that are sent.
    return post(peer, slot, const_cast<void*>(data), bytes, true);
  }
  Expected<std::unique_ptr<Request>> post_recv(int peer, uint64_t slot, void* data, size_t bytes) override {
    return post(peer, slot, data, bytes, false);
  }

 private:
  Expected<std::unique_ptr<Request>> post(int peer, uint64_t slot, void* data, size_t bytes, bool sends) {
    auto buffer = context_.createUnboundBuffer(data, bytes);
    UnboundBuffer* raw = buffer.get();
    if (auto failed = link_.add(raw)) return tl::make_unexpected(*failed);
    auto request = std::make_unique<GlooRequest>(link_, std::move(buffer), peer, sends);
    try {
      if (sends) {
        raw->send(peer, slot);
      } else {
        raw->recv(peer, slot);
      }
    } catch (const std::exception& e) {
      return tl::make_unexpected(link_.fail(GlooRequest::lost_text(peer, e), true));
    }
    return request;
  }

  Link& link_;
  gloo::rendezvous::Context& context_;
};

// A slot for the collectives of one (group, tag); the next number is the collective's as well. Group and tag are mixed
// into 63 bits: two of the few collectives that run at once share a slot with a probability of about 1e-18.
uint64_t collective_slot(int group, uint64_t tag) {
  uint64_t x = tag * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(group + 2) * 0xd1342543de82ef95ULL;
  x = (x ^ (x >> 32)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 29)) * 0x94d049bb133111ebULL;
  return (x ^ (x >> 32)) << 1;
}

class GlooTransportImpl : public GlooTransport {
 public:
  GlooTransportImpl(int rank, int world_size, std::unique_ptr<Link> link)
      : rank_(rank),
        world_size_(world_size),
        link_(std::move(link)),
        messages_(*link_, *link_->messages),
        collectives_(*link_, *link_->collectives) {
    for (int r = 0; r < world_size; r++) world_.push_back(r);
  }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  bool lost_peer() const override { return link_->lost_peer(); }
  Expected<void> set_groups(const std::vector<std::vector<int32_t>>& groups) override {
    groups_ = groups;
    return {};
  }

  Expected<void> send(int peer, uint64_t tag, const void* data, size_t bytes) override {
    return transfer(bytes, [&](size_t offset, size_t part) {
      return messages_.post_send(peer, tag, static_cast<const std::byte*>(data) + offset, part);
    });
  }
  Expected<void> recv(int peer, uint64_t tag, void* data, size_t bytes) override {
    return transfer(bytes, [&](size_t offset, size_t part) {
      return messages_.post_recv(peer, tag, static_cast<std::byte*>(data) + offset, part);
    });
  }

  Expected<void> all_reduce(int group, uint64_t tag, void* data, size_t elements, ir::DType dtype) override {
    PIPER_CHECK(is_summable(dtype), "only f32 and f64 are reduced");
    return run_all_reduce(collective(group, tag), data, elements, dtype);
  }
  Expected<void> reduce_scatter(int group, uint64_t tag, const void* data, void* out, size_t out_elements,
                                ir::DType dtype) override {
    PIPER_CHECK(is_summable(dtype), "only f32 and f64 are reduced");
    return run_reduce_scatter(collective(group, tag), data, out, out_elements, dtype);
  }
  Expected<void> all_gather(int group, uint64_t tag, const void* part, void* out, size_t part_bytes) override {
    return run_all_gather(collective(group, tag), part, out, part_bytes);
  }
  Expected<void> all_to_all(int group, uint64_t tag, const void* data, const size_t* sent, void* out,
                            const size_t* received) override {
    return run_all_to_all(collective(group, tag), data, sent, out, received);
  }
  Expected<void> broadcast(int group, uint64_t tag, void* data, size_t bytes, int root_index) override {
    return run_broadcast(collective(group, tag), data, bytes, static_cast<size_t>(root_index));
  }
  Expected<void> barrier() override {
    Collective job;
    job.messenger = &collectives_;
    job.ranks = &world_;
    job.member = static_cast<size_t>(rank_);
    job.slot = collective_slot(-1, 0);
    return run_barrier(job);
  }
  void abort(const std::string& why) override { link_->fail(why, false); }

 private:
  template <class Post>
  Expected<void> transfer(size_t bytes, const Post& post) {
    // Nothing travels for an empty message; the peer knows its size as well.
    if (auto failed = link_->failure()) return tl::make_unexpected(*failed);
    std::vector<std::unique_ptr<Messenger::Request>> parts;
    for (size_t offset = 0; offset < bytes; offset += kMessageBytes) {
      auto part = post(offset, std::min(kMessageBytes, bytes - offset));
      if (!part) return tl::make_unexpected(part.error());
      parts.push_back(std::move(*part));
    }
    for (auto& part : parts) {
      if (auto done = part->wait(); !done) return done;
    }
    return {};
  }

  Collective collective(int group, uint64_t tag) {
    PIPER_CHECK(group >= 0 && group < static_cast<int>(groups_.size()), fmt::format("no group {}", group));
    Collective job;
    job.messenger = &collectives_;
    job.ranks = &groups_[static_cast<size_t>(group)];
    auto found = std::find(job.ranks->begin(), job.ranks->end(), rank_);
    PIPER_CHECK(found != job.ranks->end(), fmt::format("rank {} is not in group {}", rank_, group));
    job.member = static_cast<size_t>(found - job.ranks->begin());
    job.slot = collective_slot(group, tag);
    return job;
  }

  const int rank_, world_size_;
  std::unique_ptr<Link> link_;
  GlooMessenger messages_, collectives_;
  std::vector<int32_t> world_;
  std::vector<std::vector<int32_t>> groups_;
};

}  // namespace

Expected<std::unique_ptr<GlooTransport>> GlooTransport::connect(StoreClient& store, const GlooOptions& options) {
  try {
    gloo::transport::tcp::attr attributes;
    // Left alone, Gloo resolves the host's name, which often is an address that others cannot reach.
    if (options.interface.empty()) {
      attributes.hostname = options.address;
    } else {
      attributes.iface = options.interface;
    }
    auto device = make_device(attributes);
    auto mesh = [&](const char* name) {
      auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.world_size);
      context->setTimeout(options.connect_timeout);
      StoreAdapter adapter(store, fmt::format("gloo/{}/", name), options.connect_timeout);
      context->connectFullMesh(adapter, device);
      return context;
    };
    auto link = std::make_unique<Link>();
    link->messages = mesh("messages");
    link->collectives = mesh("collectives");
    return std::make_unique<GlooTransportImpl>(options.rank, options.world_size, std::move(link));
  } catch (const std::exception& e) {
    return support::user_error(
        fmt::format("rank {} cannot connect to the others: {}", options.rank, without_place(e.what())));
  }
}

}  // namespace piper::runtime
