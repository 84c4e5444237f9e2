#include "controller/store/sqlite/version_index.h"

#include "common/base/clock.h"

#include <algorithm>
#include <iterator>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status Forgotten(int64_t revision, int64_t floor) {
  return absl::OutOfRangeError(absl::StrCat("commits after revision ", revision,
                                            ": expected one of at least ", floor,
                                            ", after which all are kept"));
}

}  // namespace

VersionIndex::Reading::~Reading() {
  if (index_ == nullptr) return;
  const MutexLock lock(index_->mutex_);
  index_->readings_.erase(index_->readings_.find(publication_));
}

VersionIndex::Reading VersionIndex::BeginReading() const {
  const MutexLock lock(mutex_);
  readings_.insert(publication_);
  return Reading(*this, publication_);
}

int64_t VersionIndex::publication() const {
  const MutexLock lock(mutex_);
  return publication_;
}

int64_t VersionIndex::OldestReading() const {
  const MutexLock lock(mutex_);
  return readings_.empty() ? publication_ : *readings_.begin();
}

std::optional<VersionIndex::Row> VersionIndex::Find(absl::string_view key) const {
  const MutexLock lock(mutex_);
  const auto found = contents_.rows.find(key);
  if (found == contents_.rows.end()) return std::nullopt;
  return found->second;
}

std::vector<std::pair<std::string, VersionIndex::Row>> VersionIndex::List(absl::string_view prefix,
                                                                          absl::string_view after,
                                                                          int64_t limit) const {
  const MutexLock lock(mutex_);
  const Rows& rows = contents_.rows;
  std::vector<std::pair<std::string, Row>> found;
  auto at = after < prefix ? rows.lower_bound(prefix) : rows.upper_bound(after);
  for (; at != rows.end() && absl::StartsWith(at->first, prefix); ++at) {
    if (std::ssize(found) == limit) break;
    found.emplace_back(at->first, at->second);
  }
  return found;
}

int64_t VersionIndex::revision() const {
  const MutexLock lock(mutex_);
  return revision_locked();
}

absl::StatusOr<VersionIndex::Range> VersionIndex::CommitsAfter(int64_t revision, int64_t limit,
                                                               int64_t bytes_max) const {
  const MutexLock lock(mutex_);
  if (revision < contents_.floor) return Forgotten(revision, contents_.floor);
  const int64_t kept = std::ssize(contents_.commits);
  const int64_t first = std::min(revision, revision_locked()) - contents_.floor;
  int64_t end = first;
  for (int64_t bytes = 0; end < kept && end - first < limit && bytes < bytes_max;) {
    bytes += contents_.commits[end++].bytes;
  }
  return Range{.first_revision = contents_.floor + first + 1,
               .count = end - first,
               .first_id = FirstIdOf(first),
               .end_id = FirstIdOf(end)};
}

int64_t VersionIndex::FirstIdOf(int64_t commit) const {
  return commit < std::ssize(contents_.commits) ? contents_.commits[commit].first_id
                                                : contents_.next_id;
}

void VersionIndex::WaitAfter(int64_t revision, absl::Duration wait) const {
  const RealClock clock;
  const absl::Duration end = clock.Monotonic() + wait;
  const MutexLock lock(mutex_);
  for (absl::Duration left = wait; revision_locked() <= revision && left > absl::ZeroDuration();
       left = end - clock.Monotonic()) {
    has_grown_.WaitFor(mutex_, left);
  }
}

VersionIndex::Kept VersionIndex::kept() const {
  const MutexLock lock(mutex_);
  return {.floor = contents_.floor, .commits = std::ssize(contents_.commits), .bytes = kept_bytes_};
}

VersionIndex::Commit VersionIndex::CommitOf(int64_t revision) const {
  const MutexLock lock(mutex_);
  return contents_.commits[revision - contents_.floor - 1];
}

int64_t VersionIndex::size() const {
  const MutexLock lock(mutex_);
  return std::ssize(contents_.rows);
}

void VersionIndex::Publish(Changes changes) {
  const MutexLock lock(mutex_);
  for (Change& change : changes.rows) {
    if (change.row.has_value()) {
      contents_.rows.insert_or_assign(std::move(change.key), *change.row);
    } else {
      contents_.rows.erase(change.key);
    }
  }
  for (const Commit& commit : changes.commits) {
    contents_.commits.push_back(commit);
    kept_bytes_ += commit.bytes;
  }
  while (contents_.floor < changes.floor) {
    kept_bytes_ -= contents_.commits.front().bytes;
    contents_.commits.pop_front();
    ++contents_.floor;
  }
  contents_.next_id = changes.next_id;
  ++publication_;
  has_grown_.SignalAll();
}

void VersionIndex::Replace(Contents contents) {
  const MutexLock lock(mutex_);
  contents_ = std::move(contents);
  kept_bytes_ = 0;
  for (const Commit& commit : contents_.commits) kept_bytes_ += commit.bytes;
  ++publication_;
  has_grown_.SignalAll();
}

}  // namespace crossmesh
