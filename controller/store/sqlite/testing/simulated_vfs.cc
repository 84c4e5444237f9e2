#include "controller/store/sqlite/testing/simulated_vfs.h"

#include "controller/store/sqlite/testing/simulated_disk.h"

#include <algorithm>

#include <sqlite3.h>

namespace crossmesh {
namespace {

// What SQLite allocates for an open file.
struct OpenFile {
  sqlite3_file base;
  SimulatedDisk::File* file;
};

SimulatedDisk::File& FileOf(sqlite3_file* file) {
  return *reinterpret_cast<OpenFile*>(file)->file;  // NOLINT
}

SimulatedDisk& DiskOf(sqlite3_vfs* vfs) { return *static_cast<SimulatedDisk*>(vfs->pAppData); }

sqlite3_vfs* SystemVfs() { return sqlite3_vfs_find(nullptr); }

int Close(sqlite3_file* file) {
  delete &FileOf(file);
  return SQLITE_OK;
}

const sqlite3_io_methods& Methods() {
  static const sqlite3_io_methods methods = {
      .iVersion = 2,
      .xClose = &Close,
      .xRead =
          [](sqlite3_file* file, void* bytes, int size, sqlite3_int64 offset) {
            return FileOf(file).Read(static_cast<char*>(bytes), size, offset);
          },
      .xWrite =
          [](sqlite3_file* file, const void* bytes, int size, sqlite3_int64 offset) {
            return FileOf(file).Write(offset,
                                      {static_cast<const char*>(bytes), static_cast<size_t>(size)});
          },
      .xTruncate = [](sqlite3_file* file,
                      sqlite3_int64 size) { return FileOf(file).Truncate(size); },
      .xSync = [](sqlite3_file* file, int) { return FileOf(file).Sync(); },
      .xFileSize =
          [](sqlite3_file* file, sqlite3_int64* size) {
            *size = FileOf(file).Size();
            return SQLITE_OK;
          },
      .xLock = [](sqlite3_file* file, int level) { return FileOf(file).Lock(level); },
      .xUnlock = [](sqlite3_file* file, int level) { return FileOf(file).Unlock(level); },
      .xCheckReservedLock =
          [](sqlite3_file* file, int* is_reserved) {
            *is_reserved = FileOf(file).IsReserved() ? 1 : 0;
            return SQLITE_OK;
          },
      .xFileControl = [](sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; },
      .xSectorSize = [](sqlite3_file*) { return static_cast<int>(SimulatedDisk::kSectorBytes); },
      .xDeviceCharacteristics = [](sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; },
      .xShmMap =
          [](sqlite3_file* file, int region, int size, int make, void volatile** memory) {
            return FileOf(file).MapMemory(region, size, make != 0, memory);
          },
      .xShmLock = [](sqlite3_file* file, int first, int count,
                     int flags) { return FileOf(file).LockMemory(first, count, flags); },
      .xShmBarrier = [](sqlite3_file*) { __sync_synchronize(); },
      .xShmUnmap =
          [](sqlite3_file* file, int) {
            FileOf(file).UnmapMemory();
            return SQLITE_OK;
          },
  };
  return methods;
}

int Open(sqlite3_vfs* vfs, sqlite3_filename name, sqlite3_file* file, int flags, int* flags_out) {
  auto* const opened = reinterpret_cast<OpenFile*>(file);  // NOLINT
  opened->base.pMethods = nullptr;
  opened->file =
      DiskOf(vfs).Open(name == nullptr ? "temporary" : name, (flags & SQLITE_OPEN_CREATE) != 0);
  if (opened->file == nullptr) return SQLITE_CANTOPEN;
  opened->base.pMethods = &Methods();
  if (flags_out != nullptr) *flags_out = flags;
  return SQLITE_OK;
}

int Delete(sqlite3_vfs* vfs, const char* name, int) {
  DiskOf(vfs).Delete(name);
  return SQLITE_OK;
}

int Access(sqlite3_vfs* vfs, const char* name, int, int* found) {
  *found = DiskOf(vfs).Exists(name) ? 1 : 0;
  return SQLITE_OK;
}

int FullPathname(sqlite3_vfs*, const char* name, int size, char* full) {
  sqlite3_snprintf(size, full, "%s", name);
  return SQLITE_OK;
}

}  // namespace

std::unique_ptr<sqlite3_vfs> MakeSimulatedVfs(SimulatedDisk& disk, const std::string& name) {
  return std::make_unique<sqlite3_vfs>(sqlite3_vfs{
      .iVersion = 2,
      .szOsFile = sizeof(OpenFile),
      .mxPathname = 1024,
      .zName = name.c_str(),
      .pAppData = &disk,
      .xOpen = &Open,
      .xDelete = &Delete,
      .xAccess = &Access,
      .xFullPathname = &FullPathname,
      .xRandomness = [](sqlite3_vfs*, int size,
                        char* bytes) { return SystemVfs()->xRandomness(SystemVfs(), size, bytes); },
      .xSleep = [](sqlite3_vfs*, int us) { return SystemVfs()->xSleep(SystemVfs(), us); },
      .xCurrentTime = [](sqlite3_vfs*,
                         double* now) { return SystemVfs()->xCurrentTime(SystemVfs(), now); },
      .xGetLastError = [](sqlite3_vfs*, int, char*) { return 0; },
      .xCurrentTimeInt64 =
          [](sqlite3_vfs*, sqlite3_int64* now) {
            return SystemVfs()->xCurrentTimeInt64(SystemVfs(), now);
          },
  });
}

}  // namespace crossmesh
