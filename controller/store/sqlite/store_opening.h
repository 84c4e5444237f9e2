#pragma once

#include "controller/store/sqlite/sqlite_connection.h"
#include "controller/store/sqlite/state_folder.h"
#include "controller/store/sqlite/store_options.h"
#include "controller/store/sqlite/store_scan.h"
#include "controller/store/sqlite/watermark.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// A database that may be written to: what it has is durable, and was checked.
struct OpenedDatabase {
  std::unique_ptr<SqliteConnection> connection;
  ScanResult scan;
  std::unique_ptr<Watermark> watermark;
  bool values_checked = false;
};

// Opens the database of a folder that is claimed, or makes it; migrates it; scans it; holds it to
// the watermark. StoreError as SqliteStore::Open says; Unavailable: the disk refuses.
absl::StatusOr<OpenedDatabase> OpenDatabase(const StateFolder& folder,
                                            const SqliteStoreOptions& options);

// Copies the database to a file that does not exist, at one moment, and verifies the copy; the file
// appears when that is done. FailedPrecondition: there is such a file, or none can be made there.
absl::Status BackUpDatabase(const std::string& database, const std::string& vfs,
                            const std::string& path);

// What a scan of all of a database file finds, at one moment; `chain_of` as ScanOptions has it.
absl::StatusOr<ScanResult> ScanFile(const std::string& path, const std::string& vfs,
                                    int64_t chain_of = 0);

// kDamaged: the database is not as far as it was, or has another history; names both revisions.
absl::Status CheckAgainst(const std::optional<StoreMark>& mark, const ScanResult& scan);

}  // namespace crossmesh
