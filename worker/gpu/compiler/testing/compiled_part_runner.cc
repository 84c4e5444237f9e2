#include "worker/gpu/compiler/testing/compiled_part_runner.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/executor/leaf_checksum.h"
#include "worker/executor/source_scales.h"
#include "worker/executor/tile_cursor.h"
#include "worker/gpu/compiler/checksum_comparison.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr std::byte kRubbish{0xDB};  // in staging at first

std::span<std::byte> HashesIn(std::span<std::byte> message, const ChunkMessage& layout) {
  return message.subspan(layout.hashes_offset(), layout.leaves() * ChunkMessage::kHashBytes);
}

}  // namespace

// One device: its streams, its staging, its tiles.
class CompiledPartRunner::Gpu {
 public:
  Gpu(const CompiledPart& compiled, const TileMemory& memory)
      : compiled_(compiled),
        staging_(compiled.staging_bytes(), kRubbish),
        scales_(ScalesOf(compiled, memory)),
        source_(SourceOf(compiled, memory, scales_)),
        destination_(compiled.part().tiles(Side::kDestination, compiled.device()),
                     memory.tiles(Side::kDestination, compiled.device())),
        root_hashes_(compiled.leaves()),
        own_hashes_(compiled.leaves()),
        scratch_(Plan::kLeafBytes) {}

  const CompiledPart& compiled() const { return compiled_; }
  std::span<std::byte> StagingAt(int64_t offset, int64_t bytes) {
    CHECK_LE(offset + bytes, std::ssize(staging_));
    return std::span(staging_).subspan(offset, bytes);
  }
  bool finished() const {
    return std::ranges::all_of(
        ended_, [this](int32_t ended) { return ended == std::ssize(compiled_.steps()); });
  }

  bool CanGoOn(StepStream stream) const {
    if (Ended(stream) == std::ssize(compiled_.steps())) return false;
    const CompiledPart::Step& step = StepOf(stream);
    switch (stream) {
      case StepStream::kPack:
        return HasEnded(StepStream::kWire, step.pack_after_wire) &&
               HasEnded(StepStream::kUnpack, step.pack_after_unpack);
      case StepStream::kWire:
        return transfers_open_ == 0 &&
               (step.packs.empty() || HasEnded(StepStream::kPack, Ended(stream))) &&
               HasEnded(StepStream::kUnpack, step.wire_after_unpack);
      case StepStream::kUnpack:
        return step.unpacks.empty() || HasEnded(StepStream::kWire, Ended(stream));
    }
    return false;
  }
  // The step that the stream does next.
  const CompiledPart::Step& StepOf(StepStream stream) const {
    return compiled_.steps()[Ended(stream)];
  }
  void EndStep(StepStream stream) { ++ended_[static_cast<size_t>(stream)]; }

  void BeginTransfers(int64_t count) { transfers_open_ = count; }
  void EndTransfer() {
    if (--transfers_open_ == 0) EndStep(StepStream::kWire);
  }

  void RunPacks() {
    const CompiledPart::Step& step = StepOf(StepStream::kPack);
    for (const CompiledPart::Pack& pack : compiled_.packs(step)) Pack(pack);
    for (const CompiledPart::Copy& copy : compiled_.copies(step)) {
      source_.CopyTo(destination_, RangeOf(copy), TileCursor::NextUse::kLater);
    }
    EndStep(StepStream::kPack);
  }

  void RunUnpacks() {
    const CompiledPart::Step& step = StepOf(StepStream::kUnpack);
    for (const CompiledPart::Unpack& unpack : compiled_.unpacks(step)) Unpack(unpack);
    EndStep(StepStream::kUnpack);
  }

  DeviceReport Report() const {
    return CompareChecksums(compiled_, {.of_root = root_hashes_, .in_place = own_hashes_});
  }

 private:
  // Null when the compiled part asks for none.
  static std::unique_ptr<const DeviceScales> ScalesOf(const CompiledPart& compiled,
                                                      const TileMemory& memory) {
    if (compiled.scaled().empty()) return nullptr;
    auto scales =
        std::make_unique<DeviceScales>(compiled.part().part().tensors(), compiled.device(),
                                       memory.tiles(Side::kSource, compiled.device()));
    while (!scales->done()) scales->Step();
    return scales;
  }
  static TileCursor SourceOf(const CompiledPart& compiled, const TileMemory& memory,
                             const std::unique_ptr<const DeviceScales>& scales) {
    const TileMap& map = compiled.part().tiles(Side::kSource, compiled.device());
    if (scales != nullptr) return TileCursor(map, *scales);
    return TileCursor(map, memory.tiles(Side::kSource, compiled.device()));
  }

  template <typename Piece>
  static TileCursor::Range RangeOf(const Piece& piece) {
    return {piece.slice_class, piece.begin, piece.end - piece.begin};
  }

  void Pack(const CompiledPart::Pack& pack) {
    const ChunkMessage layout = compiled_.MessageOf(pack.end - pack.begin);
    const std::span<std::byte> message = StagingAt(pack.staging_offset, layout.bytes());
    const std::span<std::byte> bytes = message.first(layout.chunk_bytes);
    source_.Gather(RangeOf(pack), bytes);
    if (!layout.checksums) return;
    std::vector<uint64_t> hashes(layout.leaves());
    HashLeaves(bytes, hashes);
    std::ranges::copy(std::as_bytes(std::span(hashes)), HashesIn(message, layout).begin());
  }

  void Unpack(const CompiledPart::Unpack& unpack) {
    const ChunkMessage layout = compiled_.MessageOf(unpack.end - unpack.begin);
    const std::span<const std::byte> message = StagingAt(unpack.staging_offset, layout.bytes());
    destination_.Scatter(RangeOf(unpack), message.first(layout.chunk_bytes));
    if (!layout.checksums) return;
    const auto own = std::span(own_hashes_).subspan(unpack.first_leaf, layout.leaves());
    destination_.HashLeaves(RangeOf(unpack), scratch_, own);
    std::memcpy(root_hashes_.data() + unpack.first_leaf, message.data() + layout.hashes_offset(),
                layout.leaves() * ChunkMessage::kHashBytes);
  }

  int32_t Ended(StepStream stream) const { return ended_[static_cast<size_t>(stream)]; }
  bool HasEnded(StepStream stream, int32_t step) const { return Ended(stream) > step; }

  const CompiledPart& compiled_;
  std::vector<std::byte> staging_;
  std::unique_ptr<const DeviceScales> scales_;
  TileCursor source_;
  TileCursor destination_;
  std::vector<uint64_t> root_hashes_;
  std::vector<uint64_t> own_hashes_;
  std::vector<std::byte> scratch_;
  std::array<int32_t, 3> ended_ = {};  // by stream: steps
  int64_t transfers_open_ = 0;
};

CompiledPartRunner::CompiledPartRunner(const CompiledParts& compiled_parts,
                                       const TileMemory& memory) {
  for (const std::shared_ptr<const CompiledPart>& compiled : compiled_parts) {
    gpus_.push_back(std::make_unique<Gpu>(*compiled, memory));
  }
}

CompiledPartRunner::~CompiledPartRunner() = default;

absl::Status CompiledPartRunner::Run(RandomSource& random) {
  // In some runs one stream is always ahead of another as far as it may be.
  std::vector<StepStream> eager = {StepStream::kPack, StepStream::kWire, StepStream::kUnpack};
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

std::vector<CompiledPartRunner::Choice> CompiledPartRunner::Choices() const {
  std::vector<Choice> choices;
  for (DeviceRank device = 0; device < std::ssize(gpus_); ++device) {
    for (const StepStream stream : {StepStream::kPack, StepStream::kWire, StepStream::kUnpack}) {
      if (gpus_[device]->CanGoOn(stream)) choices.push_back({device, stream});
    }
  }
  return choices;
}

absl::Status CompiledPartRunner::Do(const Choice& choice) {
  switch (choice.stream) {
    case StepStream::kPack:
      gpus_[choice.device]->RunPacks();
      break;
    case StepStream::kWire:
      return BeginTransfers(choice.device);
    case StepStream::kUnpack:
      gpus_[choice.device]->RunUnpacks();
      break;
  }
  return absl::OkStatus();
}

absl::Status CompiledPartRunner::BeginTransfers(DeviceRank device) {
  Gpu& gpu = *gpus_[device];
  const CompiledPart::Step step = gpu.StepOf(StepStream::kWire);
  if (step.sends.empty() && step.receives.empty() && step.broadcasts.empty()) {
    gpu.EndStep(StepStream::kWire);
    return absl::OkStatus();
  }
  gpu.BeginTransfers(step.sends.size() + step.receives.size() + step.broadcasts.size());
  for (const CompiledPart::Transfer& send : gpu.compiled().sends(step)) {
    Channel& channel = wires_[{device, send.peer}];
    channel.sends.push_back({device, send});
    RETURN_IF_ERROR(Deliver(channel));
  }
  for (const CompiledPart::Transfer& receive : gpu.compiled().receives(step)) {
    Channel& channel = wires_[{receive.peer, device}];
    channel.receives.push_back({device, receive});
    RETURN_IF_ERROR(Deliver(channel));
  }
  if (step.broadcasts.empty()) return absl::OkStatus();
  const std::vector<DeviceRank>& peers = gpu.compiled().peers();
  Group& group = groups_[std::min(device, peers.front())];
  for (const DeviceRank peer : peers) group[peer];
  for (const CompiledPart::Transfer& broadcast : gpu.compiled().broadcasts(step)) {
    group[device].push_back({device, broadcast});
  }
  return Broadcast(group);
}

// What all of the group have begun.
absl::Status CompiledPartRunner::Broadcast(Group& group) {
  const auto has_begun = [](const Group::value_type& entry) { return !entry.second.empty(); };
  while (std::ranges::all_of(group, has_begun)) {
    std::vector<Begun> ends;
    for (auto& [device, begun] : group) {
      ends.push_back(begun.front());
      begun.pop_front();
    }
    const auto root = std::ranges::find_if(
        ends, [](const Begun& end) { return end.transfer.peer == end.device; });
    if (root == ends.end()) return absl::InternalError("broadcast: expected a root, found none");
    for (const Begun& end : ends) {
      if (end.transfer.peer != root->device) {
        return absl::InternalError(absl::StrCat("broadcast at device ", end.device,
                                                ": expected root ", end.transfer.peer, ", found ",
                                                root->device));
      }
      if (end.device != root->device) RETURN_IF_ERROR(Move(*root, end));
    }
    for (const Begun& end : ends) gpus_[end.device]->EndTransfer();
  }
  return absl::OkStatus();
}

// The channel's next message, if both ends have begun with it.
absl::Status CompiledPartRunner::Deliver(Channel& channel) {
  if (channel.sends.empty() || channel.receives.empty()) return absl::OkStatus();
  const Begun send = channel.sends.front();
  const Begun receive = channel.receives.front();
  channel.sends.pop_front();
  channel.receives.pop_front();
  RETURN_IF_ERROR(Move(send, receive));
  gpus_[send.device]->EndTransfer();
  gpus_[receive.device]->EndTransfer();
  return absl::OkStatus();
}

absl::Status CompiledPartRunner::Move(const Begun& send, const Begun& receive) {
  Gpu& from = *gpus_[send.device];
  Gpu& to = *gpus_[receive.device];
  const int64_t from_step = from.StepOf(StepStream::kWire).number;
  const int64_t to_step = to.StepOf(StepStream::kWire).number;
  if (send.transfer.bytes != receive.transfer.bytes || from_step != to_step) {
    return absl::InternalError(absl::StrCat("message from device ", send.device, " to ",
                                            receive.device, ": expected ", receive.transfer.bytes,
                                            " bytes in step ", to_step, ", found ",
                                            send.transfer.bytes, " in step ", from_step));
  }
  std::ranges::copy(from.StagingAt(send.transfer.staging_offset, send.transfer.bytes),
                    to.StagingAt(receive.transfer.staging_offset, send.transfer.bytes).begin());
  return absl::OkStatus();
}

absl::Status CompiledPartRunner::CheckFinished() const {
  for (const std::unique_ptr<Gpu>& gpu : gpus_) {
    if (gpu->finished()) continue;
    return absl::InternalError(
        absl::StrCat("device ", gpu->compiled().device(), ": expected to end, found it waiting"));
  }
  return absl::OkStatus();
}

DeviceReport CompiledPartRunner::ReportOf(DeviceRank device) const {
  return gpus_[device]->Report();
}

}  // namespace crossmesh
