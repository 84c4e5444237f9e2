#include "worker/transport/testing/sealed_memory.h"

#include "common/base/check.h"

#include <cerrno>
#include <fstream>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crossmesh {

std::unique_ptr<SealedMemory> SealedMemory::Create(size_t bytes) {
  UniqueFd fd(memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  CHECK(fd.valid()) << "errno " << errno;
  CHECK_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0) << "errno " << errno;
  CHECK_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0) << "errno " << errno;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  CHECK(memory != MAP_FAILED) << "errno " << errno;
  return std::unique_ptr<SealedMemory>(
      new SealedMemory(std::move(fd), std::span(static_cast<std::byte*>(memory), bytes)));
}

SealedMemory::~SealedMemory() { munmap(bytes_.data(), bytes_.size()); }

uint64_t SealedMemory::inode() const {
  struct stat found;
  CHECK_EQ(fstat(fd(), &found), 0) << "errno " << errno;
  return found.st_ino;
}

int SealedMemory::CountMappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(kName) != std::string::npos) ++count;
  }
  return count;
}

}  // namespace crossmesh
