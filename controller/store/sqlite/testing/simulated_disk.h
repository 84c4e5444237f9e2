#pragma once

#include "common/base/mutex.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/string_view.h>

struct sqlite3_vfs;

namespace crossmesh {

// A disk in memory, as a VFS of SQLite. What was written is read back at once, and is on the disk
// for sure only after a sync: when the power goes, each sector that was written since may be there
// or not. It fails, fills up and changes bits as it is told. Thread-safe.
class SimulatedDisk {
 public:
  static constexpr int64_t kSectorBytes = 512;

  explicit SimulatedDisk(uint64_t seed);
  // All files must be closed.
  ~SimulatedDisk();
  SimulatedDisk(const SimulatedDisk&) = delete;
  SimulatedDisk& operator=(const SimulatedDisk&) = delete;

  // To be given to SQLite.
  const std::string& vfs() const { return name_; }

  // Asked before each write and sync, with no lock held; false: the process that wants it has
  // ended, and it is not done. To be set before any file is open.
  void AskBefore(std::function<bool()> asked) { asked_ = std::move(asked); }

  // The power goes in the middle of a write or sync, after so many that are done; everything fails
  // from there to PowerOn.
  void PowerOffAfter(int64_t operations);
  void PowerOff();
  bool is_off() const;
  // The process that has files open has ended: they are unusable, and what it has written stays.
  void CutOff();
  // The disk as it is found: open files stay unusable.
  void PowerOn();

  // After so many syncs that are done `count` of them fail; what they were to sync never gets onto
  // the disk, though it is read back until the power goes.
  void FailSyncsAfter(int64_t syncs, int64_t count);
  void SetWritesFail(bool fail);
  // All files together have at most so many bytes.
  void LimitBytes(std::optional<int64_t> bytes);
  int64_t bytes() const;

  // So far; both are operations that PowerOffAfter counts.
  int64_t writes() const;
  int64_t syncs() const;

  // Files by the end of their names, e.g. "store.db-wal", as they are read now.
  std::string Read(absl::string_view suffix) const;
  void FlipBit(absl::string_view suffix, int64_t bit);
  // All of the disk at one moment, and back to that; files must be closed.
  using Image = std::map<std::string, std::string>;
  Image Save() const;
  void Load(const Image& image);

  // An open file, for the VFS, in SQLite's terms. Unusable once the power has gone.
  class File;
  // Null: there is none.
  File* Open(const std::string& name, bool make);
  bool Exists(const std::string& name) const;
  void Delete(const std::string& name);

 private:
  struct Content;

  // Whether the process that wants to write or sync is there.
  bool IsWanted() const { return asked_ == nullptr || asked_(); }
  int Write(Content& content, int64_t offset, absl::string_view bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int Truncate(Content& content, int64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int Sync(Content& content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the disk still works, after what may have been its last operation.
  bool Count(int64_t& counter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LosePower() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t AllBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Content> Find(absl::string_view suffix) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string name_;
  const std::unique_ptr<sqlite3_vfs> vfs_;
  std::function<bool()> asked_;
  mutable Mutex mutex_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Content>> files_ ABSL_GUARDED_BY(mutex_);
  int64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // how often the power has gone
  bool is_off_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<int64_t> writes_left_ ABSL_GUARDED_BY(mutex_);
  int64_t syncs_before_failure_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t failing_syncs_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writes_fail_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<int64_t> bytes_max_ ABSL_GUARDED_BY(mutex_);
  int64_t writes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t syncs_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What a VFS asks of a file: codes are SQLite's. Thread-safe.
class SimulatedDisk::File {
 public:
  File(SimulatedDisk& disk, std::shared_ptr<Content> content, int64_t generation);
  ~File();

  int Read(char* bytes, int64_t size, int64_t offset);
  int Write(int64_t offset, absl::string_view bytes);
  int Truncate(int64_t size);
  int Sync();
  int64_t Size();

  int Lock(int level);
  int Unlock(int level);
  bool IsReserved();
  int MapMemory(int region, int size, bool make, void volatile** memory);
  int LockMemory(int first, int count, int flags);
  void UnmapMemory();

 private:
  bool IsUsable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(disk_.mutex_);

  SimulatedDisk& disk_;
  const std::shared_ptr<Content> content_;
  const int64_t generation_;
  int level_ ABSL_GUARDED_BY(disk_.mutex_) = 0;
  bool has_memory_ ABSL_GUARDED_BY(disk_.mutex_) = false;
};

}  // namespace crossmesh
