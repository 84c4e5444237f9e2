#pragma once

#include "common/base/byte_count.h"
#include "common/base/unique_fd.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_event.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/gpu_stream.h"
#include "worker/gpu/protocol/gpu_request.h"

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The arenas of a GPU, by their ids. Confined to the thread of the Gpu.
class GpuArenas {
 public:
  // `gpu` must outlive it. Errors of the driver.
  static absl::StatusOr<std::unique_ptr<GpuArenas>> Create(Gpu& gpu);
  // What was begun must have ended.
  ~GpuArenas() = default;

  // Begins to fill new memory with zeros; Poll tells when they are there. AlreadyExists,
  // ResourceExhausted.
  absl::Status Begin(ArenaId arena, ByteCount bytes);
  // Memory that another process has made, or one that was in this one's place. AlreadyExists,
  // InvalidArgument.
  absl::Status Import(ArenaId arena, ByteCount bytes, int descriptor);
  // NotFound. Whoever has got the memory keeps it.
  absl::Status Release(ArenaId arena);

  // Those that are filled since the last time.
  absl::StatusOr<std::vector<ArenaId>> Poll();
  bool is_filling() const { return !filling_.empty(); }

  // Filled or imported. NotFound.
  absl::StatusOr<std::shared_ptr<const GpuMemory>> Find(ArenaId arena) const;

 private:
  struct Filling {
    std::shared_ptr<const GpuMemory> memory;
    std::unique_ptr<GpuEvent> filled;
  };

  explicit GpuArenas(Gpu& gpu) : gpu_(gpu) {}
  absl::Status CheckNew(ArenaId arena) const;

  Gpu& gpu_;
  std::unique_ptr<GpuStream> stream_;
  std::map<ArenaId, std::shared_ptr<const GpuMemory>> arenas_;
  std::map<ArenaId, Filling> filling_;
};

}  // namespace crossmesh
