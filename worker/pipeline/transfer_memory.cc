#include "worker/pipeline/transfer_memory.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"

#include <span>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<TransferMemory> TransferMemory::Create(const WorkerProgram::Transfer& transfer,
                                                      const MakeArena& make_arena) {
  TransferMemory memory(transfer);
  ASSIGN_OR_RETURN(memory.sources_, MakeArenas(transfer, transfer.part->sources, make_arena));
  ASSIGN_OR_RETURN(memory.destinations_,
                   MakeArenas(transfer, transfer.part->destinations, make_arena));
  const WorkerPart& part = transfer.part->prepared->part();
  for (int32_t buffer = 0; part.has_courses() && buffer < transfer.buffers; ++buffer) {
    ASSIGN_OR_RETURN(ArrayMemory arrays, At(absl::StrCat("transfer ", transfer.Name()),
                                            ArrayMemory::Create(part, make_arena)));
    memory.arrays_.push_back(std::move(arrays));
  }
  return memory;
}

absl::StatusOr<TransferMemory::Arenas> TransferMemory::MakeArenas(
    const WorkerProgram::Transfer& transfer,
    const absl::btree_map<DeviceRank, StorageLayout>& layouts, const MakeArena& make_arena) {
  Arenas arenas;
  for (const auto& [device, layout] : layouts) {
    const DeviceId& name = transfer.part->prepared->part().tensors().devices()[device];
    ASSIGN_OR_RETURN(
        std::shared_ptr<Arena> arena,
        At(absl::StrCat("transfer ", transfer.Name(), ": ", transfer.buffers, " buffers of ",
                        layout.bytes, " bytes at device ", ToString(name)),
           make_arena(name, ByteCount(layout.bytes * transfer.buffers))));
    arenas.emplace(device, std::move(arena));
  }
  return arenas;
}

BoundTiles TransferMemory::Bind(const StorageLayout& layout, const Arena& arena, int32_t buffer) {
  BoundTiles tiles;
  std::byte* const begin = arena.bytes().data() + layout.bytes * buffer;
  for (const int64_t offset : layout.offset_of_tensor) {
    tiles.tensor.push_back(offset < 0 ? nullptr : begin + offset);
  }
  return tiles;
}

std::vector<ReplaySpec::Buffer> TransferMemory::Buffers() const {
  std::vector<ReplaySpec::Buffer> buffers(transfer_.buffers);
  for (int32_t buffer = 0; buffer < transfer_.buffers; ++buffer) {
    for (const auto& [device, arena] : sources_) {
      buffers[buffer].sources[device] = Bind(transfer_.part->sources.at(device), *arena, buffer);
    }
    for (const auto& [device, arena] : destinations_) {
      buffers[buffer].destinations[device] =
          Bind(transfer_.part->destinations.at(device), *arena, buffer);
    }
    if (!arrays_.empty()) buffers[buffer].arrays = ArraysOf(arrays_[buffer]);
  }
  return buffers;
}

absl::flat_hash_map<DeviceRank, std::byte*> TransferMemory::ArraysOf(
    const ArrayMemory& memory) const {
  absl::flat_hash_map<DeviceRank, std::byte*> arrays;
  const WorkerPart& part = transfer_.part->prepared->part();
  for (const DeviceRank device : part.spec().devices) {
    std::byte* const begin = memory.of(part.tensors().devices()[device]);
    if (begin != nullptr) arrays[device] = begin;
  }
  return arrays;
}

std::vector<PipelineTensor> TransferMemory::Tensors(Side side, int32_t buffer) const {
  const TensorTable& table = transfer_.part->prepared->part().tensors();
  const bool source = side == Side::kSource;
  std::vector<PipelineTensor> tensors;
  for (size_t tensor = 0; tensor < transfer_.tensors.size(); ++tensor) {
    const int32_t group = table.group_of_tensor()[tensor];
    const std::span<const int64_t> shape = table.groups()[group].shape.lengths();
    PipelineTensor& seen = tensors.emplace_back(
        PipelineTensor{.name = transfer_.tensors[tensor],
                       .other_stage = source ? transfer_.consumer() : transfer_.producer(),
                       .transfer = transfer_.Name(),
                       .type = table.TypeOf(side, group),
                       .shape = {shape.begin(), shape.end()}});
    for (const auto& [device, arena] : source ? sources_ : destinations_) {
      const StorageLayout& layout =
          (source ? transfer_.part->sources : transfer_.part->destinations).at(device);
      std::byte* const begin = Bind(layout, *arena, buffer).tensor[tensor];
      if (begin == nullptr) continue;
      Tile boxes = table.TileOf(side, group, device);
      const int64_t bytes = Volume(boxes) * table.ItemBytesOf(side, group);
      seen.tiles.push_back({.device = table.devices()[device],
                            .bytes = std::span(begin, static_cast<size_t>(bytes)),
                            .boxes = std::move(boxes)});
    }
  }
  return tensors;
}

absl::StatusOr<std::shared_ptr<const ProgramMemory>> ProgramMemory::Create(
    std::shared_ptr<const WorkerProgram> program, const TransferMemory::MakeArena& make_arena) {
  auto memory = std::make_shared<ProgramMemory>();
  memory->program = std::move(program);
  for (const WorkerProgram::Transfer& transfer : memory->program->transfers) {
    ASSIGN_OR_RETURN(TransferMemory of_transfer, TransferMemory::Create(transfer, make_arena));
    memory->transfers.push_back(std::move(of_transfer));
  }
  return memory;
}

}  // namespace crossmesh
