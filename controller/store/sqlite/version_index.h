#pragma once

#include "common/base/mutex.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// Which row of table `versions` is the present one of each key, and where the rows of each kept
// commit begin: all that is asked of the store but values. Changed by the writer's thread alone.
// Thread-safe.
class VersionIndex {
 public:
  struct Row {
    int64_t id = 0;
    int64_t revision = 0;
    int64_t checksum = 0;
    int64_t bytes = 0;  // of key and value
  };
  // A commit that is kept; its rows have the ids up to those of the next one.
  struct Commit {
    int64_t first_id = 0;
    int64_t bytes = 0;  // of its rows
  };
  using Rows = absl::btree_map<std::string, Row>;
  struct Contents {
    Rows rows;
    int64_t floor = 0;
    std::deque<Commit> commits;  // of the revisions from floor + 1
    int64_t next_id = 1;
  };
  struct Change {
    std::string key;
    std::optional<Row> row;  // nothing: deleted
  };
  struct Changes {
    std::vector<Change> rows;
    std::vector<Commit> commits;
    int64_t floor = 0;
    int64_t next_id = 1;
  };

  // While it lives, no row goes that was present at its beginning, or is found later, or belongs to
  // a commit that was kept at its beginning. Move-only.
  class Reading {
   public:
    Reading(const VersionIndex& index, int64_t publication)
        : index_(&index), publication_(publication) {}
    Reading(Reading&& other) noexcept
        : index_(std::exchange(other.index_, nullptr)), publication_(other.publication_) {}
    Reading& operator=(Reading&&) = delete;
    ~Reading();

   private:
    const VersionIndex* index_;
    int64_t publication_;
  };
  Reading BeginReading() const;
  // How often this was published. What was replaced up to OldestReading is read by nobody.
  int64_t publication() const;
  int64_t OldestReading() const;

  std::optional<Row> Find(absl::string_view key) const;
  // As MetadataStore::List, all of one moment.
  std::vector<std::pair<std::string, Row>> List(absl::string_view prefix, absl::string_view after,
                                                int64_t limit) const;
  int64_t revision() const;

  // Kept commits that follow each other.
  struct Range {
    int64_t first_revision = 0;
    int64_t count = 0;
    int64_t first_id = 0;
    int64_t end_id = 0;
  };
  // As MetadataStore::CommitsAfter; at least one, and of not many more bytes than `bytes_max`.
  absl::StatusOr<Range> CommitsAfter(int64_t revision, int64_t limit, int64_t bytes_max) const;
  // Returns when the revision is greater, or after `wait`.
  void WaitAfter(int64_t revision, absl::Duration wait) const;

  // Of the commits that are kept.
  struct Kept {
    int64_t floor = 0;
    int64_t commits = 0;
    int64_t bytes = 0;
  };
  Kept kept() const;
  Commit CommitOf(int64_t revision) const;  // which is kept
  int64_t size() const;

  void Publish(Changes changes);
  void Replace(Contents contents);

 private:
  int64_t revision_locked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return contents_.floor + static_cast<int64_t>(contents_.commits.size());
  }

  // Of the commits that are kept, by place; beyond them: of the next one.
  int64_t FirstIdOf(int64_t commit) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  mutable CondVar has_grown_;
  Contents contents_ ABSL_GUARDED_BY(mutex_);
  int64_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t publication_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable std::multiset<int64_t> readings_ ABSL_GUARDED_BY(mutex_);  // publications
};

}  // namespace crossmesh
