#include "support/error.h"

#include <cstdio>
#include <cstdlib>

namespace piper::support {

void internal_error(const char* file, int line, const std::string& what) {
  std::fflush(stdout);
  std::fprintf(stderr,
               "piper: internal error: %s\n  at %s:%d\n"
               "  this is a bug in Piper; please report it with the model, the strategy and this text\n",
               what.c_str(), file, line);
  std::fflush(stderr);
  // Not std::exit: other threads may hold what static destructors need.
  std::_Exit(static_cast<int>(ErrorKind::kInternal));
}

}  // namespace piper::support
