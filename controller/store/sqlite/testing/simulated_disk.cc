#include "controller/store/sqlite/testing/simulated_disk.h"

#include "common/base/check.h"
#include "controller/store/sqlite/testing/simulated_vfs.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <sqlite3.h>

namespace crossmesh {
namespace {

std::string UniqueName() {
  static std::atomic<int> count = 0;
  return absl::StrCat("simulated-disk-", ++count);
}

}  // namespace

struct SimulatedDisk::Content {
  std::string seen;               // as it is read
  std::string durable;            // what is found for sure after the power was off
  std::set<int64_t> unsynced;     // sectors written since the last sync
  bool is_size_unsynced = false;  // the durable size is another one

  int shared = 0;
  const File* reserved = nullptr;
  const File* exclusive = nullptr;
  int mappings = 0;
  std::vector<std::unique_ptr<std::vector<char>>> memory;
  std::vector<int> memory_locks = std::vector<int>(SQLITE_SHM_NLOCK, 0);  // -1: exclusive
};

SimulatedDisk::SimulatedDisk(uint64_t seed)
    : name_(UniqueName()), vfs_(MakeSimulatedVfs(*this, name_)), random_(seed) {
  CHECK_EQ(sqlite3_vfs_register(vfs_.get(), /*makeDflt=*/0), SQLITE_OK);
}

SimulatedDisk::~SimulatedDisk() { sqlite3_vfs_unregister(vfs_.get()); }

void SimulatedDisk::PowerOffAfter(int64_t operations) {
  const MutexLock lock(mutex_);
  writes_left_ = operations;
}

void SimulatedDisk::PowerOff() {
  const MutexLock lock(mutex_);
  LosePower();
}

void SimulatedDisk::CutOff() {
  const MutexLock lock(mutex_);
  ++generation_;
}

bool SimulatedDisk::is_off() const {
  const MutexLock lock(mutex_);
  return is_off_;
}

void SimulatedDisk::PowerOn() {
  const MutexLock lock(mutex_);
  is_off_ = false;
  writes_left_.reset();
  failing_syncs_ = 0;
  writes_fail_ = false;
}

void SimulatedDisk::FailSyncsAfter(int64_t syncs, int64_t count) {
  const MutexLock lock(mutex_);
  syncs_before_failure_ = syncs;
  failing_syncs_ = count;
}

void SimulatedDisk::SetWritesFail(bool fail) {
  const MutexLock lock(mutex_);
  writes_fail_ = fail;
}

void SimulatedDisk::LimitBytes(std::optional<int64_t> bytes) {
  const MutexLock lock(mutex_);
  bytes_max_ = bytes;
}

int64_t SimulatedDisk::bytes() const {
  const MutexLock lock(mutex_);
  return AllBytes();
}

int64_t SimulatedDisk::writes() const {
  const MutexLock lock(mutex_);
  return writes_;
}

int64_t SimulatedDisk::syncs() const {
  const MutexLock lock(mutex_);
  return syncs_;
}

int64_t SimulatedDisk::AllBytes() const {
  int64_t bytes = 0;
  for (const auto& [name, content] : files_) bytes += static_cast<int64_t>(content->seen.size());
  return bytes;
}

std::shared_ptr<SimulatedDisk::Content> SimulatedDisk::Find(absl::string_view suffix) const {
  for (const auto& [name, content] : files_) {
    if (absl::EndsWith(name, suffix)) return content;
  }
  return nullptr;
}

std::string SimulatedDisk::Read(absl::string_view suffix) const {
  const MutexLock lock(mutex_);
  const std::shared_ptr<Content> content = Find(suffix);
  return content == nullptr ? "" : content->seen;
}

void SimulatedDisk::FlipBit(absl::string_view suffix, int64_t bit) {
  const MutexLock lock(mutex_);
  const std::shared_ptr<Content> content = Find(suffix);
  CHECK(content != nullptr) << suffix;
  for (std::string* bytes : {&content->seen, &content->durable}) {
    if (bit / 8 < std::ssize(*bytes)) {
      (*bytes)[bit / 8] = static_cast<char>((*bytes)[bit / 8] ^ (1 << (bit % 8)));
    }
  }
}

SimulatedDisk::Image SimulatedDisk::Save() const {
  const MutexLock lock(mutex_);
  Image image;
  for (const auto& [name, content] : files_) image[name] = content->seen;
  return image;
}

void SimulatedDisk::Load(const Image& image) {
  const MutexLock lock(mutex_);
  ++generation_;
  files_.clear();
  for (const auto& [name, bytes] : image) {
    files_[name] = std::make_shared<Content>(Content{.seen = bytes, .durable = bytes});
  }
}

SimulatedDisk::File* SimulatedDisk::Open(const std::string& name, bool make) {
  const MutexLock lock(mutex_);
  if (is_off_) return nullptr;
  if (!make && !files_.contains(name)) return nullptr;
  std::shared_ptr<Content>& content = files_[name];
  if (content == nullptr) content = std::make_shared<Content>();
  return new File(*this, content, generation_);
}

bool SimulatedDisk::Exists(const std::string& name) const {
  const MutexLock lock(mutex_);
  return files_.contains(name);
}

void SimulatedDisk::Delete(const std::string& name) {
  const MutexLock lock(mutex_);
  files_.erase(name);
}

bool SimulatedDisk::Count(int64_t& counter) {
  if (is_off_) return false;
  ++counter;
  if (!writes_left_.has_value() || (*writes_left_)-- > 0) return true;
  LosePower();
  return false;
}

// Of what was not synced, each sector and each size is there or not.
void SimulatedDisk::LosePower() {
  is_off_ = true;
  ++generation_;
  for (auto& [name, content] : files_) {
    std::string found = content->durable;
    if (content->is_size_unsynced && random_() % 2 == 0) found.resize(content->seen.size());
    for (const int64_t sector : content->unsynced) {
      const size_t begin = sector * kSectorBytes;
      if (begin >= content->seen.size() || random_() % 2 == 0) continue;
      const size_t size = std::min<size_t>(kSectorBytes, content->seen.size() - begin);
      if (found.size() < begin + size) found.resize(begin + size);
      found.replace(begin, size, content->seen, begin, size);
    }
    content = std::make_shared<Content>(Content{.seen = found, .durable = found});
  }
}

int SimulatedDisk::Write(Content& content, int64_t offset, absl::string_view bytes) {
  if (is_off_ || writes_fail_) return SQLITE_IOERR_WRITE;
  const int64_t end = offset + std::ssize(bytes);
  const int64_t growth = std::max<int64_t>(end - std::ssize(content.seen), 0);
  if (bytes_max_.has_value() && AllBytes() + growth > *bytes_max_) return SQLITE_FULL;
  if (growth > 0) {
    content.seen.resize(end);
    content.is_size_unsynced = true;
  }
  std::memcpy(content.seen.data() + offset, bytes.data(), bytes.size());
  for (int64_t sector = offset / kSectorBytes; sector * kSectorBytes < end; ++sector) {
    content.unsynced.insert(sector);
  }
  return Count(writes_) ? SQLITE_OK : SQLITE_IOERR_WRITE;
}

int SimulatedDisk::Truncate(Content& content, int64_t size) {
  if (is_off_ || writes_fail_) return SQLITE_IOERR_TRUNCATE;
  content.seen.resize(size);
  content.is_size_unsynced = true;
  return Count(writes_) ? SQLITE_OK : SQLITE_IOERR_TRUNCATE;
}

int SimulatedDisk::Sync(Content& content) {
  if (!Count(syncs_)) return SQLITE_IOERR_FSYNC;
  if (failing_syncs_ > 0 && syncs_before_failure_-- <= 0) {
    --failing_syncs_;
    content.unsynced.clear();
    return SQLITE_IOERR_FSYNC;
  }
  content.durable.resize(content.seen.size());
  for (const int64_t sector : content.unsynced) {
    const size_t begin = sector * kSectorBytes;
    if (begin >= content.seen.size()) continue;
    const size_t size = std::min<size_t>(kSectorBytes, content.seen.size() - begin);
    content.durable.replace(begin, size, content.seen, begin, size);
  }
  content.unsynced.clear();
  content.is_size_unsynced = false;
  return SQLITE_OK;
}

SimulatedDisk::File::File(SimulatedDisk& disk, std::shared_ptr<Content> content, int64_t generation)
    : disk_(disk), content_(std::move(content)), generation_(generation) {}

SimulatedDisk::File::~File() {
  Unlock(SQLITE_LOCK_NONE);
  UnmapMemory();
}

bool SimulatedDisk::File::IsUsable() { return !disk_.is_off_ && generation_ == disk_.generation_; }

int SimulatedDisk::File::Read(char* bytes, int64_t size, int64_t offset) {
  const MutexLock lock(disk_.mutex_);
  if (!IsUsable()) return SQLITE_IOERR_READ;
  const int64_t there = std::clamp<int64_t>(std::ssize(content_->seen) - offset, 0, size);
  std::memset(bytes + there, 0, size - there);
  if (there > 0) std::memcpy(bytes, content_->seen.data() + offset, there);
  return there == size ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

int SimulatedDisk::File::Write(int64_t offset, absl::string_view bytes) {
  if (!disk_.IsWanted()) return SQLITE_IOERR_WRITE;
  const MutexLock lock(disk_.mutex_);
  return IsUsable() ? disk_.Write(*content_, offset, bytes) : SQLITE_IOERR_WRITE;
}

int SimulatedDisk::File::Truncate(int64_t size) {
  if (!disk_.IsWanted()) return SQLITE_IOERR_TRUNCATE;
  const MutexLock lock(disk_.mutex_);
  return IsUsable() ? disk_.Truncate(*content_, size) : SQLITE_IOERR_TRUNCATE;
}

int SimulatedDisk::File::Sync() {
  if (!disk_.IsWanted()) return SQLITE_IOERR_FSYNC;
  const MutexLock lock(disk_.mutex_);
  return IsUsable() ? disk_.Sync(*content_) : SQLITE_IOERR_FSYNC;
}

int64_t SimulatedDisk::File::Size() {
  const MutexLock lock(disk_.mutex_);
  return std::ssize(content_->seen);
}

int SimulatedDisk::File::Lock(int level) {
  const MutexLock lock(disk_.mutex_);
  if (!IsUsable()) return SQLITE_IOERR_LOCK;
  if (level <= level_) return SQLITE_OK;
  const auto has_another = [this](const File* holder) { return holder && holder != this; };
  if (has_another(content_->exclusive)) return SQLITE_BUSY;
  if (level >= SQLITE_LOCK_RESERVED && has_another(content_->reserved)) return SQLITE_BUSY;
  if (level == SQLITE_LOCK_EXCLUSIVE && content_->shared > 1) return SQLITE_BUSY;
  if (level_ == SQLITE_LOCK_NONE) ++content_->shared;
  if (level >= SQLITE_LOCK_RESERVED) content_->reserved = this;
  if (level == SQLITE_LOCK_EXCLUSIVE) content_->exclusive = this;
  level_ = level;
  return SQLITE_OK;
}

int SimulatedDisk::File::Unlock(int level) {
  const MutexLock lock(disk_.mutex_);
  if (level >= level_) return SQLITE_OK;
  if (content_->exclusive == this) content_->exclusive = nullptr;
  if (content_->reserved == this) content_->reserved = nullptr;
  if (level == SQLITE_LOCK_NONE) --content_->shared;
  level_ = level;
  return SQLITE_OK;
}

bool SimulatedDisk::File::IsReserved() {
  const MutexLock lock(disk_.mutex_);
  return content_->reserved != nullptr;
}

int SimulatedDisk::File::MapMemory(int region, int size, bool make, void volatile** memory) {
  const MutexLock lock(disk_.mutex_);
  *memory = nullptr;
  if (!IsUsable()) return SQLITE_IOERR_SHMMAP;
  if (!std::exchange(has_memory_, true)) ++content_->mappings;
  while (make && std::ssize(content_->memory) <= region) {
    content_->memory.push_back(std::make_unique<std::vector<char>>(size));
  }
  if (region < std::ssize(content_->memory)) *memory = content_->memory[region]->data();
  return SQLITE_OK;
}

int SimulatedDisk::File::LockMemory(int first, int count, int flags) {
  const MutexLock lock(disk_.mutex_);
  if (!IsUsable()) return SQLITE_IOERR_SHMLOCK;
  const auto locks = std::span(content_->memory_locks).subspan(first, count);
  if ((flags & SQLITE_SHM_UNLOCK) != 0) {
    for (int& held : locks) held = (flags & SQLITE_SHM_EXCLUSIVE) != 0 ? 0 : held - 1;
    return SQLITE_OK;
  }
  const bool is_exclusive = (flags & SQLITE_SHM_EXCLUSIVE) != 0;
  for (const int held : locks) {
    if (held < 0 || (is_exclusive && held > 0)) return SQLITE_BUSY;
  }
  for (int& held : locks) held = is_exclusive ? -1 : held + 1;
  return SQLITE_OK;
}

// The last one takes the memory with it, as the system's VFS does.
void SimulatedDisk::File::UnmapMemory() {
  const MutexLock lock(disk_.mutex_);
  if (!std::exchange(has_memory_, false) || --content_->mappings > 0) return;
  content_->memory.clear();
  content_->memory_locks.assign(SQLITE_SHM_NLOCK, 0);
}

}  // namespace crossmesh
