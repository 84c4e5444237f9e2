#include "worker/pipeline/channel_memory.h"

#include "common/base/status_macros.h"

#include <span>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<ChannelMemory> ChannelMemory::Create(const WorkerProgram::Channel& channel,
                                                    const MakeArena& make_arena) {
  ChannelMemory memory(channel);
  ASSIGN_OR_RETURN(memory.sources_, MakeArenas(channel, channel.part->sources, make_arena));
  ASSIGN_OR_RETURN(memory.destinations_,
                   MakeArenas(channel, channel.part->destinations, make_arena));
  return memory;
}

absl::StatusOr<ChannelMemory::Arenas> ChannelMemory::MakeArenas(
    const WorkerProgram::Channel& channel,
    const absl::btree_map<DeviceRank, StorageLayout>& layouts, const MakeArena& make_arena) {
  Arenas arenas;
  for (const auto& [device, layout] : layouts) {
    const DeviceId& name = channel.part->prepared->part().tensors().devices()[device];
    absl::StatusOr<std::shared_ptr<Arena>> arena =
        make_arena(name, ByteCount(layout.bytes * channel.buffers));
    if (!arena.ok()) {
      return absl::Status(arena.status().code(),
                          absl::StrCat("channel ", channel.Name(), ": ", channel.buffers,
                                       " buffers of ", layout.bytes, " bytes at device ",
                                       ToString(name), ": ", arena.status().message()));
    }
    arenas.emplace(device, *std::move(arena));
  }
  return arenas;
}

BoundTiles ChannelMemory::Bind(const StorageLayout& layout, const Arena& arena, int32_t buffer) {
  BoundTiles tiles;
  std::byte* const begin = arena.bytes().data() + layout.bytes * buffer;
  for (const int64_t offset : layout.offset_of_tensor) {
    tiles.tensor.push_back(offset < 0 ? nullptr : begin + offset);
  }
  return tiles;
}

std::vector<ReplaySpec::Buffer> ChannelMemory::Buffers() const {
  std::vector<ReplaySpec::Buffer> buffers(channel_.buffers);
  for (int32_t buffer = 0; buffer < channel_.buffers; ++buffer) {
    for (const auto& [device, arena] : sources_) {
      buffers[buffer].sources[device] = Bind(channel_.part->sources.at(device), *arena, buffer);
    }
    for (const auto& [device, arena] : destinations_) {
      buffers[buffer].destinations[device] =
          Bind(channel_.part->destinations.at(device), *arena, buffer);
    }
  }
  return buffers;
}

std::vector<PipelineTensor> ChannelMemory::Tensors(Side side, int32_t buffer) const {
  const TensorTable& table = channel_.part->prepared->part().tensors();
  const bool source = side == Side::kSource;
  std::vector<PipelineTensor> tensors;
  for (size_t tensor = 0; tensor < channel_.tensors.size(); ++tensor) {
    const int32_t group = table.group_of_tensor()[tensor];
    const std::span<const int64_t> shape = table.groups()[group].shape.lengths();
    PipelineTensor& seen = tensors.emplace_back(
        PipelineTensor{.name = channel_.tensors[tensor],
                       .other_stage = source ? channel_.consumer() : channel_.producer(),
                       .type = table.TypeOf(side, group),
                       .shape = {shape.begin(), shape.end()}});
    for (const auto& [device, arena] : source ? sources_ : destinations_) {
      const StorageLayout& layout =
          (source ? channel_.part->sources : channel_.part->destinations).at(device);
      std::byte* const begin = Bind(layout, *arena, buffer).tensor[tensor];
      if (begin == nullptr) continue;
      const int64_t bytes =
          Volume(table.TileOf(side, group, device)) * table.ItemBytesOf(side, group);
      seen.tiles.push_back({.device = table.devices()[device],
                            .bytes = std::span(begin, static_cast<size_t>(bytes))});
    }
  }
  return tensors;
}

absl::StatusOr<std::shared_ptr<const ProgramMemory>> ProgramMemory::Create(
    std::shared_ptr<const WorkerProgram> program, const ChannelMemory::MakeArena& make_arena) {
  auto memory = std::make_shared<ProgramMemory>();
  memory->program = std::move(program);
  for (const WorkerProgram::Channel& channel : memory->program->channels) {
    ASSIGN_OR_RETURN(ChannelMemory of_channel, ChannelMemory::Create(channel, make_arena));
    memory->channels.push_back(std::move(of_channel));
  }
  return memory;
}

}  // namespace crossmesh
