#pragma once

#include "common/base/byte_count.h"
#include "common/base/unique_fd.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_event.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/gpu_stream.h"
#include "worker/gpu/protocol/tile_place.h"

#include <cstdint>
#include <map>
#include <memory>

#include <absl/functional/any_invocable.h>
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

  // New memory of zeros. `done` is called once, from inside or from Poll: with the memory's
  // descriptor when the zeros are there; AlreadyExists, ResourceExhausted.
  using Created = absl::AnyInvocable<void(absl::StatusOr<UniqueFd>)>;
  void CreateArena(const v1::GpuRequest::CreateArena& request, Created done);
  // Memory that another process has made, or one that was in this one's place. AlreadyExists,
  // InvalidArgument.
  absl::Status Import(const v1::GpuRequest::ImportArena& request, const UniqueFd& descriptor);
  // NotFound. What has the memory from Find keeps it.
  absl::Status Release(ArenaId arena);

  // Goes on with what is being filled. Errors of the driver.
  absl::Status Poll();
  bool is_filling() const { return !filling_.empty(); }

  // Filled or imported. NotFound.
  absl::StatusOr<std::shared_ptr<const GpuMemory>> Find(ArenaId arena) const;

 private:
  struct Filling {
    std::shared_ptr<const GpuMemory> memory;
    std::unique_ptr<GpuEvent> filled;
    Created done;
  };

  explicit GpuArenas(Gpu& gpu) : gpu_(gpu) {}
  absl::Status CheckNew(ArenaId arena) const;
  absl::StatusOr<Filling> Fill(ByteCount bytes);

  Gpu& gpu_;
  std::unique_ptr<GpuStream> stream_;
  std::map<ArenaId, std::shared_ptr<const GpuMemory>> arenas_;
  std::map<ArenaId, Filling> filling_;
};

}  // namespace crossmesh
