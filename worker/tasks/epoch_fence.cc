#include "worker/tasks/epoch_fence.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/base/synced_file.h"
#include "common/base/unique_fd.h"

#include <array>
#include <cerrno>
#include <utility>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>
#include <fcntl.h>
#include <unistd.h>

namespace crossmesh {
namespace {

absl::Status FileError(absl::string_view doing, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(doing, " epoch file ", path));
}

}  // namespace

absl::StatusOr<EpochFence> EpochFence::Open(std::string path) {
  EpochFence fence;
  fence.path_ = std::move(path);
  const UniqueFd fd(open(fence.path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) {
    if (errno == ENOENT) return fence;
    return FileError("open", fence.path_);
  }
  std::array<char, 64> buffer;
  const ssize_t size = read(fd.get(), buffer.data(), buffer.size());
  if (size < 0) return FileError("read", fence.path_);
  absl::string_view text(buffer.data(), size);
  if (!absl::ConsumeSuffix(&text, "\n") || !absl::SimpleAtoi(text, &fence.highest_)) {
    return absl::DataLossError(absl::StrCat("epoch file ", fence.path_,
                                            ": expected one number and a newline, found ", size,
                                            " bytes of something else"));
  }
  return fence;
}

absl::Status EpochFence::Check(uint64_t epoch) const {
  if (epoch >= highest_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("controller epoch ", epoch, " is over: expected at least ", highest_));
}

absl::Status EpochFence::Raise(uint64_t epoch) {
  RETURN_IF_ERROR(Check(epoch));
  if (epoch == highest_) return absl::OkStatus();
  // On disk first: after a crash the worker must not obey what it has refused before.
  if (!path_.empty()) RETURN_IF_ERROR(Write(epoch));
  highest_ = epoch;
  return absl::OkStatus();
}

// An error may come when the new file is there already: it has an epoch that was not obeyed, so
// that a worker which starts with it refuses more than it need, and is written again before it is
// obeyed.
absl::Status EpochFence::Write(uint64_t epoch) const {
  return At("epoch file", ReplaceSynced(path_, absl::StrCat(epoch, "\n")));
}

}  // namespace crossmesh
