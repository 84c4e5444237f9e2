#include "controller/store/sqlite/store_scan.h"

#include "common/base/status_macros.h"
#include "controller/store/sqlite/schema.h"
#include "controller/store/store_error.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// SQLite reads no value for its length alone.
constexpr absl::string_view kSelectHeaders =
    "SELECT id, revision, key, value_checksum, checksum, length(value) FROM versions ORDER BY id";

absl::Status DamagedDatabase(absl::string_view what) {
  return StoreError(StoreErrorKind::kDamaged, absl::StrCat("database: ", what));
}

// The columns that both statements have.
VersionHeader HeaderOf(const SqliteStatement& statement) {
  return {.id = statement.Int(0),
          .revision = statement.Int(1),
          .key = statement.Bytes(2),
          .value_checksum = statement.Int(3)};
}

absl::Status CheckStructure(SqliteConnection& connection) {
  ASSIGN_OR_RETURN(const std::string found, connection.ReadText("PRAGMA quick_check(1)"));
  return found == "ok" ? absl::OkStatus() : DamagedDatabase(absl::StrCat("quick_check: ", found));
}

// Rows in the order of their ids, to what is known of them all.
class Scan {
 public:
  Scan(const StoreHead& head, int64_t chain_of)
      : head_(head), wanted_(chain_of), chain_(head.floor_chain), at_(head.floor) {
    result_.head = head;
    result_.contents.floor = head.floor;
    result_.contents.next_id = head.next_id;
    RememberChain();
  }

  absl::Status Add(const VersionHeader& row, int64_t checksum) {
    if (row.revision < last_revision_ || row.revision > head_.revision || row.id <= 0 ||
        row.id >= head_.next_id) {
      return DamagedVersion(row, absl::StrCat("expected to come before revision ", head_.revision,
                                              " and row ", head_.next_id));
    }
    last_revision_ = row.revision;
    ++row_count_;
    row_sum_ += static_cast<uint64_t>(checksum);
    const int64_t bytes =
        static_cast<int64_t>(row.key.size()) + std::max<int64_t>(row.value_bytes, 0);
    if (row.revision > head_.floor) RETURN_IF_ERROR(AddToCommit(row, checksum, bytes));
    AddToIndex(row, checksum, bytes);
    return absl::OkStatus();
  }

  absl::StatusOr<ScanResult> Finish() && {
    while (at_ < head_.revision) EndCommit(head_.next_id);
    if (row_count_ != head_.row_count || row_sum_ != head_.row_sum) {
      return DamagedDatabase(absl::StrCat("table versions: expected ", head_.row_count,
                                          " rows of sum ", head_.row_sum, ", found ", row_count_,
                                          " of sum ", row_sum_));
    }
    if (chain_ != head_.chain) {
      return DamagedDatabase(absl::StrCat("commits from revision ", head_.floor, " to ",
                                          head_.revision, ": expected chain ",
                                          head_.chain.ToString(), ", found ", chain_.ToString()));
    }
    return std::move(result_);
  }

 private:
  absl::Status AddToCommit(const VersionHeader& row, int64_t checksum, int64_t bytes) {
    while (at_ + 1 < row.revision) EndCommit(row.id);
    if (next_id_ != 0 && row.id != next_id_) {
      return DamagedVersion(row, absl::StrCat("expected row ", next_id_, " before it"));
    }
    if (checksums_.empty()) first_id_ = row.id;
    next_id_ = row.id + 1;
    checksums_.push_back(checksum);
    bytes_ += bytes;
    return absl::OkStatus();
  }

  // Of revision at_ + 1. `next_id`: of the next row, which is its first one if it has none.
  void EndCommit(int64_t next_id) {
    chain_ = NextChain(chain_, ++at_, checksums_);
    result_.contents.commits.push_back(
        {.first_id = checksums_.empty() ? next_id : first_id_, .bytes = bytes_});
    checksums_.clear();
    bytes_ = 0;
    RememberChain();
  }

  void RememberChain() {
    if (at_ == wanted_) result_.chain_of = chain_;
  }

  void AddToIndex(const VersionHeader& row, int64_t checksum, int64_t bytes) {
    const auto found = result_.contents.rows.find(row.key);
    if (found != result_.contents.rows.end() && found->second.revision <= head_.floor) {
      const VersionIndex::Row& old = found->second;
      result_.replaced.push_back({old.id, old.checksum, old.bytes});
    }
    if (row.value_bytes == VersionHeader::kDeleted) {
      if (found != result_.contents.rows.end()) result_.contents.rows.erase(found);
      if (row.revision <= head_.floor) {
        result_.replaced.push_back({row.id, checksum, bytes});
      }
      return;
    }
    const VersionIndex::Row present = {row.id, row.revision, checksum, bytes};
    if (found != result_.contents.rows.end()) {
      found->second = present;
    } else {
      result_.contents.rows.emplace(std::string(row.key), present);
    }
  }

  const StoreHead head_;
  const int64_t wanted_;
  ScanResult result_;
  int64_t row_count_ = 0;
  uint64_t row_sum_ = 0;
  int64_t last_revision_ = 0;

  Digest chain_;
  int64_t at_;  // the chain's revision
  // Of the commit after it.
  std::vector<int64_t> checksums_;
  int64_t first_id_ = 0;
  int64_t bytes_ = 0;
  int64_t next_id_ = 0;  // 0: no row of a kept commit has come
};

absl::StatusOr<ScanResult> ScanRows(SqliteConnection& connection, const ScanOptions& options) {
  RETURN_IF_ERROR(CheckSchema(connection));
  if (options.whole) RETURN_IF_ERROR(CheckStructure(connection));
  ASSIGN_OR_RETURN(const StoreHead head, ReadHead(connection));
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection.Prepare(options.whole ? absl::StrCat(kSelectVersion, "ORDER BY id")
                                                    : std::string(kSelectHeaders)));
  Scan scan(head, options.chain_of);
  while (true) {
    ASSIGN_OR_RETURN(const bool found, statement.Step());
    if (!found) break;
    VersionHeader row = HeaderOf(statement);
    if (!statement.IsNull(5)) {
      row.value_bytes =
          options.whole ? static_cast<int64_t>(statement.Bytes(5).size()) : statement.Int(5);
    }
    if (options.whole && !statement.IsNull(5) &&
        ValueChecksum(statement.Bytes(5)) != row.value_checksum) {
      return DamagedVersion(row, "the value's checksum is wrong");
    }
    if (row.Checksum() != statement.Int(4)) return DamagedVersion(row, "its checksum is wrong");
    RETURN_IF_ERROR(scan.Add(row, statement.Int(4)));
  }
  return std::move(scan).Finish();
}

}  // namespace

absl::StatusOr<ScanResult> ScanStore(SqliteConnection& connection, const ScanOptions& options) {
  RETURN_IF_ERROR(connection.Execute("BEGIN"));
  const absl::Cleanup end = [&] { connection.Rollback(); };
  return ScanRows(connection, options);
}

absl::StatusOr<VersionRow> ReadVersion(const SqliteStatement& statement) {
  VersionHeader header = HeaderOf(statement);
  VersionRow row = {.id = header.id,
                    .revision = header.revision,
                    .key = std::string(header.key),
                    .checksum = statement.Int(4)};
  if (!statement.IsNull(5)) {
    const absl::string_view value = statement.Bytes(5);
    header.value_bytes = static_cast<int64_t>(value.size());
    if (ValueChecksum(value) != header.value_checksum) {
      return DamagedVersion(header, "the value's checksum is wrong");
    }
    row.value = std::string(value);
  }
  if (header.Checksum() != row.checksum) return DamagedVersion(header, "its checksum is wrong");
  return row;
}

absl::Status DamagedVersion(const VersionHeader& row, absl::string_view what) {
  return StoreError(StoreErrorKind::kDamaged,
                    absl::StrCat("table versions, row ", row.id, ", key \"",
                                 absl::CHexEscape(row.key.substr(0, 200)), "\", revision ",
                                 row.revision, ": ", what));
}

}  // namespace crossmesh
