// Errors by audience: UserError is mended by the user (exit 1), UsageError is a wrong command line (exit 2),
// InternalError is our bug (exit 70). Fallible functions return Expected<T>; Diagnostics collect many.
#pragma once

#include <string>
#include <tl/expected.hpp>

namespace piper::support {

enum class ErrorKind { kUser = 1, kUsage = 2, kInternal = 70 };

struct Error {
  ErrorKind kind = ErrorKind::kUser;
  std::string message;
  std::string help;
};

template <class T>
using Expected = tl::expected<T, Error>;

inline tl::unexpected<Error> user_error(std::string message, std::string help = "") {
  return tl::make_unexpected(Error{ErrorKind::kUser, std::move(message), std::move(help)});
}

// Reports a broken invariant of Piper itself and ends the process with exit code 70.
[[noreturn]] void internal_error(const char* file, int line, const std::string& what);

}  // namespace piper::support

// Checks an invariant in every build type; `what` is only evaluated on failure.
#define PIPER_CHECK(condition, what) \
  do {                               \
    if (!(condition)) ::piper::support::internal_error(__FILE__, __LINE__, (what)); \
  } while (0)
