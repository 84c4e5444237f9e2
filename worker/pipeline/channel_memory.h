#pragma once

#include "common/base/byte_count.h"
#include "common/mesh/device.h"
#include "worker/executor/replay.h"
#include "worker/memory/arena.h"
#include "worker/pipeline/pipeline_loop.h"
#include "worker/pipeline/worker_program.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The memory of one channel's messages at this worker: for each device with an end an arena, with
// room for as many messages as the channel has buffers, one behind the other. Immutable but for the
// bytes.
class ChannelMemory {
 public:
  // Makes an arena for a device of this worker; what it says is passed on.
  using MakeArena =
      std::function<absl::StatusOr<std::shared_ptr<Arena>>(const DeviceId&, ByteCount)>;

  // `channel` must outlive it. ResourceExhausted names the channel.
  static absl::StatusOr<ChannelMemory> Create(const WorkerProgram::Channel& channel,
                                              const MakeArena& make_arena);

  // What instances run in, for the executor.
  std::vector<ReplaySpec::Buffer> Buffers() const;
  // What an op sees of the message in a buffer, on one side: each tensor with the tiles of this
  // worker's devices.
  std::vector<PipelineTensor> Tensors(Side side, int32_t buffer) const;

 private:
  using Arenas = absl::btree_map<DeviceRank, std::shared_ptr<Arena>>;

  explicit ChannelMemory(const WorkerProgram::Channel& channel) : channel_(channel) {}
  static absl::StatusOr<Arenas> MakeArenas(
      const WorkerProgram::Channel& channel,
      const absl::btree_map<DeviceRank, StorageLayout>& layouts, const MakeArena& make_arena);
  static BoundTiles Bind(const StorageLayout& layout, const Arena& arena, int32_t buffer);

  const WorkerProgram::Channel& channel_;
  Arenas sources_;
  Arenas destinations_;
};

// All memory of a program. Shared by the program and by the processes that compute in it.
struct ProgramMemory {
  // As ChannelMemory::Create.
  static absl::StatusOr<std::shared_ptr<const ProgramMemory>> Create(
      std::shared_ptr<const WorkerProgram> program, const ChannelMemory::MakeArena& make_arena);

  std::shared_ptr<const WorkerProgram> program;
  std::vector<ChannelMemory> channels;  // as the program's
};

}  // namespace crossmesh
