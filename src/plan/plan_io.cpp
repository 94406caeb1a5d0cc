// Plan files: the envelope around the encoded plan, and the folder it lies in.
#include "plan/plan_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>

#include "plan.pb.h"
#include "plan/check.h"
#include "plan/codec.h"

namespace piper::plan {

namespace {

constexpr std::string_view kMagic = "piper-plan";
constexpr std::string_view kAgain = "compile the plan again";

uint64_t checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string wrap(std::string payload) {
  pb::File file;
  file.set_magic(std::string(kMagic));
  file.set_version(static_cast<uint32_t>(kFormatVersion));
  file.set_checksum(checksum(payload));
  *file.mutable_plan() = std::move(payload);
  return file.SerializeAsString();
}

std::string system_text(int error) { return std::generic_category().message(error); }

// Writes all of `bytes` and waits until they are on the disk, so that the rename after it never shows half a plan.
support::Expected<void> write_synced(const std::string& path, const std::string& bytes) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return support::user_error("cannot write `" + path + "`: " + system_text(errno));
  size_t done = 0;
  int error = 0;
  while (done < bytes.size() && error == 0) {
    ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n >= 0) {
      done += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (error == 0 && ::fsync(fd) != 0) error = errno;
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0) return {};
  ::unlink(path.c_str());
  return support::user_error("cannot write `" + path + "`: " + system_text(error));
}

support::Expected<std::string> read_file(const std::string& path) {
  std::error_code error;
  std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return support::user_error("there is no plan at `" + path + "`");
  if (!std::filesystem::is_regular_file(status)) return support::user_error("`" + path + "` is not a file");
  std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return support::user_error("cannot read `" + path + "`: " + error.message());
  if (size > static_cast<std::uintmax_t>(std::numeric_limits<int32_t>::max())) {
    return support::user_error("`" + path + "` is not a Piper plan: it is larger than 2 GiB");
  }
  std::ifstream in(path, std::ios::binary);
  std::string bytes(size, '\0');
  if (!in || !in.read(bytes.data(), static_cast<std::streamsize>(size))) {
    return support::user_error("cannot read `" + path + "`: " + system_text(errno));
  }
  return bytes;
}

}  // namespace

std::string serialize(const Plan& plan) {
  support::Expected<std::string> payload = encode(plan);
  PIPER_CHECK(payload.has_value(), payload.error().message);
  return wrap(std::move(*payload));
}

uint64_t plan_hash(const Plan& plan) {
  std::string bytes = serialize(plan);
  return checksum(bytes);
}

support::Expected<Plan> parse_plan(const std::string& bytes, const std::string& where) {
  auto damaged = [&](const std::string& how) {
    return support::user_error("the plan `" + where + "` is damaged: " + how, std::string(kAgain));
  };
  pb::File file;
  // Every prefix of a plan file begins with the magic: what does not was never one.
  bool ours = bytes.size() >= 2 + kMagic.size() && std::string_view(bytes).substr(2, kMagic.size()) == kMagic;
  if (!ours) return support::user_error("`" + where + "` is not a Piper plan");
  if (!file.ParseFromString(bytes)) return damaged("it ends early or has been changed");
  if (file.version() > static_cast<uint32_t>(kFormatVersion)) {
    return support::user_error("the plan `" + where + "` has format " + std::to_string(file.version()) +
                                   "; this Piper reads formats up to " + std::to_string(kFormatVersion),
                               "use the Piper that compiled it, or " + std::string(kAgain) + " with this one");
  }
  if (file.version() == 0) return damaged("it has no version");
  if (file.checksum() != checksum(file.plan())) return damaged("its checksum does not fit its content");
  support::Expected<Plan> plan = decode(file.plan());
  if (!plan) return damaged(plan.error().message);
  plan->version = static_cast<int32_t>(file.version());
  std::vector<Problem> problems = check(*plan);
  if (!problems.empty()) return damaged(problems.front().where(*plan) + problems.front().message);
  return plan;
}

support::Expected<void> write_plan(const Plan& plan, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return support::user_error("cannot make the folder `" + folder + "`: " + error.message());
  support::Expected<std::string> payload = encode(plan);
  if (!payload) return tl::make_unexpected(payload.error());
  std::string path = (std::filesystem::path(folder) / "plan.pb").string();
  // The process id keeps two compilers that write the same plan from writing into one file.
  std::string beside = path + "." + std::to_string(::getpid()) + ".tmp";
  support::Expected<void> written = write_synced(beside, wrap(std::move(*payload)));
  if (!written) return written;
  std::filesystem::rename(beside, path, error);
  if (error) {
    ::unlink(beside.c_str());
    return support::user_error("cannot write `" + path + "`: " + error.message());
  }
  return {};
}

support::Expected<Plan> read_plan(const std::string& folder) {
  std::string path = (std::filesystem::path(folder) / "plan.pb").string();
  support::Expected<std::string> bytes = read_file(path);
  if (!bytes) return tl::make_unexpected(bytes.error());
  return parse_plan(*bytes, path);
}

}  // namespace piper::plan
