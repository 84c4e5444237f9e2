#pragma once

#include "common/base/clock.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

struct SqliteStoreOptions {
  std::string folder;
  const Clock& clock;

  // For those who follow: the newest commits, unless their rows have more bytes.
  int64_t commits_kept = 1000;
  int64_t journal_bytes_max = int64_t{16} << 20;

  // With less room than this no more is written. The reserve is room beside that, for deletes.
  int64_t free_bytes_min = int64_t{64} << 20;
  int64_t reserve_bytes = int64_t{64} << 20;
  // Bytes that are free; empty: as the folder's file system says.
  std::function<std::optional<int64_t>()> free_bytes;

  // A database of more bytes is opened without reading its values; they are checked right after.
  int64_t checked_at_open_bytes = int64_t{512} << 20;
  absl::Duration verify_interval = absl::Hours(1);
  absl::Duration checkpoint_interval = absl::Hours(1);

  // False: the store has no threads. Who commits does the work, and nothing is done by itself as
  // time goes by.
  bool has_threads = true;

  // The name of the SQLite VFS for the database and the watermark; empty: that of the system.
  std::string vfs;
  // Called once, on the thread that writes, when the disk has failed too often for going on to make
  // sense: its owner should end, and be started again. Must not call the store.
  std::function<void(const absl::Status&)> on_fatal;
};

}  // namespace crossmesh
