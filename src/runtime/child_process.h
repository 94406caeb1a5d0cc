// A worker process: started by exec (OpenMP does not survive fork), in a process group of its own, with pipes for its
// standard streams and for control messages.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "support/error.h"

namespace piper::runtime {

// A descriptor that closes itself.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = other.release();
    }
    return *this;
  }
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset();

 private:
  int fd_ = -1;
};

struct ChildProcess {
  pid_t pid = -1;
  Fd input;    // its standard input; when we are gone it reads the end of it
  Fd output;   // its standard output, not blocking
  Fd error;    // its standard error, not blocking
  Fd control;  // its control pipe, not blocking
};

// Starts `/proc/self/exe arguments...` with `environment` ("NAME=value") added to or replacing our own.
support::Expected<ChildProcess> start_child(const std::vector<std::string>& arguments,
                                            const std::vector<std::string>& environment);

// Cuts a stream of bytes into lines, which come without their newline. Very long lines come in parts.
class LineSplitter {
 public:
  using Sink = std::function<void(const std::string&)>;
  explicit LineSplitter(size_t max_line) : max_line_(max_line) {}
  void feed(std::string_view bytes, const Sink& sink);
  // What is left without a newline.
  void flush(const Sink& sink);

 private:
  size_t max_line_;
  std::string rest_;
};

// Reads what is there; false when the stream has ended.
bool read_available(int fd, const std::function<void(std::string_view)>& sink);

// Counts SIGINT, SIGTERM and SIGHUP instead of dying of them, and ignores SIGPIPE; as long as it lives. Signals that
// our parent had us ignore stay ignored.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  int count() const;        // signals so far
  int last_signal() const;  // 0: none
  int wake_fd() const;      // readable when one came

 private:
  struct Saved;
  std::vector<Saved> saved_;
};

}  // namespace piper::runtime
