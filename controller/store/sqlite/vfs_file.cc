#include "controller/store/sqlite/vfs_file.h"

#include "common/base/status_macros.h"
#include "controller/store/store_error.h"

#include <cstdlib>
#include <utility>

#include <absl/strings/str_cat.h>
#include <sqlite3.h>

namespace crossmesh {

absl::StatusOr<std::unique_ptr<VfsFile>> VfsFile::Open(const std::string& path,
                                                       const std::string& vfs) {
  sqlite3_vfs* const disk = sqlite3_vfs_find(vfs.empty() ? nullptr : vfs.c_str());
  if (disk == nullptr) return absl::InternalError(absl::StrCat("no VFS ", vfs));
  auto* const file = static_cast<sqlite3_file*>(std::calloc(1, disk->szOsFile));
  std::unique_ptr<VfsFile> opened(new VfsFile(path, file));
  // As a kind of file with whose first sync the folder is synced as well.
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_SUPER_JOURNAL;
  RETURN_IF_ERROR(opened->ErrorOf(disk->xOpen(disk, opened->path_.c_str(), file, kFlags, nullptr)));
  return opened;
}

VfsFile::~VfsFile() {
  if (file_->pMethods != nullptr) file_->pMethods->xClose(file_);
  std::free(file_);
}

absl::Status VfsFile::ErrorOf(int code) const {
  if (code == SQLITE_OK) return absl::OkStatus();
  const std::string message =
      absl::StrCat("store file ", path_, ": ", sqlite3_errstr(code), " (SQLite ", code, ")");
  if ((code & 0xff) == SQLITE_FULL) return StoreError(StoreErrorKind::kFull, message);
  return absl::UnavailableError(message);
}

absl::StatusOr<int64_t> VfsFile::Size() {
  sqlite3_int64 size = 0;
  RETURN_IF_ERROR(ErrorOf(file_->pMethods->xFileSize(file_, &size)));
  return size;
}

absl::StatusOr<std::string> VfsFile::Read(int64_t offset, int64_t size) {
  std::string bytes(size, '\0');
  const int read = file_->pMethods->xRead(file_, bytes.data(), static_cast<int>(size), offset);
  if (read != SQLITE_IOERR_SHORT_READ) RETURN_IF_ERROR(ErrorOf(read));
  return bytes;
}

absl::Status VfsFile::Write(int64_t offset, absl::string_view bytes) {
  return ErrorOf(
      file_->pMethods->xWrite(file_, bytes.data(), static_cast<int>(bytes.size()), offset));
}

absl::Status VfsFile::Sync() { return ErrorOf(file_->pMethods->xSync(file_, SQLITE_SYNC_NORMAL)); }

}  // namespace crossmesh
