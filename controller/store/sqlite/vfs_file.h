#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

struct sqlite3_file;

namespace crossmesh {

// A file of ours on the disk that a VFS of SQLite stands for. Errors name the file: StoreError
// kFull, else Unavailable. Confined to one thread at a time.
class VfsFile {
 public:
  // Of one read or write: a VFS is made for pages.
  static constexpr int64_t kBytesMax = int64_t{1} << 16;

  // Makes the file when there is none; follows no link. `vfs`: its name; empty: that of the system.
  static absl::StatusOr<std::unique_ptr<VfsFile>> Open(const std::string& path,
                                                       const std::string& vfs);
  ~VfsFile();
  VfsFile(const VfsFile&) = delete;
  VfsFile& operator=(const VfsFile&) = delete;

  absl::StatusOr<int64_t> Size();
  // What is beyond the file's end is zeros.
  absl::StatusOr<std::string> Read(int64_t offset, int64_t size);
  absl::Status Write(int64_t offset, absl::string_view bytes);
  // The first one makes the name of a new file last as well.
  absl::Status Sync();

 private:
  VfsFile(std::string path, sqlite3_file* file) : path_(std::move(path)), file_(file) {}
  absl::Status ErrorOf(int code) const;

  const std::string path_;  // the VFS keeps a pointer to it
  sqlite3_file* const file_;
};

}  // namespace crossmesh
