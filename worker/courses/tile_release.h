#pragma once

#include "common/plan/indices.h"
#include "worker/executor/task.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// Gives the memory inside a range of a tile back, as far as it can be; as ReleasePages.
using ReleaseMemory = std::function<absl::Status(std::span<std::byte>)>;

// Rows of a tile that lie apart.
struct RowsInTile {
  DeviceRank device = 0;
  std::byte* first = nullptr;
  int64_t row_bytes = 0;
  int64_t pitch = 0;  // bytes from a row to the next
  int64_t rows = 0;
};

// Tiles of a task that releases its source: what is not needed takes no memory. Thread-compatible.
class TileRelease {
 public:
  explicit TileRelease(ReleaseMemory release) : release_(std::move(release)) {}

  // What destination tiles hold goes, before they are filled. Tiles beside each other go together.
  absl::Status EmptyDestinations(const TaskSpec& task) const;
  // Rows of source tiles that nothing reads any more.
  absl::Status Release(const std::vector<RowsInTile>& rows);
  // Devices of which anything has gone, ascending.
  std::vector<DeviceRank> released() const { return {released_.begin(), released_.end()}; }

 private:
  const ReleaseMemory release_;
  std::set<DeviceRank> released_;
};

}  // namespace crossmesh
