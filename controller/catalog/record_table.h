#pragma once

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/wire/object_name.h"
#include "controller/store/metadata_store.h"

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A registered object: an immutable snapshot, and the store's revision at which it came to be.
template <typename T>
struct Registered {
  std::string name;
  std::shared_ptr<const T> value;
  int64_t revision = 0;
};

// Named objects of one kind, as typed records over the store. What was read once is kept decoded,
// so that looking an object up parses nothing. T compares with ==. Thread-safe.
template <typename T>
class RecordTable {
 public:
  struct Kind {
    std::string name;
    std::string (*encode)(const T& value);
    absl::StatusOr<T> (*decode)(const std::string& bytes);
    int64_t (*heap_bytes)(const T& value);  // that it takes decoded
    // So many objects, and so much memory: encoded, and decoded where they have been read.
    int64_t objects_max = 10'000;
    int64_t bytes_max = int64_t{1} << 30;
  };

  // Objects live under "NAME/" of the kind in the store, which must outlive the table. `epoch` is
  // the controller's fencing number.
  RecordTable(Kind kind, MetadataStore& store, uint64_t epoch)
      : kind_(std::move(kind)), store_(store), epoch_(epoch) {}

  // Counts what former controllers have put, before anything else is asked. The store's errors.
  absl::Status Load() {
    std::string after;
    for (bool more = true; more;) {
      ASSIGN_OR_RETURN(const std::vector<StoredObject> page,
                       store_.List(KeyOf(""), after, kLoadPage));
      const MutexLock lock(mutex_);
      for (const StoredObject& object : page) {
        Count(object.key.substr(kind_.name.size() + 1), std::ssize(object.value));
      }
      more = std::ssize(page) == kLoadPage;
      if (more) after = page.back().key;
    }
    return absl::OkStatus();
  }

  // How many objects there are.
  int64_t size() {
    const MutexLock lock(mutex_);
    return std::ssize(bytes_of_);
  }

  // The object's revision. The same content again is OK and changes nothing. AlreadyExists names
  // the object when the content differs; InvalidArgument: a bad name; ResourceExhausted: a bound.
  absl::StatusOr<int64_t> Put(absl::string_view name, T value) {
    RETURN_IF_ERROR(CheckObjectName(kind_.name, name));
    if (const auto present = Get(name); present.ok()) return RevisionIfSame(*present, value);
    StoreTransaction create{.epoch = epoch_,
                            .requirements = {{KeyOf(name), 0}},
                            .writes = {{KeyOf(name), kind_.encode(value)}}};
    const int64_t bytes = std::ssize(*create.writes[0].value) + kind_.heap_bytes(value);
    RETURN_IF_ERROR(Reserve(name, bytes));
    absl::StatusOr<int64_t> revision = store_.Commit(create);
    {
      const MutexLock lock(mutex_);
      Release(bytes);
      if (revision.ok()) {
        Count(name, bytes);
        decoded_[name] = {std::string(name), std::make_shared<const T>(std::move(value)),
                          *revision};
        return revision;
      }
    }
    const absl::StatusOr<Registered<T>> present = Get(name);
    if (!present.ok()) return revision.status();  // not refused for an object of that name
    return RevisionIfSame(*present, value);
  }

  // NotFound names the object.
  absl::StatusOr<Registered<T>> Get(absl::string_view name) {
    ASSIGN_OR_RETURN(const int64_t revision, store_.RevisionOf(KeyOf(name)));
    if (std::optional<Registered<T>> kept = FindKept(name, revision)) return *std::move(kept);
    const absl::StatusOr<StoredObject> object = store_.Get(KeyOf(name));
    if (!object.ok()) {
      return absl::NotFoundError(absl::StrCat(kind_.name, " \"", absl::CHexEscape(name),
                                              "\": expected a registered one, found none"));
    }
    return Decode(*object);
  }

  // By name, those after `after`, at most `limit`.
  absl::StatusOr<std::vector<Registered<T>>> List(absl::string_view after, int64_t limit) {
    ASSIGN_OR_RETURN(const std::vector<StoredObject> objects,
                     store_.List(KeyOf(""), KeyOf(after), limit));
    std::vector<Registered<T>> listed;
    for (const StoredObject& object : objects) {
      ASSIGN_OR_RETURN(Registered<T> decoded, Decode(object));
      listed.push_back(std::move(decoded));
    }
    return listed;
  }

  // The revision that it had. NotFound; Aborted when `revision` is not 0 and not the object's.
  absl::StatusOr<int64_t> Delete(absl::string_view name, int64_t revision) {
    ASSIGN_OR_RETURN(const Registered<T> present, Get(name));
    const StoreTransaction erase{
        .epoch = epoch_,
        .requirements = {{KeyOf(name), revision == 0 ? present.revision : revision}},
        .writes = {{KeyOf(name), std::nullopt}}};
    RETURN_IF_ERROR(store_.Commit(erase).status());
    const MutexLock lock(mutex_);
    decoded_.erase(present.name);
    if (const auto put = bytes_of_.find(name); put != bytes_of_.end()) {
      Release(put->second);
      bytes_of_.erase(put);
    }
    return present.revision;
  }

 private:
  std::string KeyOf(absl::string_view name) const { return absl::StrCat(kind_.name, "/", name); }

  absl::StatusOr<int64_t> RevisionIfSame(const Registered<T>& present, const T& value) const {
    if (*present.value == value) return present.revision;
    return absl::AlreadyExistsError(
        absl::StrCat(kind_.name, " ", present.name, " exists with other content; delete it first"));
  }

  absl::Status Reserve(absl::string_view name, int64_t bytes) {
    const MutexLock lock(mutex_);
    if (objects_ >= kind_.objects_max || bytes_ + bytes > kind_.bytes_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat(kind_.name, " \"", name, "\": expected at most ", kind_.objects_max,
                       " of them in ", kind_.bytes_max, " bytes of memory, found ", objects_,
                       " in ", bytes_, ", and it takes ", bytes, " more; delete some first"));
    }
    ++objects_;
    bytes_ += bytes;
    return absl::OkStatus();
  }
  void Release(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    --objects_;
    bytes_ -= bytes;
  }

  void Count(absl::string_view name, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    bytes_of_[name] = bytes;
    ++objects_;
    bytes_ += bytes;
  }

  std::optional<Registered<T>> FindKept(absl::string_view name, int64_t revision) {
    const MutexLock lock(mutex_);
    const auto found = decoded_.find(name);
    if (found == decoded_.end() || found->second.revision != revision) return std::nullopt;
    return found->second;
  }

  absl::StatusOr<Registered<T>> Decode(const StoredObject& object) {
    const std::string name = object.key.substr(kind_.name.size() + 1);
    if (std::optional<Registered<T>> kept = FindKept(name, object.revision)) {
      return *std::move(kept);
    }
    absl::StatusOr<T> value = kind_.decode(object.value);
    if (!value.ok()) {
      return absl::InternalError(
          absl::StrCat("stored ", kind_.name, " ", name, ": ", value.status().message()));
    }
    Registered<T> registered{name, std::make_shared<const T>(*std::move(value)), object.revision};
    Keep(registered);
    return registered;
  }

  // What was read, and takes memory decoded from now on; unless it was deleted meanwhile, or is not
  // yet known to be put.
  void Keep(const Registered<T>& registered) {
    const MutexLock lock(mutex_);
    if (!bytes_of_.contains(registered.name)) return;
    if (!decoded_.contains(registered.name)) {
      const int64_t bytes = kind_.heap_bytes(*registered.value);
      bytes_of_[registered.name] += bytes;
      bytes_ += bytes;
    }
    decoded_[registered.name] = registered;
  }

  static constexpr int64_t kLoadPage = 1000;

  const Kind kind_;
  MetadataStore& store_;
  const uint64_t epoch_;

  Mutex mutex_;
  absl::flat_hash_map<std::string, Registered<T>> decoded_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, int64_t> bytes_of_ ABSL_GUARDED_BY(mutex_);
  int64_t objects_ ABSL_GUARDED_BY(mutex_) = 0;  // with those that are being put
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
