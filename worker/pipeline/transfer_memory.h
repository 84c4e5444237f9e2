#pragma once

#include "common/base/byte_count.h"
#include "common/mesh/device.h"
#include "worker/courses/course_memory.h"
#include "worker/executor/replay.h"
#include "worker/memory/arena.h"
#include "worker/pipeline/pipeline_loop.h"
#include "worker/pipeline/worker_program.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The memory of one transfer's messages at this worker: for each device with an end an arena, with
// room for as many messages as the transfer has buffers, one after the other; of a part with a
// course, for each of these what lies between its steps. Immutable but for the bytes.
class TransferMemory {
 public:
  // Makes an arena for a device of this worker; what it says is passed on.
  using MakeArena =
      std::function<absl::StatusOr<std::shared_ptr<Arena>>(const DeviceId&, ByteCount)>;

  // `transfer` must outlive it. ResourceExhausted names the transfer.
  static absl::StatusOr<TransferMemory> Create(const WorkerProgram::Transfer& transfer,
                                               const MakeArena& make_arena);

  // For the executor: the memory of each buffer.
  std::vector<ReplaySpec::Buffer> Buffers() const;
  // What an op sees of the message in a buffer, on one side: each tensor with the tiles of this
  // worker's devices.
  std::vector<PipelineTensor> Tensors(Side side, int32_t buffer) const;

 private:
  using Arenas = absl::btree_map<DeviceRank, std::shared_ptr<Arena>>;

  explicit TransferMemory(const WorkerProgram::Transfer& transfer) : transfer_(transfer) {}
  static absl::StatusOr<Arenas> MakeArenas(
      const WorkerProgram::Transfer& transfer,
      const absl::btree_map<DeviceRank, StorageLayout>& layouts, const MakeArena& make_arena);
  absl::flat_hash_map<DeviceRank, std::byte*> ArraysOf(const ArrayMemory& memory) const;
  static BoundTiles Bind(const StorageLayout& layout, const Arena& arena, int32_t buffer);

  const WorkerProgram::Transfer& transfer_;
  Arenas sources_;
  Arenas destinations_;
  std::vector<ArrayMemory> arrays_;  // by buffer; of a part with a course
};

// All memory of a program. Shared by the program and by the processes that compute in it.
struct ProgramMemory {
  // As TransferMemory::Create.
  static absl::StatusOr<std::shared_ptr<const ProgramMemory>> Create(
      std::shared_ptr<const WorkerProgram> program, const TransferMemory::MakeArena& make_arena);

  std::shared_ptr<const WorkerProgram> program;
  std::vector<TransferMemory> transfers;  // as the program's
};

}  // namespace crossmesh
