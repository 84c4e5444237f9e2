#include "worker/gpu/executor/step_pipeline.h"

#include "common/base/status_macros.h"
#include "worker/gpu/communicators/registered_staging.h"
#include "worker/gpu/compiler/chunk_message.h"
#include "worker/gpu/device/device_copy.h"
#include "worker/gpu/executor/bound_leg.h"
#include "worker/gpu/executor/device_pointer.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {

StepPipeline::StepPipeline(const BoundLeg& leg, const Ranks& ranks, ExecutionResources& shared)
    : leg_(leg),
      compiled_(leg.compiled()),
      communicator_(ranks.communicator),
      ranks_(ranks),
      shared_(shared) {}

int StepPipeline::RankOf(DeviceRank device) const { return ranks_.of[leg_.InWhole(device)]; }

absl::StatusOr<bool> StepPipeline::Advance() {
  RETURN_IF_ERROR(NoteDone());
  bool is_moved = found_.done > 0;
  // An error of what is on the stream is told here only, so the communicator is always asked.
  ASSIGN_OR_RETURN(Communicator::Progress progress, communicator_.Poll());
  while (progress == Communicator::Progress::kIdle) {
    if (is_begun_) {
      RETURN_IF_ERROR(EndStep());
    } else if (may_begin()) {
      RETURN_IF_ERROR(BeginStep());
      ASSIGN_OR_RETURN(progress, communicator_.Poll());
    } else {
      break;
    }
    is_moved = true;
  }
  if (are_steps_issued() && reduction_ == Reducing::kNotYet) RETURN_IF_ERROR(QueueReductions());
  return is_moved;
}

absl::Status StepPipeline::BeginStep() {
  const Step& step = compiled_.steps()[issued_];
  is_begun_ = true;
  if (issued_ == 0) RETURN_IF_ERROR(QueueScales());
  RETURN_IF_ERROR(QueuePacks(step));
  return QueueTransfers(step);
}

absl::Status StepPipeline::EndStep() {
  const Step& step = compiled_.steps()[issued_];
  // Only now: before the communicator was idle its group may not have been on the stream, and the
  // event would have happened without it.
  if (HasTransfers(step)) RETURN_IF_ERROR(EventsOf(issued_).wired->Record(*shared_.wire));
  // Copies first, since they have nothing to wait for: unpacks make the stream wait for transfers.
  RETURN_IF_ERROR(QueueCopies());
  RETURN_IF_ERROR(QueueUnpacks(step));
  if (!step.copies.empty() || !step.unpacks.empty()) {
    RETURN_IF_ERROR(EventsOf(issued_).unpacked->Record(*shared_.unpack));
  }
  is_begun_ = false;
  ++issued_;
  return absl::OkStatus();
}

absl::Status StepPipeline::QueueScales() {
  if (leg_.scale_blocks() == 0) return absl::OkStatus();
  RETURN_IF_ERROR(
      shared_.gpu.Launch(shared_.scale_kernel, leg_.scale_blocks(), leg_.scaling(), *shared_.pack));
  RETURN_IF_ERROR(shared_.scaled->Record(*shared_.pack));
  // Packs come after them, and copies read them as well.
  return shared_.unpack->WaitFor(*shared_.scaled);
}

PackArguments StepPipeline::ArgumentsOf(const StepLaunches::Launch<PackArguments>& launch) const {
  PackArguments arguments = leg_.ArgumentsOf(launch);
  if (!compiled_.is_straight()) {
    arguments.packed = DevicePointer<std::byte>(shared_.staging.address());
  }
  return arguments;
}

absl::Status StepPipeline::QueuePacks(const Step& step) {
  if (step.packs.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(WaitForWire(*shared_.pack, step.pack_after_wire));
  RETURN_IF_ERROR(WaitForUnpack(*shared_.pack, step.pack_after_unpack));
  for (const auto& launch : leg_.launches().packs(issued_)) {
    PackArguments arguments = ArgumentsOf(launch);
    if (compiled_.checksums()) {
      arguments.leaf_hashes = DevicePointer<uint64_t>(shared_.staging.address());
    }
    RETURN_IF_ERROR(shared_.gpu.Launch(launch.kernel, launch.blocks, arguments, *shared_.pack));
  }
  return EventsOf(issued_).packed->Record(*shared_.pack);
}

absl::Status StepPipeline::QueueTransfers(const Step& step) {
  if (!HasTransfers(step)) return absl::OkStatus();
  // What is sent without being packed came in an earlier step, on this stream.
  if (!step.packs.empty()) RETURN_IF_ERROR(shared_.wire->WaitFor(*EventsOf(issued_).packed));
  RETURN_IF_ERROR(WaitForUnpack(*shared_.wire, step.wire_after_unpack));
  if (!step.broadcasts.empty()) return QueueBroadcasts(step);
  if (step.collective) return QueueCollective();
  if (step.m2n) return communicator_.Reshard(leg_.m2n_tensors(), shared_.wire->handle());
  const auto list = [this](std::span<const CompiledPart::Transfer> transfers,
                           std::vector<RankMessage>& messages) {
    messages.clear();
    for (const CompiledPart::Transfer& transfer : transfers) {
      messages.push_back({.peer = RankOf(transfer.peer),
                          .address = shared_.staging.address() + transfer.staging_offset,
                          .bytes = transfer.bytes});
    }
  };
  list(compiled_.sends(step), shared_.sends);
  list(compiled_.receives(step), shared_.receives);
  return communicator_.Exchange(shared_.sends, shared_.receives, shared_.wire->handle());
}

absl::Status StepPipeline::QueueBroadcasts(const Step& step) {
  shared_.collectives.clear();
  for (const CompiledPart::Transfer& broadcast : compiled_.broadcasts(step)) {
    const uint64_t address = shared_.staging.address() + broadcast.staging_offset;
    shared_.collectives.push_back({.kind = CollectiveKind::kBroadcast,
                                   .from = address,
                                   .to = address,
                                   .count = broadcast.bytes,
                                   .root = RankOf(broadcast.peer)});
  }
  return communicator_.PerformAll(shared_.collectives, shared_.wire->handle());
}

absl::Status StepPipeline::QueueCollective() {
  std::vector<Collective>& calls = shared_.collectives;
  calls.assign(leg_.collectives().begin(), leg_.collectives().end());
  if (compiled_.leaves() > 0) {
    // After those of the tensors, each rank's from its place to that of all.
    const uint64_t to = shared_.staging.address() + compiled_.root_hashes_offset();
    const std::vector<DeviceRank>& group = *compiled_.group();
    const int64_t bytes = ChunkMessage::kHashBytes * compiled_.leaves() / std::ssize(group);
    const auto own = std::ranges::find(group, compiled_.device()) - group.begin();
    calls.push_back(
        {.kind = CollectiveKind::kAllGather, .from = to + own * bytes, .to = to, .count = bytes});
  }
  CUstream stream = shared_.wire->handle();
  return ranks_.groups == nullptr ? communicator_.PerformAll(calls, stream)
                                  : communicator_.PerformAllIn(*ranks_.groups, calls, stream);
}

absl::Status StepPipeline::QueueCopies() {
  for (const DeviceCopy& copy : leg_.launches().driver_copies(issued_)) {
    RETURN_IF_ERROR(Queue(shared_.gpu, copy, *shared_.unpack));
  }
  for (const auto& launch : leg_.launches().copies(issued_)) {
    RETURN_IF_ERROR(shared_.gpu.Launch(launch.kernel, launch.blocks, leg_.ArgumentsOf(launch),
                                       *shared_.unpack));
  }
  return absl::OkStatus();
}

absl::Status StepPipeline::QueueUnpacks(const Step& step) {
  if (step.unpacks.empty()) return absl::OkStatus();
  // What is unpacked has come in this step, so there are transfers, and their event was recorded.
  RETURN_IF_ERROR(shared_.unpack->WaitFor(*EventsOf(issued_).wired));
  for (const auto& launch : leg_.launches().unpacks(issued_)) {
    PackArguments arguments = ArgumentsOf(launch);
    if (compiled_.checksums()) {
      arguments.leaf_hashes = leg_.hashes_in_place_on_gpu();
    }
    if (compiled_.checksums() && !compiled_.is_straight()) {
      arguments.root_hashes = DevicePointer<const uint64_t>(shared_.staging.address());
      arguments.root_hashes_to = leg_.root_hashes_on_gpu();
    }
    RETURN_IF_ERROR(shared_.gpu.Launch(launch.kernel, launch.blocks, arguments, *shared_.unpack));
  }
  return compiled_.is_straight() ? QueueRootHashes() : absl::OkStatus();
}

absl::Status StepPipeline::QueueReductions() {
  reduction_ = Reducing::kDone;
  if (leg_.reductions().empty()) return absl::OkStatus();
  for (const ReductionLaunch& launch : leg_.reductions()) {
    RETURN_IF_ERROR(shared_.gpu.Launch(launch.kernel, launch.blocks, leg_.ArgumentsOf(launch),
                                       *shared_.unpack));
  }
  reduction_ = Reducing::kQueued;
  return shared_.reduced->Record(*shared_.unpack);
}

absl::Status StepPipeline::QueueRootHashes() {
  return leg_.CopyRootHashes(shared_.staging.address() + compiled_.root_hashes_offset(),
                             *shared_.unpack);
}

// Of a step that is not done the events are still its own, for there are as many in the ring as
// steps may be on the streams. kNoStep is below all steps, and so is done.
absl::Status StepPipeline::WaitForWire(GpuStream& stream, int32_t step) {
  return step < done_ ? absl::OkStatus() : stream.WaitFor(*EventsOf(step).wired);
}

absl::Status StepPipeline::WaitForUnpack(GpuStream& stream, int32_t step) {
  return step < done_ ? absl::OkStatus() : stream.WaitFor(*EventsOf(step).unpacked);
}

absl::Status StepPipeline::NoteDone() {
  const int32_t done_before = done_;
  while (done_ < issued_) {
    ASSIGN_OR_RETURN(const bool is_done, IsDone(done_));
    if (!is_done) break;
    CountBytes(compiled_.steps()[done_]);
    ++done_;
  }
  found_ = {.done = done_ - done_before, .left = issued_ - done_};
  if (reduction_ != Reducing::kQueued || !are_steps_done()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool is_reduced, shared_.reduced->IsDone());
  if (is_reduced) reduction_ = Reducing::kDone;
  return absl::OkStatus();
}

// By as few queries as tell it: unpacks wait for the step's transfers, and these for its packs.
absl::StatusOr<bool> StepPipeline::IsDone(int32_t index) const {
  const Step& step = compiled_.steps()[index];
  const StreamEvents& events = EventsOf(index);
  if (index == 0 && leg_.scale_blocks() > 0) {
    ASSIGN_OR_RETURN(const bool is_done, shared_.scaled->IsDone());
    if (!is_done) return false;
  }
  if (!step.copies.empty() || !step.unpacks.empty()) {
    ASSIGN_OR_RETURN(const bool is_done, events.unpacked->IsDone());
    if (!is_done || !step.unpacks.empty()) return is_done;
  }
  if (HasTransfers(step)) return events.wired->IsDone();
  return step.packs.empty() ? true : events.packed->IsDone();
}

void StepPipeline::CountBytes(const Step& step) {
  if (step.m2n || step.collective) {
    bytes_.sent += compiled_.straight_sent_bytes();
    bytes_.received += compiled_.straight_received_bytes();
  }
  for (const CompiledPart::Transfer& send : compiled_.sends(step)) bytes_.sent += send.chunk_bytes;
  for (const CompiledPart::Transfer& receive : compiled_.receives(step)) {
    bytes_.received += receive.chunk_bytes;
  }
  for (const CompiledPart::Transfer& broadcast : compiled_.broadcasts(step)) {
    const bool is_root = broadcast.peer == compiled_.device();
    (is_root ? bytes_.sent : bytes_.received) += broadcast.chunk_bytes;
  }
  for (const CompiledPart::Copy& copy : compiled_.copies(step)) {
    bytes_.copied += copy.end - copy.begin;
  }
}

std::string StepPipeline::Missing() const {
  if (are_steps_done()) return is_done() ? "nothing" : "what is reduced after the last step";
  const Step& step = compiled_.steps()[done_];
  const std::vector<DeviceId>& devices = compiled_.part().part().tensors().devices();
  std::string text = absl::StrCat("step ", step.number, ", after ", done_, " of ",
                                  compiled_.steps().size(), " that are done");
  if (step.m2n) absl::StrAppend(&text, ", all tensors by NCCL M2N");
  if (step.collective) {
    absl::StrAppend(&text, ", ", StepCollectiveName(compiled_.collective()->kind),
                    " of all tensors");
    if (ranks_.groups != nullptr) {
      absl::StrAppend(
          &text, " among ",
          absl::StrJoin(*compiled_.group(), ", ", [&](std::string* to, DeviceRank device) {
            to->append(ToString(devices[device]));
          }));
    }
  }
  for (const CompiledPart::Transfer& send : compiled_.sends(step)) {
    absl::StrAppend(&text, ", to ", ToString(devices[send.peer]));
  }
  for (const CompiledPart::Transfer& receive : compiled_.receives(step)) {
    absl::StrAppend(&text, ", from ", ToString(devices[receive.peer]));
  }
  for (const CompiledPart::Transfer& broadcast : compiled_.broadcasts(step)) {
    absl::StrAppend(&text, ", broadcast from ", ToString(devices[broadcast.peer]));
  }
  return text;
}

}  // namespace crossmesh
