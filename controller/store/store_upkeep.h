#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// How a store that is kept somewhere does.
struct StoreCondition {
  int64_t database_bytes = 0;
  int64_t log_bytes = 0;
  int64_t commits_kept = 0;  // for those who follow
  int64_t kept_bytes = 0;    // of what these wrote, in the database
  int64_t free_bytes = 0;    // where it is
  int64_t free_bytes_min = 0;
  bool is_full = false;
  bool is_read_only = false;
  int64_t corruptions = 0;  // found since it was opened
  int64_t disk_failures = 0;
  int64_t backup_failures = 0;
  std::optional<absl::Time> verified_at;
  std::optional<absl::Time> backed_up_at;
};

// What an operator does with a store while its controller runs. Thread-safe; all but `condition`
// may take long.
class StoreUpkeep {
 public:
  virtual ~StoreUpkeep() = default;

  virtual StoreCondition condition() const = 0;
  // Reads all of it as the disk has it. DataLoss.
  virtual absl::Status Verify() = 0;
  // The file of a new copy, which is verified. FailedPrecondition: there is nowhere to put one.
  virtual absl::StatusOr<std::string> BackUp() = 0;
  // Gives deletes the room of the reserve, until there is room for everything again.
  virtual absl::Status ReleaseReserve() = 0;
  // Has the thread that writes call `answered`; does not block, and writes nothing.
  virtual void Ask(std::function<void()> answered) = 0;
};

}  // namespace crossmesh
