#include "worker/transport/socket/peer_regions.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/transport/socket/process_file.h"

#include <cerrno>
#include <utility>

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace crossmesh {
namespace {

template <typename... Parts>
absl::Status Refuse(uint64_t id, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("region ", id, ": ", parts...));
}

void LogRefused(const absl::Status& why) {
  LogWarning("shared_memory_refused", {{"uses", "tcp"}, {"reason", why.message()}});
}

}  // namespace

PeerRegion::~PeerRegion() {
  if (!bytes_.empty()) unmapped_.Add(bytes_);
}

absl::Status PeerRegion::Map(uint32_t pid) {
  if (std::exchange(tried_, true)) return absl::OkStatus();
  const absl::StatusOr<UniqueFd> fd = OpenFileOf({.pid = pid, .fd = file_.fd});
  // What the system refuses is not the fault of the peer: payloads come by the socket.
  if (!fd.ok()) {
    LogRefused(fd.status());
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Check(fd->get()));
  void* memory = mmap(nullptr, file_.bytes, PROT_READ, MAP_SHARED, fd->get(), 0);
  if (memory == MAP_FAILED) {
    LogRefused(absl::ErrnoToStatus(errno, "mmap"));
    return absl::OkStatus();
  }
  bytes_ = {static_cast<std::byte*>(memory), file_.bytes};
  return absl::OkStatus();
}

absl::Status PeerRegion::Check(int fd) const {
  struct stat found = {};
  if (fstat(fd, &found) != 0 || found.st_ino != file_.inode) {
    return Refuse(id_, "expected inode ", file_.inode, ", found ", found.st_ino);
  }
  if (static_cast<uint64_t>(found.st_size) != file_.bytes) {
    return Refuse(id_, "expected ", file_.bytes, " bytes, found ", found.st_size);
  }
  // Else the other side could make this process fault.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0) return absl::OkStatus();
  return Refuse(id_, "expected memory that is sealed against shrinking, found seals ", seals);
}

absl::Status PeerRegions::Add(uint64_t id, const RegionFile& file) {
  if (file.bytes == 0) return Refuse(id, "expected at least 1 byte, found 0");
  if (regions_.size() == kRegionsMax) {
    return Refuse(id, "expected at most ", kRegionsMax, " regions, found one more");
  }
  const bool added =
      regions_.try_emplace(id, std::make_unique<PeerRegion>(id, file, unmapped_)).second;
  return added ? absl::OkStatus() : Refuse(id, "expected a new one, found one that is lent");
}

absl::Status PeerRegions::Forget(uint64_t id) {
  const auto found = regions_.find(id);
  if (found == regions_.end()) return Refuse(id, "expected one that is lent, found none");
  if (found->second->payloads > 0) {
    return Refuse(id, "expected no payloads in it when it is forgotten, found ",
                  found->second->payloads);
  }
  regions_.erase(found);
  return absl::OkStatus();
}

absl::StatusOr<PeerRegion*> PeerRegions::Find(uint64_t id) {
  const auto found = regions_.find(id);
  if (found == regions_.end()) return Refuse(id, "expected one that is lent, found none");
  if (pid_.has_value()) RETURN_IF_ERROR(found->second->Map(*pid_));
  return found->second.get();
}

}  // namespace crossmesh
