#pragma once

#include "controller/store/metadata_store.h"
#include "controller/store/sqlite/sqlite_connection.h"
#include "controller/store/sqlite/store_head.h"
#include "controller/store/sqlite/store_scan.h"
#include "controller/store/sqlite/version_index.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Writes transactions to the database, several in one commit of SQLite, and publishes them in the
// index. Rows are only added; those that nobody needs any more go later, with some other commit.
// Confined to the writer's thread.
class CommitWriter {
 public:
  struct Options {
    // What is kept for those who follow: so many commits at least, unless they have more bytes.
    int64_t commits_kept = 0;
    int64_t journal_bytes_max = 0;
    // Replaced rows are erased some at a time, so that the pages that they are on are written once
    // for many: when there are so many, and so many in one commit.
    size_t erased_min = 64;
    size_t erased_max = 1024;
  };
  // `scan` is of this connection; `index` has its contents.
  static absl::StatusOr<std::unique_ptr<CommitWriter>> Create(SqliteConnection& connection,
                                                              VersionIndex& index,
                                                              const ScanResult& scan,
                                                              const Options& options);

  // The revision of each transaction, or Aborted as MetadataStore says; durable, all of them, when
  // this returns. Any error is of all: nothing was published, kFull says that nothing was written,
  // and after any other only a new connection knows whether it was.
  absl::StatusOr<std::vector<absl::StatusOr<int64_t>>> Commit(
      std::span<const StoreTransaction> transactions);

  // Forgets all commits, so that what is deleted makes room. Errors as Commit.
  absl::Status ForgetCommits();

  const StoreHead& head() const { return head_; }

 private:
  struct Statements {
    SqliteStatement begin;
    SqliteStatement commit;
    SqliteStatement data_version;
    SqliteStatement write_head;
    SqliteStatement insert;
    SqliteStatement erase;
    SqliteStatement select_headers;
  };
  // What a commit of SQLite changes, until it has succeeded.
  struct Staged {
    StoreHead head;
    absl::flat_hash_map<std::string, std::optional<VersionIndex::Row>> rows;
    std::vector<VersionIndex::Commit> commits;
    std::vector<ReplacedRow> replaced;
    size_t erased = 0;  // of the oldest replaced rows
  };

  CommitWriter(SqliteConnection& connection, VersionIndex& index, Statements statements,
               const Options& options)
      : connection_(connection),
        index_(index),
        statements_(std::move(statements)),
        options_(options) {}

  absl::StatusOr<std::vector<absl::StatusOr<int64_t>>> WriteAll(
      std::span<const StoreTransaction> transactions, Staged& staged);
  absl::Status CheckUnchanged();
  absl::Status CheckRequirements(const StoreTransaction& transaction, const Staged& staged) const;
  absl::Status WriteTransaction(const StoreTransaction& transaction, Staged& staged);
  absl::StatusOr<VersionIndex::Row> WriteVersion(const StoreTransaction::Write& write,
                                                 Staged& staged);
  std::optional<VersionIndex::Row> Find(const std::string& key, const Staged& staged) const;
  // The newest of the commits that are to be forgotten.
  int64_t NextFloor(const Staged& staged) const;
  absl::Status RaiseFloor(int64_t floor, Staged& staged);
  absl::Status EraseReplaced(Staged& staged);
  // A commit of SQLite without a transaction of ours.
  absl::Status Tidy(absl::FunctionRef<absl::Status(Staged&)> change);
  absl::Status Finish(Staged& staged);
  void Publish(Staged staged);

  SqliteConnection& connection_;
  VersionIndex& index_;
  Statements statements_;
  const Options options_;
  StoreHead head_;
  std::optional<int64_t> data_version_;  // as long as nobody else writes
  std::deque<ReplacedRow> replaced_;     // oldest first
  int64_t replaced_bytes_ = 0;
};

}  // namespace crossmesh
