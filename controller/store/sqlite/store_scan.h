#pragma once

#include "common/base/digest.h"
#include "controller/store/sqlite/sqlite_connection.h"
#include "controller/store/sqlite/store_head.h"
#include "controller/store/sqlite/version_index.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// A row that is neither present nor of a kept commit, and goes once nobody reads it.
struct ReplacedRow {
  int64_t id = 0;
  int64_t checksum = 0;
  int64_t bytes = 0;
  int64_t since = 0;  // the publication from which on no reading begins to need it
};

struct ScanOptions {
  // Checks the structure of the file and every value. Else values are only read when they are asked
  // for, and only rows' other columns are checked, all of them.
  bool whole = true;
  // Of which the chain is wanted, as long as its commits are kept.
  int64_t chain_of = 0;
};

struct ScanResult {
  StoreHead head;
  VersionIndex::Contents contents;
  std::deque<ReplacedRow> replaced;  // of one key the older ones first
  std::optional<Digest> chain_of;
};

// Reads all rows at one moment and holds them to their checksums, to their number and sum, and to
// the chain. kDamaged names table, row, key and revision. Cost: 0.5 us a row without values.
absl::StatusOr<ScanResult> ScanStore(SqliteConnection& connection, const ScanOptions& options);

// A row as it was read, held to its checksums.
struct VersionRow {
  int64_t id = 0;
  int64_t revision = 0;
  std::string key;
  std::optional<std::string> value;
  int64_t checksum = 0;
};

inline constexpr absl::string_view kSelectVersion =
    "SELECT id, revision, key, value_checksum, checksum, value FROM versions ";

// Of a step of a statement that begins with kSelectVersion. kDamaged: its checksums are wrong.
absl::StatusOr<VersionRow> ReadVersion(const SqliteStatement& statement);

// kDamaged; "table versions, row 7, key "mesh/a", revision 5: WHAT".
absl::Status DamagedVersion(const VersionHeader& row, absl::string_view what);

}  // namespace crossmesh
