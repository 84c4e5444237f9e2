#include "worker/courses/course_memory.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "worker/courses/course_places.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<ArrayMemory> ArrayMemory::Create(const WorkerPart& part,
                                                const MakeArrayMemory& make) {
  ArrayMemory memory;
  for (const DeviceRank device : part.spec().devices) {
    const DeviceId& name = part.tensors().devices()[device];
    const int64_t bytes = ArrayBytesOf(part, name, CourseRunner::kHost);
    if (bytes == 0) continue;
    ASSIGN_OR_RETURN(memory.arenas_[name], At(absl::StrCat("arrays between steps, ", bytes,
                                                           " bytes at device ", ToString(name)),
                                              make(name, ByteCount(bytes))));
  }
  return memory;
}

std::byte* ArrayMemory::of(const DeviceId& device) const {
  const auto found = arenas_.find(device);
  return found == arenas_.end() ? nullptr : found->second->bytes().data();
}

int64_t ArrayMemory::bytes() const {
  int64_t bytes = 0;
  for (const auto& [device, arena] : arenas_) bytes += std::ssize(arena->bytes());
  return bytes;
}

}  // namespace crossmesh
