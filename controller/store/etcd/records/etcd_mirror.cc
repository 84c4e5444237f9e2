#include "controller/store/etcd/records/etcd_mirror.h"

#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <limits>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

absl::Status Unreadable(absl::string_view key, absl::string_view expected) {
  return absl::DataLossError(absl::StrCat("key ", key, " of etcd: expected ", expected));
}

absl::Status CheckRevision(int64_t revision) {
  if (revision > 0 && revision < std::numeric_limits<int64_t>::max()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("revision of etcd: expected a number above 0, found ", revision));
}

absl::StatusOr<v1::EtcdObjectRecord> ParseObject(const etcdserverpb::KeyValue& pair) {
  v1::EtcdObjectRecord object;
  if (!object.ParseFromString(pair.value())) return Unreadable(pair.key(), "an object's record");
  return object;
}

}  // namespace

EtcdMirror::EtcdMirror(EtcdKeys keys, size_t commits_kept)
    : keys_(std::move(keys)), table_(commits_kept) {}

absl::StatusOr<std::string> EtcdMirror::ValueOf(v1::EtcdObjectRecord& object, absl::string_view key,
                                                Chunks& chunks) const {
  if (object.content_case() == v1::EtcdObjectRecord::kInlineValue) {
    return std::move(*object.mutable_inline_value());
  }
  if (!object.has_chunks()) return Unreadable(keys_.Object(key), "an object, inline or in chunks");
  const v1::EtcdObjectRecord::Chunks& lies_in = object.chunks();
  std::string value;
  for (int64_t i = 0; i < lies_in.count(); ++i) {
    const auto chunk = chunks.find(keys_.Chunk(lies_in.id(), i));
    if (chunk == chunks.end()) {
      return Unreadable(keys_.Chunk(lies_in.id(), i), absl::StrCat("a chunk of object ", key));
    }
    value += chunk->second;
  }
  if (static_cast<int64_t>(value.size()) != lies_in.size_bytes() ||
      Digest::Of(value).ToString() != lies_in.digest()) {
    return Unreadable(keys_.Object(key), "chunks with the bytes that its record tells");
  }
  for (int64_t i = 0; i < lies_in.count(); ++i) chunks.erase(keys_.Chunk(lies_in.id(), i));
  return value;
}

absl::Status EtcdMirror::Load(std::vector<etcdserverpb::KeyValue> pairs, int64_t revision) {
  RETURN_IF_ERROR(CheckRevision(revision));
  std::vector<std::pair<StoredObject, v1::EtcdObjectRecord>> found;
  Chunks chunks;
  ChunkIds chunk_ids;
  int64_t last_commit = 0;
  uint64_t epoch = 0;
  for (etcdserverpb::KeyValue& pair : pairs) {
    absl::string_view key = pair.key();
    if (key == keys_.commit()) {
      last_commit = pair.mod_revision();
    } else if (key == keys_.epoch()) {
      const std::optional<uint64_t> stored = ParseEpochText(pair.value());
      if (!stored.has_value()) return Unreadable(key, "an epoch of 20 digits");
      epoch = *stored;
    } else if (absl::StartsWith(key, keys_.chunks())) {
      chunks[pair.key()] = std::move(*pair.mutable_value());
    } else if (absl::ConsumePrefix(&key, keys_.objects())) {
      ASSIGN_OR_RETURN(v1::EtcdObjectRecord object, ParseObject(pair));
      found.push_back({{.key = std::string(key), .value = "", .revision = pair.mod_revision()},
                       std::move(object)});
    }
  }
  std::vector<StoredObject> objects;
  for (auto& [object, record] : found) {
    if (record.has_chunks()) chunk_ids[object.key] = record.chunks().id();
    ASSIGN_OR_RETURN(object.value, ValueOf(record, object.key, chunks));
    objects.push_back(std::move(object));
  }
  const MutexLock lock(mutex_);
  table_.Reset(std::move(objects), last_commit);
  chunks_.swap(chunks);
  chunk_ids_.swap(chunk_ids);
  pending_.clear();
  revision_ = revision;
  resume_at_ = revision + 1;
  epoch_ = std::max(epoch_, epoch);
  has_changed_.SignalAll();
  return absl::OkStatus();
}

int64_t EtcdMirror::ResumeAt() {
  const MutexLock lock(mutex_);
  pending_.clear();
  return resume_at_;
}

absl::Status EtcdMirror::Apply(const etcdserverpb::WatchResponse& response) {
  const MutexLock lock(mutex_);
  for (const etcdserverpb::Event& event : response.events()) RETURN_IF_ERROR(ApplyEvent(event));
  // Only a response in parts can end within a revision.
  if (!response.fragment() && !response.events().empty()) resume_at_ = revision_ + 1;
  has_changed_.SignalAll();
  return absl::OkStatus();
}

absl::Status EtcdMirror::ApplyEvent(const etcdserverpb::Event& event) {
  const etcdserverpb::KeyValue& pair = event.kv();
  RETURN_IF_ERROR(CheckRevision(pair.mod_revision()));
  absl::string_view key = pair.key();
  if (!pending_.empty() && pair.mod_revision() != revision_) {
    return Unreadable(keys_.Object(pending_.begin()->first),
                      absl::StrCat("to be written by controllers only, found revision ", revision_,
                                   ", which is no commit of theirs"));
  }
  revision_ = pair.mod_revision();
  resume_at_ = revision_;
  const bool is_put = event.type() == etcdserverpb::Event::PUT;
  if (key == keys_.commit()) return ApplyCommit(event);
  if (key == keys_.epoch() && is_put) {
    epoch_ = std::max(epoch_, ParseEpochText(pair.value()).value_or(0));
  } else if (absl::StartsWith(key, keys_.chunks())) {
    if (is_put) {
      chunks_[pair.key()] = pair.value();
    } else {
      chunks_.erase(pair.key());
    }
  } else if (absl::ConsumePrefix(&key, keys_.objects())) {
    return ApplyObject(event, key);
  }
  return absl::OkStatus();
}

absl::Status EtcdMirror::ApplyObject(const etcdserverpb::Event& event, absl::string_view key) {
  std::optional<v1::EtcdObjectRecord>& pending = pending_[std::string(key)];
  if (event.type() == etcdserverpb::Event::PUT) {
    ASSIGN_OR_RETURN(pending, ParseObject(event.kv()));
  }
  return absl::OkStatus();
}

absl::Status EtcdMirror::ApplyCommit(const etcdserverpb::Event& event) {
  v1::EtcdCommitRecord record;
  if (event.type() != etcdserverpb::Event::PUT || !record.ParseFromString(event.kv().value())) {
    return Unreadable(event.kv().key(), "the record of a commit");
  }
  if (revision_ <= table_.revision()) {
    return Unreadable(event.kv().key(), absl::StrCat("a commit after revision ", table_.revision(),
                                                     ", found revision ", revision_));
  }
  StoredCommit commit{.revision = revision_, .writes = {}};
  for (const v1::EtcdCommitRecord::Write& write : record.writes()) {
    ASSIGN_OR_RETURN(StoreTransaction::Write done, Take(write));
    commit.writes.push_back(std::move(done));
  }
  if (!pending_.empty()) {
    return Unreadable(keys_.Object(pending_.begin()->first),
                      absl::StrCat("to be named by the commit of revision ", revision_));
  }
  table_.Apply(std::move(commit));
  epoch_ = std::max(epoch_, record.epoch());
  resume_at_ = revision_ + 1;
  return absl::OkStatus();
}

absl::StatusOr<StoreTransaction::Write> EtcdMirror::Take(const v1::EtcdCommitRecord::Write& write) {
  const auto found = pending_.find(write.key());
  const bool exists = found != pending_.end() && found->second.has_value();
  if (exists == write.deleted()) {
    return Unreadable(keys_.Object(write.key()),
                      absl::StrCat("to be ", write.deleted() ? "deleted" : "written", " by the ",
                                   "commit of revision ", revision_));
  }
  StoreTransaction::Write done{.key = write.key(), .value = std::nullopt};
  chunk_ids_.erase(write.key());
  if (exists) {
    if (found->second->has_chunks()) chunk_ids_[write.key()] = found->second->chunks().id();
    ASSIGN_OR_RETURN(done.value, ValueOf(*found->second, write.key(), chunks_));
  }
  // What did not exist is deleted without an event.
  if (found != pending_.end()) pending_.erase(found);
  return done;
}

uint64_t EtcdMirror::epoch() const {
  const MutexLock lock(mutex_);
  return epoch_;
}

int64_t EtcdMirror::revision() const {
  const MutexLock lock(mutex_);
  return resume_at_ - 1;
}

bool EtcdMirror::AwaitRevision(int64_t revision, absl::Duration wait) const {
  const RealClock clock;
  const absl::Duration end = clock.Monotonic() + wait;
  const MutexLock lock(mutex_);
  for (absl::Duration left = wait; resume_at_ <= revision && left > absl::ZeroDuration();
       left = end - clock.Monotonic()) {
    has_changed_.WaitFor(mutex_, left);
  }
  return resume_at_ > revision;
}

std::optional<std::string> EtcdMirror::ChunksOf(absl::string_view key) const {
  const MutexLock lock(mutex_);
  const auto found = chunk_ids_.find(key);
  if (found == chunk_ids_.end()) return std::nullopt;
  return found->second;
}

std::vector<std::string> EtcdMirror::LooseChunks() const {
  const MutexLock lock(mutex_);
  std::vector<std::string> ids;
  for (const auto& [key, chunk] : chunks_) {
    absl::string_view id = key;
    absl::ConsumePrefix(&id, keys_.chunks());
    id = id.substr(0, id.rfind('/'));
    if (ids.empty() || ids.back() != id) ids.emplace_back(id);
  }
  return ids;
}

}  // namespace crossmesh
