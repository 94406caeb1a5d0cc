#include "runtime/collectives.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/sum.h"

namespace piper::runtime {

namespace {

using Request = Messenger::Request;

// Summing a piece should overlap with the transfer of the next and stay in the second-level cache.
constexpr size_t kPieceBytes = 512 * 1024;

std::byte* at(void* data, size_t offset) { return static_cast<std::byte*>(data) + offset; }
const std::byte* at(const void* data, size_t offset) { return static_cast<const std::byte*>(data) + offset; }

// Memory for what other members sent, kept by each thread so that steps allocate nothing after the first.
std::byte* scratch(size_t bytes) {
  thread_local std::vector<std::byte> memory;
  if (memory.size() < bytes) memory.resize(bytes);
  return memory.data();
}

// Requests that are waited for together; the first failure counts.
class Requests {
 public:
  void send(const Collective& job, size_t to, const void* data, size_t bytes) {
    add(bytes, [&] { return job.messenger->post_send(job.peer(to), job.slot, data, bytes); });
  }
  void recv(const Collective& job, size_t from, void* data, size_t bytes) {
    add(bytes, [&] { return job.messenger->post_recv(job.peer(from), job.slot, data, bytes); });
  }
  Expected<void> wait() {
    for (auto& request : requests_) {
      if (!failed_) keep(request->wait());
    }
    requests_.clear();
    if (failed_) return tl::make_unexpected(*failed_);
    return {};
  }

 private:
  template <class Post>
  void add(size_t bytes, const Post& post) {
    if (failed_ || bytes == 0) return;
    auto request = post();
    if (request) {
      requests_.push_back(std::move(*request));
    } else {
      failed_ = request.error();
    }
  }
  void keep(const Expected<void>& result) {
    if (!result) failed_ = result.error();
  }

  std::vector<std::unique_ptr<Request>> requests_;
  std::optional<support::Error> failed_;
};

// The pieces of a slice.
size_t piece_count(size_t bytes) { return (bytes + kPieceBytes - 1) / kPieceBytes; }
struct Piece {
  size_t offset = 0;
  size_t bytes = 0;
};
Piece piece_of(size_t bytes, size_t index) {
  const size_t offset = std::min(bytes, index * kPieceBytes);
  return {offset, std::min(kPieceBytes, bytes - offset)};
}

// One direction of a reduction: all members' slices of `data` are summed, each by the member it belongs to.
// `slice(j)` gives the byte offset and size of member j's.
template <class SliceOf>
class SliceSum {
 public:
  SliceSum(const Collective& job, const void* data, void* out, ir::DType dtype, SliceOf slice)
      : job_(job), data_(data), out_(out), dtype_(dtype), slice_(std::move(slice)), mine_(slice_(job.member)) {
    for (size_t j = 0; j < job.size(); j++) pieces_ = std::max(pieces_, piece_count(slice_(j).bytes));
    const size_t each = std::min(kPieceBytes, mine_.bytes);
    const size_t stride = (each + 63) / 64 * 64;
    std::byte* memory = scratch(2 * stride * (job.size() - 1));
    for (auto& half : received_) {
      half.resize(job.size());
      for (size_t j = 0; j < job.size(); j++) {
        if (j == job.member) continue;
        half[j] = memory;
        memory += stride;
      }
    }
  }

  size_t pieces() const { return pieces_; }

  // Posts the transfers of piece k: ours to everybody, everybody's to us.
  void post(size_t k) {
    const Piece mine = piece_of(mine_.bytes, k);
    // Members start with different peers, so that not all send to the lowest first.
    for (size_t d = 1; d < job_.size(); d++) {
      const size_t from = (job_.member + job_.size() - d) % job_.size();
      recvs_[k % 2].recv(job_, from, received_[k % 2][from], mine.bytes);
    }
    for (size_t d = 1; d < job_.size(); d++) {
      const size_t to = (job_.member + d) % job_.size();
      const Piece piece = piece_of(slice_(to).bytes, k);
      sends_[k % 2].send(job_, to, at(data_, slice_(to).offset + piece.offset), piece.bytes);
    }
  }

  // Waits for piece k and sums it.
  Expected<void> finish(size_t k) {
    if (auto done = recvs_[k % 2].wait(); !done) return done;
    const Piece mine = piece_of(mine_.bytes, k);
    if (mine.bytes != 0) {
      std::vector<const void*> parts(received_[k % 2].begin(), received_[k % 2].end());
      parts[job_.member] = at(data_, mine_.offset + mine.offset);
      sum_in_order(parts, at(out_, mine.offset), mine.bytes / static_cast<size_t>(ir::dtype_size(dtype_)), dtype_);
    }
    return sends_[k % 2].wait();
  }

 private:
  const Collective& job_;
  const void* data_;
  void* out_;
  ir::DType dtype_;
  SliceOf slice_;
  Piece mine_;
  size_t pieces_ = 0;
  std::vector<std::byte*> received_[2];
  Requests recvs_[2], sends_[2];  // destroyed before the scratch memory is used again
};

Expected<void> all_reduce_small(const Collective& job, void* data, size_t elements, ir::DType dtype) {
  const size_t bytes = elements * static_cast<size_t>(ir::dtype_size(dtype));
  Requests requests;
  if (job.member != 0) {
    if (job.size() == 2) {
      // Both send and both sum: one hop.
      std::byte* other = scratch(bytes);
      requests.recv(job, 0, other, bytes);
      requests.send(job, 0, data, bytes);
      if (auto done = requests.wait(); !done) return done;
      sum_in_order({other, data}, data, elements, dtype);
      return {};
    }
    requests.send(job, 0, data, bytes);
    if (auto done = requests.wait(); !done) return done;
    requests.recv(job, 0, data, bytes);
    return requests.wait();
  }
  std::byte* memory = scratch(bytes * (job.size() - 1));
  std::vector<const void*> parts = {data};
  for (size_t j = 1; j < job.size(); j++) {
    parts.push_back(memory + (j - 1) * bytes);
    requests.recv(job, j, memory + (j - 1) * bytes, bytes);
  }
  if (job.size() == 2) requests.send(job, 1, data, bytes);
  if (auto done = requests.wait(); !done) return done;
  sum_in_order(parts, data, elements, dtype);
  if (job.size() == 2) return {};
  for (size_t j = 1; j < job.size(); j++) requests.send(job, j, data, bytes);
  return requests.wait();
}

}  // namespace

Expected<void> run_all_reduce(const Collective& job, void* data, size_t elements, ir::DType dtype) {
  if (job.size() == 1 || elements == 0) return {};
  const size_t width = static_cast<size_t>(ir::dtype_size(dtype));
  if (elements * width <= kSmallReduceBytes) return all_reduce_small(job, data, elements, dtype);

  auto slice = [&](size_t j) {
    const Slice s = slice_of(elements, job.size(), j);
    return Piece{s.begin * width, s.size() * width};
  };
  const Piece mine = slice(job.member);
  SliceSum sum(job, data, at(data, mine.offset), dtype, slice);
  // Sums travel on a slot of their own, because the messages of a slot arrive in the order posted.
  Collective back = job;
  back.slot = job.slot + 1;
  Requests gathered[2], scattered[2];
  for (size_t k = 0; k <= sum.pieces(); k++) {
    if (k < sum.pieces()) sum.post(k);
    if (k == 0) continue;
    const size_t done = k - 1;
    // A member only sends a sum when it has our summand, so a sum never lands on bytes that are still to be sent.
    for (size_t j = 0; j < job.size(); j++) {
      const Piece piece = piece_of(slice(j).bytes, done);
      if (j != job.member) gathered[done % 2].recv(back, j, at(data, slice(j).offset + piece.offset), piece.bytes);
    }
    if (auto finished = sum.finish(done); !finished) return finished;
    const Piece piece = piece_of(mine.bytes, done);
    for (size_t d = 1; d < job.size(); d++) {
      const size_t to = (job.member + d) % job.size();
      scattered[done % 2].send(back, to, at(data, mine.offset + piece.offset), piece.bytes);
    }
    if (done > 0) {
      if (auto finished = gathered[(done - 1) % 2].wait(); !finished) return finished;
      if (auto finished = scattered[(done - 1) % 2].wait(); !finished) return finished;
    }
  }
  const size_t last = (sum.pieces() - 1) % 2;
  if (auto finished = gathered[last].wait(); !finished) return finished;
  return scattered[last].wait();
}

Expected<void> run_reduce_scatter(const Collective& job, const void* data, void* out, size_t out_elements,
                                  ir::DType dtype) {
  const size_t bytes = out_elements * static_cast<size_t>(ir::dtype_size(dtype));
  if (bytes == 0) return {};
  if (job.size() == 1) {
    std::memmove(out, data, bytes);
    return {};
  }
  SliceSum sum(job, data, out, dtype, [&](size_t j) { return Piece{j * bytes, bytes}; });
  for (size_t k = 0; k <= sum.pieces(); k++) {
    if (k < sum.pieces()) sum.post(k);
    if (k == 0) continue;
    if (auto finished = sum.finish(k - 1); !finished) return finished;
  }
  return {};
}

Expected<void> run_all_gather(const Collective& job, const void* part, void* out, size_t part_bytes) {
  if (part_bytes == 0) return {};
  Requests requests;
  for (size_t d = 1; d < job.size(); d++) {
    const size_t from = (job.member + job.size() - d) % job.size();
    requests.recv(job, from, at(out, from * part_bytes), part_bytes);
  }
  for (size_t d = 1; d < job.size(); d++) requests.send(job, (job.member + d) % job.size(), part, part_bytes);
  std::byte* own = at(out, job.member * part_bytes);
  if (own != part) std::memcpy(own, part, part_bytes);
  return requests.wait();
}

Expected<void> run_all_to_all(const Collective& job, const void* data, const size_t* sent, void* out,
                              const size_t* received) {
  // Cut into messages that every transport takes.
  constexpr size_t kMessageBytes = size_t{64} << 20;
  const auto offset = [](const size_t* bytes, size_t member) {
    size_t sum = 0;
    for (size_t j = 0; j < member; j++) sum += bytes[j];
    return sum;
  };
  Requests requests;
  for (size_t d = 1; d < job.size(); d++) {
    const size_t from = (job.member + job.size() - d) % job.size();
    std::byte* to = at(out, offset(received, from));
    for (size_t k = 0; k < received[from]; k += kMessageBytes) {
      requests.recv(job, from, to + k, std::min(kMessageBytes, received[from] - k));
    }
  }
  for (size_t d = 1; d < job.size(); d++) {
    const size_t to = (job.member + d) % job.size();
    const std::byte* from = at(data, offset(sent, to));
    for (size_t k = 0; k < sent[to]; k += kMessageBytes) {
      requests.send(job, to, from + k, std::min(kMessageBytes, sent[to] - k));
    }
  }
  PIPER_CHECK(sent[job.member] == received[job.member], "a member sends itself more or less than it expects");
  if (sent[job.member] > 0) {
    std::memcpy(at(out, offset(received, job.member)), at(data, offset(sent, job.member)), sent[job.member]);
  }
  return requests.wait();
}

Expected<void> run_broadcast(const Collective& job, void* data, size_t bytes, size_t root) {
  // A binomial tree over the members counted from the root.
  const size_t size = job.size();
  const size_t position = (job.member + size - root) % size;
  size_t bit = 1;
  while (bit < size && (position & bit) == 0) bit <<= 1;
  Requests requests;
  if (position != 0) {
    requests.recv(job, (position - bit + root) % size, data, bytes);
    if (auto done = requests.wait(); !done) return done;
  }
  for (size_t child = bit >> 1; child != 0; child >>= 1) {
    if (position + child < size) requests.send(job, (position + child + root) % size, data, bytes);
  }
  return requests.wait();
}

Expected<void> run_barrier(const Collective& job) {
  // Flat and not a tree: two messages a rank are the least, and hops cost less than messages on few cores.
  std::vector<char> tokens(job.size());
  Requests requests;
  if (job.member != 0) {
    requests.send(job, 0, &tokens[0], 1);
    requests.recv(job, 0, &tokens[1], 1);
    return requests.wait();
  }
  for (size_t j = 1; j < job.size(); j++) requests.recv(job, j, &tokens[j], 1);
  if (auto done = requests.wait(); !done) return done;
  for (size_t j = 1; j < job.size(); j++) requests.send(job, j, &tokens[j], 1);
  return requests.wait();
}

}  // namespace piper::runtime
