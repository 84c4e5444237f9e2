#include "worker/gpu/program/testing/program_runner.h"

#include "common/base/status_macros.h"
#include "worker/executor/leaf_checksum.h"
#include "worker/executor/source_scales.h"
#include "worker/executor/tile_cursor.h"
#include "worker/gpu/program/checksum_comparison.h"
#include "worker/gpu/program/testing/host_staging.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

std::span<std::byte> HashesIn(std::span<std::byte> message, const ChunkMessage& layout) {
  return message.subspan(layout.hashes_offset(), layout.leaves() * ChunkMessage::kHashBytes);
}

}  // namespace

// One device: its streams, its staging, its tiles.
class ProgramRunner::Gpu {
 public:
  Gpu(const GpuProgram& program, StagingUses uses, const TileMemory& memory)
      : program_(program),
        staging_(program, std::move(uses)),
        scales_(ScalesOf(program, memory)),
        source_(SourceOf(program, memory, scales_)),
        destination_(program.part().tiles(Side::kDestination, program.device()),
                     memory.tiles(Side::kDestination, program.device())),
        root_hashes_(program.leaves()),
        own_hashes_(program.leaves()),
        scratch_(Plan::kLeafBytes) {}

  const GpuProgram& program() const { return program_; }
  HostStaging& staging() { return staging_; }
  bool finished() const {
    return std::ranges::all_of(
        ended_, [this](int32_t ended) { return ended == std::ssize(program_.steps()); });
  }

  bool CanGoOn(ProgramStream stream) const {
    if (Ended(stream) == std::ssize(program_.steps())) return false;
    const GpuProgram::Step& step = StepOf(stream);
    switch (stream) {
      case ProgramStream::kPack:
        return HasEnded(ProgramStream::kWire, step.pack_after_wire) &&
               HasEnded(ProgramStream::kUnpack, step.pack_after_unpack);
      case ProgramStream::kWire:
        return transfers_open_ == 0 &&
               (step.packs.empty() || HasEnded(ProgramStream::kPack, Ended(stream))) &&
               HasEnded(ProgramStream::kUnpack, step.wire_after_unpack);
      case ProgramStream::kUnpack:
        return step.unpacks.empty() || HasEnded(ProgramStream::kWire, Ended(stream));
    }
    return false;
  }
  // The step that the stream does next.
  const GpuProgram::Step& StepOf(ProgramStream stream) const {
    return program_.steps()[Ended(stream)];
  }
  void EndStep(ProgramStream stream) { ++ended_[static_cast<size_t>(stream)]; }

  void BeginTransfers(int64_t count) { transfers_open_ = count; }
  void EndTransfer() {
    if (--transfers_open_ == 0) EndStep(ProgramStream::kWire);
  }

  absl::Status RunPacks() {
    const GpuProgram::Step& step = StepOf(ProgramStream::kPack);
    for (int64_t i = step.packs.begin; i < step.packs.end; ++i) {
      RETURN_IF_ERROR(Pack(program_.packs(step)[i - step.packs.begin], staging_.uses().of_pack[i]));
    }
    for (const GpuProgram::Copy& copy : program_.copies(step)) {
      source_.CopyTo(destination_, RangeOf(copy), TileCursor::NextUse::kLater);
    }
    EndStep(ProgramStream::kPack);
    return absl::OkStatus();
  }

  absl::Status RunUnpacks() {
    const GpuProgram::Step& step = StepOf(ProgramStream::kUnpack);
    for (int64_t i = step.unpacks.begin; i < step.unpacks.end; ++i) {
      RETURN_IF_ERROR(
          Unpack(program_.unpacks(step)[i - step.unpacks.begin], staging_.uses().of_unpack[i]));
    }
    EndStep(ProgramStream::kUnpack);
    return absl::OkStatus();
  }

  DeviceReport Report() const {
    return CompareChecksums(program_, {.of_root = root_hashes_, .in_place = own_hashes_});
  }

 private:
  // Null when the program asks for none.
  static std::unique_ptr<const DeviceScales> ScalesOf(const GpuProgram& program,
                                                      const TileMemory& memory) {
    if (program.scaled().empty()) return nullptr;
    auto scales = std::make_unique<DeviceScales>(program.part().part().tensors(), program.device(),
                                                 memory.tiles(Side::kSource, program.device()));
    while (!scales->done()) scales->Step();
    return scales;
  }
  static TileCursor SourceOf(const GpuProgram& program, const TileMemory& memory,
                             const std::unique_ptr<const DeviceScales>& scales) {
    const TileMap& map = program.part().tiles(Side::kSource, program.device());
    if (scales != nullptr) return TileCursor(map, *scales);
    return TileCursor(map, memory.tiles(Side::kSource, program.device()));
  }

  template <typename Piece>
  static TileCursor::Range RangeOf(const Piece& piece) {
    return {piece.slice_class, piece.begin, piece.end - piece.begin};
  }

  absl::Status Pack(const GpuProgram::Pack& pack, int32_t tenant) {
    ASSIGN_OR_RETURN(const std::span<std::byte> message, staging_.Write(tenant));
    const ChunkMessage layout = program_.MessageOf(pack.end - pack.begin);
    const std::span<std::byte> bytes = message.first(layout.chunk_bytes);
    source_.Gather(RangeOf(pack), bytes);
    if (!layout.checksums) return absl::OkStatus();
    std::vector<uint64_t> hashes(layout.leaves());
    HashLeaves(bytes, hashes);
    std::ranges::copy(std::as_bytes(std::span(hashes)), HashesIn(message, layout).begin());
    return absl::OkStatus();
  }

  absl::Status Unpack(const GpuProgram::Unpack& unpack, int32_t tenant) {
    ASSIGN_OR_RETURN(const std::span<const std::byte> message, staging_.Read(tenant));
    const ChunkMessage layout = program_.MessageOf(unpack.end - unpack.begin);
    destination_.Scatter(RangeOf(unpack), message.first(layout.chunk_bytes));
    if (layout.checksums) {
      const auto own = std::span(own_hashes_).subspan(unpack.first_leaf, layout.leaves());
      destination_.HashLeaves(RangeOf(unpack), scratch_, own);
      std::memcpy(root_hashes_.data() + unpack.first_leaf, message.data() + layout.hashes_offset(),
                  layout.leaves() * ChunkMessage::kHashBytes);
    }
    staging_.EndRead(tenant);
    return absl::OkStatus();
  }

  int32_t Ended(ProgramStream stream) const { return ended_[static_cast<size_t>(stream)]; }
  bool HasEnded(ProgramStream stream, int32_t step) const { return Ended(stream) > step; }

  const GpuProgram& program_;
  HostStaging staging_;
  std::unique_ptr<const DeviceScales> scales_;
  TileCursor source_;
  TileCursor destination_;
  std::vector<uint64_t> root_hashes_;
  std::vector<uint64_t> own_hashes_;
  std::vector<std::byte> scratch_;
  std::array<int32_t, 3> ended_ = {};  // by stream: steps
  int64_t transfers_open_ = 0;
};

ProgramRunner::ProgramRunner() = default;
ProgramRunner::~ProgramRunner() = default;

absl::StatusOr<std::unique_ptr<ProgramRunner>> ProgramRunner::Create(const DevicePrograms& programs,
                                                                     const TileMemory& memory) {
  std::unique_ptr<ProgramRunner> runner(new ProgramRunner());
  for (const std::shared_ptr<const GpuProgram>& program : programs) {
    ASSIGN_OR_RETURN(StagingUses uses, FindStagingUses(*program));
    runner->gpus_.push_back(std::make_unique<Gpu>(*program, std::move(uses), memory));
  }
  return runner;
}

absl::Status ProgramRunner::Run(RandomSource& random) {
  // In some runs one stream is always ahead of another as far as it may be.
  std::vector<ProgramStream> eager = {ProgramStream::kPack, ProgramStream::kWire,
                                      ProgramStream::kUnpack};
  random.Shuffle(eager);
  const bool fair = random.OneIn(2);
  for (std::vector<Choice> choices = Choices(); !choices.empty(); choices = Choices()) {
    if (!fair) {
      const auto turn = [&](const Choice& c) { return std::ranges::find(eager, c.stream); };
      const auto first = turn(*std::ranges::min_element(choices, {}, turn));
      std::erase_if(choices, [&](const Choice& c) { return turn(c) != first; });
    }
    RETURN_IF_ERROR(Do(random.Pick(choices)));
  }
  return CheckFinished();
}

std::vector<ProgramRunner::Choice> ProgramRunner::Choices() const {
  std::vector<Choice> choices;
  for (DeviceRank device = 0; device < std::ssize(gpus_); ++device) {
    for (const ProgramStream stream :
         {ProgramStream::kPack, ProgramStream::kWire, ProgramStream::kUnpack}) {
      if (gpus_[device]->CanGoOn(stream)) choices.push_back({device, stream});
    }
  }
  return choices;
}

absl::Status ProgramRunner::Do(const Choice& choice) {
  switch (choice.stream) {
    case ProgramStream::kPack:
      return gpus_[choice.device]->RunPacks();
    case ProgramStream::kWire:
      return BeginTransfers(choice.device);
    case ProgramStream::kUnpack:
      return gpus_[choice.device]->RunUnpacks();
  }
  return absl::InternalError("a stream of no kind");
}

absl::Status ProgramRunner::BeginTransfers(DeviceRank device) {
  Gpu& gpu = *gpus_[device];
  const GpuProgram::Step step = gpu.StepOf(ProgramStream::kWire);
  if (step.sends.empty() && step.receives.empty() && step.broadcasts.empty()) {
    gpu.EndStep(ProgramStream::kWire);
    return absl::OkStatus();
  }
  gpu.BeginTransfers(step.sends.size() + step.receives.size() + step.broadcasts.size());
  const std::span<const GpuProgram::Transfer> sends = gpu.program().sends(step);
  for (int64_t i = 0; i < std::ssize(sends); ++i) {
    Channel& channel = wires_[{device, sends[i].peer}];
    channel.sends.push_back({device, step.sends.begin + i});
    RETURN_IF_ERROR(Deliver(channel));
  }
  const std::span<const GpuProgram::Transfer> receives = gpu.program().receives(step);
  for (int64_t i = 0; i < std::ssize(receives); ++i) {
    Channel& channel = wires_[{receives[i].peer, device}];
    channel.receives.push_back({device, step.receives.begin + i});
    RETURN_IF_ERROR(Deliver(channel));
  }
  if (step.broadcasts.empty()) return absl::OkStatus();
  const std::vector<DeviceRank>& peers = gpu.program().peers();
  Group& group = groups_[std::min(device, peers.front())];
  for (const DeviceRank peer : peers) group[peer];
  for (int64_t i = step.broadcasts.begin; i < step.broadcasts.end; ++i) group[device].push_back(i);
  return Broadcast(group);
}

// What all of the group have begun.
absl::Status ProgramRunner::Broadcast(Group& group) {
  const auto has_begun = [](const Group::value_type& entry) { return !entry.second.empty(); };
  while (std::ranges::all_of(group, has_begun)) {
    std::vector<Begun> ends;
    for (auto& [device, begun] : group) {
      ends.push_back({device, begun.front()});
      begun.pop_front();
    }
    RETURN_IF_ERROR(DeliverToAll(ends));
  }
  return absl::OkStatus();
}

absl::Status ProgramRunner::DeliverToAll(std::span<const Begun> ends) {
  const auto root_of = [&](const Begun& end) {
    const GpuProgram& program = gpus_[end.device]->program();
    const GpuProgram::Step& step = gpus_[end.device]->StepOf(ProgramStream::kWire);
    return program.broadcasts(step)[end.index - step.broadcasts.begin].peer;
  };
  const auto root =
      std::ranges::find_if(ends, [&](const Begun& end) { return root_of(end) == end.device; });
  if (root == ends.end()) return absl::InternalError("broadcast: expected a root, found none");
  Gpu& from = *gpus_[root->device];
  const int64_t root_step = from.StepOf(ProgramStream::kWire).number;
  const int32_t sent = from.staging().uses().of_broadcast[root->index];
  ASSIGN_OR_RETURN(const std::span<const std::byte> message, from.staging().Read(sent));
  for (const Begun& end : ends) {
    if (end.device == root->device) continue;
    Gpu& to = *gpus_[end.device];
    const int64_t step = to.StepOf(ProgramStream::kWire).number;
    ASSIGN_OR_RETURN(const std::span<std::byte> place,
                     to.staging().Write(to.staging().uses().of_broadcast[end.index]));
    if (message.size() != place.size() || step != root_step || root_of(end) != root->device) {
      return absl::InternalError(absl::StrCat("broadcast at device ", end.device, ": expected ",
                                              place.size(), " bytes of device ", root_of(end),
                                              " in step ", step, ", found ", message.size(),
                                              " of device ", root->device, " in step ", root_step));
    }
    std::ranges::copy(message, place.begin());
  }
  from.staging().EndRead(sent);
  for (const Begun& end : ends) gpus_[end.device]->EndTransfer();
  return absl::OkStatus();
}

// The channel's next message, if both ends have begun with it.
absl::Status ProgramRunner::Deliver(Channel& channel) {
  if (channel.sends.empty() || channel.receives.empty()) return absl::OkStatus();
  const Begun send = channel.sends.front();
  const Begun receive = channel.receives.front();
  channel.sends.pop_front();
  channel.receives.pop_front();
  Gpu& from = *gpus_[send.device];
  Gpu& to = *gpus_[receive.device];
  const int32_t sent = from.staging().uses().of_send[send.index];
  ASSIGN_OR_RETURN(const std::span<const std::byte> message, from.staging().Read(sent));
  ASSIGN_OR_RETURN(const std::span<std::byte> place,
                   to.staging().Write(to.staging().uses().of_receive[receive.index]));
  const int64_t from_step = from.StepOf(ProgramStream::kWire).number;
  const int64_t to_step = to.StepOf(ProgramStream::kWire).number;
  if (message.size() != place.size() || from_step != to_step) {
    return absl::InternalError(absl::StrCat(
        "message from device ", send.device, " to ", receive.device, ": expected ", place.size(),
        " bytes in step ", to_step, ", found ", message.size(), " in step ", from_step));
  }
  std::ranges::copy(message, place.begin());
  from.staging().EndRead(sent);
  from.EndTransfer();
  to.EndTransfer();
  return absl::OkStatus();
}

absl::Status ProgramRunner::CheckFinished() const {
  for (const std::unique_ptr<Gpu>& gpu : gpus_) {
    if (gpu->finished()) continue;
    return absl::InternalError(
        absl::StrCat("device ", gpu->program().device(), ": expected to end, found it waiting"));
  }
  return absl::OkStatus();
}

DeviceReport ProgramRunner::ReportOf(DeviceRank device) const { return gpus_[device]->Report(); }

}  // namespace crossmesh
