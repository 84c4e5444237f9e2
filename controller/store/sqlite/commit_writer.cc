#include "controller/store/sqlite/commit_writer.h"

#include "common/base/status_macros.h"
#include "controller/store/sqlite/schema.h"
#include "controller/store/store_error.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Rows that are large are erased at once.
constexpr int64_t kErasedBytesMin = int64_t{1} << 20;

// By which the kept commits may be too many before the oldest are forgotten.
int64_t SlackOf(int64_t commits_kept) { return commits_kept / 16; }

}  // namespace

absl::StatusOr<std::unique_ptr<CommitWriter>> CommitWriter::Create(SqliteConnection& connection,
                                                                   VersionIndex& index,
                                                                   const ScanResult& scan,
                                                                   const Options& options) {
  ASSIGN_OR_RETURN(SqliteStatement begin, connection.Prepare("BEGIN IMMEDIATE"));
  ASSIGN_OR_RETURN(SqliteStatement commit, connection.Prepare("COMMIT"));
  ASSIGN_OR_RETURN(SqliteStatement data_version, connection.Prepare("PRAGMA data_version"));
  ASSIGN_OR_RETURN(SqliteStatement write_head, PrepareWriteHead(connection));
  ASSIGN_OR_RETURN(
      SqliteStatement insert,
      connection.Prepare("INSERT INTO versions(id, revision, key, value_checksum, checksum, value) "
                         "VALUES(?, ?, ?, ?, ?, ?)"));
  ASSIGN_OR_RETURN(SqliteStatement erase,
                   connection.Prepare("DELETE FROM versions WHERE id = ? AND checksum = ?"));
  ASSIGN_OR_RETURN(
      SqliteStatement select_headers,
      connection.Prepare("SELECT id, revision, key, checksum, coalesce(length(value), 0) "
                         "FROM versions WHERE id >= ? AND id < ? ORDER BY id"));
  std::unique_ptr<CommitWriter> writer(
      new CommitWriter(connection, index,
                       Statements{std::move(begin), std::move(commit), std::move(data_version),
                                  std::move(write_head), std::move(insert), std::move(erase),
                                  std::move(select_headers)},
                       options));
  writer->head_ = scan.head;
  writer->replaced_ = scan.replaced;
  for (const ReplacedRow& row : scan.replaced) writer->replaced_bytes_ += row.bytes;
  RETURN_IF_ERROR(writer->CheckUnchanged());  // from here on
  return writer;
}

absl::StatusOr<std::vector<absl::StatusOr<int64_t>>> CommitWriter::Commit(
    std::span<const StoreTransaction> transactions) {
  Staged staged = {.head = head_};
  absl::StatusOr<std::vector<absl::StatusOr<int64_t>>> results = WriteAll(transactions, staged);
  if (!results.ok()) {
    connection_.Rollback();
    return results;
  }
  Publish(std::move(staged));
  return results;
}

absl::StatusOr<std::vector<absl::StatusOr<int64_t>>> CommitWriter::WriteAll(
    std::span<const StoreTransaction> transactions, Staged& staged) {
  RETURN_IF_ERROR(statements_.begin.Run());
  RETURN_IF_ERROR(CheckUnchanged());
  std::vector<absl::StatusOr<int64_t>> results;
  for (const StoreTransaction& transaction : transactions) {
    if (absl::Status holds = CheckRequirements(transaction, staged); !holds.ok()) {
      results.push_back(std::move(holds));
      continue;
    }
    RETURN_IF_ERROR(WriteTransaction(transaction, staged));
    results.push_back(staged.head.revision);
  }
  if (staged.commits.empty()) {
    connection_.Rollback();
    return results;
  }
  RETURN_IF_ERROR(RaiseFloor(NextFloor(staged), staged));
  if (replaced_.size() >= options_.erased_min || replaced_bytes_ >= kErasedBytesMin) {
    RETURN_IF_ERROR(EraseReplaced(staged));
  }
  RETURN_IF_ERROR(Finish(staged));
  return results;
}

absl::Status CommitWriter::Finish(Staged& staged) {
  RETURN_IF_ERROR(WriteHead(statements_.write_head, staged.head));
  return statements_.commit.Run();
}

absl::Status CommitWriter::ForgetCommits() {
  // Readings may still need the rows of what the first of these forgets.
  RETURN_IF_ERROR(Tidy([this](Staged& staged) { return RaiseFloor(head_.revision, staged); }));
  for (size_t before = replaced_.size() + 1; !replaced_.empty() && replaced_.size() < before;) {
    before = replaced_.size();
    RETURN_IF_ERROR(Tidy([this](Staged& staged) { return EraseReplaced(staged); }));
  }
  return absl::OkStatus();
}

absl::Status CommitWriter::Tidy(absl::FunctionRef<absl::Status(Staged&)> change) {
  Staged staged = {.head = head_};
  const absl::Status tidied = [&]() -> absl::Status {
    RETURN_IF_ERROR(statements_.begin.Run());
    RETURN_IF_ERROR(CheckUnchanged());
    RETURN_IF_ERROR(change(staged));
    return Finish(staged);
  }();
  if (!tidied.ok()) {
    connection_.Rollback();
    return tidied;
  }
  Publish(std::move(staged));
  return absl::OkStatus();
}

// The index holds only as long as nobody else writes to the database.
absl::Status CommitWriter::CheckUnchanged() {
  RETURN_IF_ERROR(statements_.data_version.Step().status());
  const int64_t data_version = statements_.data_version.Int(0);
  statements_.data_version.Reset();
  if (data_version == data_version_.value_or(data_version)) {
    data_version_ = data_version;
    return absl::OkStatus();
  }
  return StoreError(
      StoreErrorKind::kDamaged,
      absl::StrCat("database: something else has written to it since revision ", head_.revision));
}

std::optional<VersionIndex::Row> CommitWriter::Find(const std::string& key,
                                                    const Staged& staged) const {
  const auto found = staged.rows.find(key);
  return found == staged.rows.end() ? index_.Find(key) : found->second;
}

absl::Status CommitWriter::CheckRequirements(const StoreTransaction& transaction,
                                             const Staged& staged) const {
  if (transaction.epoch < staged.head.epoch) {
    return absl::AbortedError(absl::StrCat(
        "epoch ", transaction.epoch, " is fenced: the store has seen epoch ", staged.head.epoch));
  }
  for (const StoreTransaction::Requirement& required : transaction.requirements) {
    const std::optional<VersionIndex::Row> row = Find(required.key, staged);
    const int64_t revision = row.has_value() ? row->revision : 0;
    if (revision == required.revision) continue;
    return absl::AbortedError(absl::StrCat("object ", required.key, ": expected revision ",
                                           required.revision, ", found ", revision));
  }
  return absl::OkStatus();
}

absl::Status CommitWriter::WriteTransaction(const StoreTransaction& transaction, Staged& staged) {
  VersionIndex::Commit commit = {.first_id = staged.head.next_id};
  std::vector<int64_t> checksums;
  for (const StoreTransaction::Write& write : transaction.writes) {
    if (const auto old = Find(write.key, staged); old.has_value() && old->revision <= head_.floor) {
      staged.replaced.push_back({old->id, old->checksum, old->bytes, index_.publication() + 1});
    }
    ASSIGN_OR_RETURN(const VersionIndex::Row row, WriteVersion(write, staged));
    commit.bytes += row.bytes;
    checksums.push_back(row.checksum);
    staged.rows[write.key] = write.value.has_value() ? std::optional(row) : std::nullopt;
  }
  staged.head.epoch = transaction.epoch;
  staged.head.Extend(checksums);
  staged.commits.push_back(commit);
  return absl::OkStatus();
}

absl::StatusOr<VersionIndex::Row> CommitWriter::WriteVersion(const StoreTransaction::Write& write,
                                                             Staged& staged) {
  VersionHeader header = {
      .id = staged.head.next_id++, .revision = staged.head.revision + 1, .key = write.key};
  int64_t bytes = static_cast<int64_t>(write.key.size());
  SqliteStatement& insert = statements_.insert;
  if (write.value.has_value()) {
    header.value_bytes = static_cast<int64_t>(write.value->size());
    header.value_checksum = ValueChecksum(*write.value);
    bytes += header.value_bytes;
    insert.Bind(6, absl::string_view(*write.value));
  } else {
    insert.BindNull(6);
  }
  const int64_t checksum = header.Checksum();
  insert.Bind(1, header.id)
      .Bind(2, header.revision)
      .Bind(3, header.key)
      .Bind(4, header.value_checksum)
      .Bind(5, checksum);
  RETURN_IF_ERROR(insert.Run());
  ++staged.head.row_count;
  staged.head.row_sum += static_cast<uint64_t>(checksum);
  return VersionIndex::Row{header.id, header.revision, checksum, bytes};
}

int64_t CommitWriter::NextFloor(const Staged& staged) const {
  const VersionIndex::Kept kept = index_.kept();
  int64_t commits = kept.commits + std::ssize(staged.commits);
  int64_t bytes = kept.bytes;
  for (const VersionIndex::Commit& commit : staged.commits) bytes += commit.bytes;
  int64_t floor = kept.floor;
  const bool are_too_many = commits > options_.commits_kept + SlackOf(options_.commits_kept);
  // Those of this very transaction of SQLite stay: only what the index has can be forgotten.
  while (floor < head_.revision && ((are_too_many && commits > options_.commits_kept) ||
                                    bytes > options_.journal_bytes_max)) {
    bytes -= index_.CommitOf(++floor).bytes;
    --commits;
  }
  return floor;
}

// The chain goes on over the commits that are forgotten, and of their rows those are replaced that
// are no longer present.
absl::Status CommitWriter::RaiseFloor(int64_t floor, Staged& staged) {
  int64_t at = head_.floor;
  if (floor == at) return absl::OkStatus();
  const absl::StatusOr<VersionIndex::Range> range =
      index_.CommitsAfter(at, floor - at, std::numeric_limits<int64_t>::max());
  RETURN_IF_ERROR(range.status());
  std::vector<int64_t> checksums;
  const auto end_commits_before = [&](int64_t revision) {
    for (; at + 1 < revision; checksums.clear()) {
      ++at;
      staged.head.floor_chain = NextChain(staged.head.floor_chain, at, checksums);
    }
  };
  SqliteStatement& select = statements_.select_headers;
  select.Bind(1, range->first_id).Bind(2, range->end_id);
  while (true) {
    ASSIGN_OR_RETURN(const bool found, select.Step());
    if (!found) break;
    const int64_t id = select.Int(0);
    end_commits_before(select.Int(1));
    checksums.push_back(select.Int(3));
    const std::string key(select.Bytes(2));
    if (const auto present = Find(key, staged); present.has_value() && present->id == id) continue;
    staged.replaced.push_back({id, select.Int(3), select.Int(4) + static_cast<int64_t>(key.size()),
                               index_.publication() + 1});
  }
  select.Reset();
  end_commits_before(floor + 1);
  staged.head.floor = floor;
  return absl::OkStatus();
}

absl::Status CommitWriter::EraseReplaced(Staged& staged) {
  const int64_t oldest_reading = index_.OldestReading();
  while (staged.erased < std::min(replaced_.size(), options_.erased_max)) {
    const ReplacedRow& row = replaced_[staged.erased];
    if (row.since > oldest_reading) break;
    RETURN_IF_ERROR(statements_.erase.Bind(1, row.id).Bind(2, row.checksum).Run());
    if (connection_.changes() != 1) {
      return StoreError(StoreErrorKind::kDamaged,
                        absl::StrCat("table versions, row ", row.id, ": expected checksum ",
                                     row.checksum, ", found another or no row"));
    }
    --staged.head.row_count;
    staged.head.row_sum -= static_cast<uint64_t>(row.checksum);
    ++staged.erased;
  }
  return absl::OkStatus();
}

void CommitWriter::Publish(Staged staged) {
  head_ = staged.head;
  for (size_t i = 0; i < staged.erased; ++i) {
    replaced_bytes_ -= replaced_.front().bytes;
    replaced_.pop_front();
  }
  for (const ReplacedRow& row : staged.replaced) {
    replaced_bytes_ += row.bytes;
    replaced_.push_back(row);
  }
  VersionIndex::Changes changes = {
      .commits = std::move(staged.commits), .floor = head_.floor, .next_id = head_.next_id};
  for (auto& [key, row] : staged.rows) changes.rows.push_back({key, row});
  index_.Publish(std::move(changes));
}

}  // namespace crossmesh
