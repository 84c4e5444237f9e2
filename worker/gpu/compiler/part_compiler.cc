#include "worker/gpu/compiler/part_compiler.h"

#include "common/base/status_macros.h"
#include "common/plan/plan.h"
#include "worker/gpu/compiler/chunk_message.h"
#include "worker/gpu/compiler/staging_places.h"
#include "worker/gpu/compiler/step_waits.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using Action = MessageSchedule::Action;
using Events = std::span<const MessageSchedule::Event>;

// Of copies in a step, at least, if there are so many: enough for a launch at full speed.
constexpr int64_t kCopyBytesOfStepMin = int64_t{32} << 20;

// Ascending, each once.
void SortDistinct(std::vector<DeviceRank>& devices) {
  std::ranges::sort(devices);
  const auto repeated = std::ranges::unique(devices);
  devices.erase(repeated.begin(), repeated.end());
}

std::vector<DeviceRank> PeersOf(const std::vector<CompiledPart::Transfer>& transfers) {
  std::vector<DeviceRank> peers;
  for (const CompiledPart::Transfer& transfer : transfers) peers.push_back(transfer.peer);
  SortDistinct(peers);
  return peers;
}

// Deals out what a device copies, as ranges of whole leaves of classes.
class CopyDealer {
 public:
  // So many bytes at a time, and less than a leaf more.
  CopyDealer(const PreparedPart& part, int64_t share_bytes)
      : part_(part), share_bytes_(share_bytes) {}

  // Appends the next share to `copies`; gives its range there, which is empty when all is dealt.
  CompiledPart::Range Deal(std::vector<CompiledPart::Copy>& copies) {
    const int64_t first = std::ssize(copies);
    for (int64_t left = share_bytes_; left > 0 && next_ < std::ssize(part_.copies());) {
      const ClassIndex slice_class = part_.copies()[next_].slice_class;
      const int64_t class_bytes = part_.slicing().classes()[slice_class].bytes;
      const int64_t most = ChunkMessage::RoundUp(left, Plan::kLeafBytes);
      const int64_t end = std::min(begin_ + most, class_bytes);
      copies.push_back({.slice_class = slice_class, .begin = begin_, .end = end});
      left -= end - begin_;
      begin_ = end;
      if (end < class_bytes) continue;
      ++next_;
      begin_ = 0;
    }
    return {first, std::ssize(copies)};
  }

 private:
  const PreparedPart& part_;
  const int64_t share_bytes_;
  int64_t next_ = 0;   // of the part's copies
  int64_t begin_ = 0;  // what is dealt of it
};

class PartCompiler {
 public:
  PartCompiler(const PreparedPart& part, const MessageSchedule& schedule,
               const CompiledPart::Options& options)
      : part_(part),
        schedule_(schedule),
        options_(options),
        places_(options.staging_bytes, options.steps_ahead),
        offset_of_message_(schedule.messages.size()) {}

  absl::StatusOr<CompiledPart::Lists> Compile() {
    NumberLeaves();
    NumberSteps();
    const Events events(schedule_.events);
    for (size_t begin = 0, end = 0; begin < events.size(); begin = end) {
      while (end < events.size() && events[end].step == events[begin].step) ++end;
      RETURN_IF_ERROR(AddStep(events.subspan(begin, end - begin)));
    }
    DealCopies();
    ListPeers();
    ListScaled();
    return std::move(lists_);
  }

 private:
  void NumberLeaves() {
    first_leaf_of_node_.resize(part_.nodes().size());
    for (int32_t i = 0; i < std::ssize(part_.nodes()); ++i) {
      const PreparedPart::Node& node = part_.nodes()[i];
      if (node.root) continue;
      first_leaf_of_node_[i] = lists_.leaves;
      lists_.received.push_back({.node = i, .first_leaf = lists_.leaves});
      lists_.leaves += node.leaves;
    }
  }

  void NumberSteps() {
    for (const MessageSchedule::Event& event : schedule_.events) {
      if (numbers_.empty() || numbers_.back() != event.step) numbers_.push_back(event.step);
    }
  }
  int32_t IndexOfStep(int64_t number) const {
    return static_cast<int32_t>(std::ranges::lower_bound(numbers_, number) - numbers_.begin());
  }

  // From all events of one number.
  absl::Status AddStep(Events events) {
    places_.BeginStep(static_cast<int32_t>(lists_.steps.size()));
    CompiledPart::Step step{.number = events.front().step};
    const auto begin_at = [](const auto& list) {
      return CompiledPart::Range{std::ssize(list), std::ssize(list)};
    };
    step.packs = begin_at(lists_.packs);
    step.sends = begin_at(lists_.sends);
    step.receives = begin_at(lists_.receives);
    step.broadcasts = begin_at(lists_.broadcasts);
    step.unpacks = begin_at(lists_.unpacks);
    needs_ = {};
    for (const MessageSchedule::Event& event : events) RETURN_IF_ERROR(AddEvent(event));
    step.packs.end = std::ssize(lists_.packs);
    step.sends.end = std::ssize(lists_.sends);
    step.receives.end = std::ssize(lists_.receives);
    step.broadcasts.end = std::ssize(lists_.broadcasts);
    step.unpacks.end = std::ssize(lists_.unpacks);
    waits_.Fill(needs_, step);
    lists_.steps.push_back(step);
    return absl::OkStatus();
  }

  absl::Status AddEvent(const MessageSchedule::Event& event) {
    switch (event.action) {
      case Action::kPack:
        return AddPack(event);
      case Action::kReceive:
        return AddArrival(event, lists_.receives);
      case Action::kSend:
        lists_.sends.push_back(TransferOf(event));
        return absl::OkStatus();
      case Action::kBroadcast:
        if (!NodeOf(event.message).root) return AddArrival(event, lists_.broadcasts);
        // At its root the chunk has its place already, from the pack of the same step.
        lists_.broadcasts.push_back(TransferOf(event));
        return absl::OkStatus();
    }
    return absl::InternalError("an action of no kind");
  }

  absl::Status AddPack(const MessageSchedule::Event& event) {
    ASSIGN_OR_RETURN(const StepUse before, TakePlace(event));
    // Packs have a stream of their own, so both other streams must be past the place.
    needs_.before_packs.Join(before);
    const PreparedPart::Chunk chunk = ChunkOf(event.message);
    lists_.packs.push_back({.slice_class = NodeOf(event.message).slice_class,
                            .begin = chunk.begin,
                            .end = chunk.end,
                            .staging_offset = offset_of_message_[event.message]});
    return absl::OkStatus();
  }

  absl::Status AddArrival(const MessageSchedule::Event& event,
                          std::vector<CompiledPart::Transfer>& arrivals) {
    ASSIGN_OR_RETURN(const StepUse before, TakePlace(event));
    // Transfers before it were on its own stream.
    needs_.unpack_before_wire = std::max(needs_.unpack_before_wire, before.unpack);
    arrivals.push_back(TransferOf(event));
    const MessageSchedule::Message& message = schedule_.messages[event.message];
    const PreparedPart::Chunk chunk = ChunkOf(event.message);
    lists_.unpacks.push_back({.slice_class = NodeOf(event.message).slice_class,
                              .begin = chunk.begin,
                              .end = chunk.end,
                              .staging_offset = offset_of_message_[event.message],
                              .first_leaf = first_leaf_of_node_[message.node] + chunk.first_leaf});
    return absl::OkStatus();
  }

  // A place for the event's message, from its step on until its last one. Returns how its bytes
  // were used before.
  absl::StatusOr<StepUse> TakePlace(const MessageSchedule::Event& event) {
    const int32_t step = static_cast<int32_t>(lists_.steps.size());
    // What comes is unpacked in the step in which it comes, and may be sent on long after that.
    const StepUse last{.wire = IndexOfStep(schedule_.messages[event.message].last_step),
                       .unpack = event.action == Action::kPack ? kNoStep : step};
    const int64_t bytes = MessageOf(event.message).place_bytes();
    const std::optional<StagingPlaces::Place> place = places_.Take(bytes, last);
    if (!place.has_value()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "staging of ", ToString(part_.part().tensors().devices()[NodeOf(event.message).device]),
          ": expected room for ", bytes, " bytes in one piece beside ", places_.taken_bytes(),
          " bytes in use in step ", event.step, ", found ", options_.staging_bytes,
          " bytes in all"));
    }
    offset_of_message_[event.message] = place->offset;
    return place->before;
  }

  CompiledPart::Transfer TransferOf(const MessageSchedule::Event& event) const {
    return {.peer = event.peer,
            .staging_offset = offset_of_message_[event.message],
            .bytes = MessageOf(event.message).bytes(),
            .chunk_bytes = ChunkOf(event.message).bytes()};
  }
  const PreparedPart::Node& NodeOf(int64_t message) const {
    return part_.nodes()[schedule_.messages[message].node];
  }
  PreparedPart::Chunk ChunkOf(int64_t message) const {
    return part_.ChunkOf(NodeOf(message), schedule_.messages[message].chunk);
  }
  ChunkMessage MessageOf(int64_t message) const {
    return {.chunk_bytes = ChunkOf(message).bytes(), .checksums = options_.checksums};
  }

  // Evenly over the steps, to run beside their transfers; in one of its own where there are none.
  void DealCopies() {
    const WorkerPart::Spec& spec = part_.part().spec();
    // Received in place into the storage that is read, nothing is to be copied: the part was proven
    // to keep its tiles where they are.
    if (spec.shared_storage && spec.binding == BindingMode::kInPlace) return;
    int64_t bytes = 0;
    for (const PreparedPart::Copy& copy : part_.copies()) {
      bytes += part_.slicing().classes()[copy.slice_class].bytes;
    }
    if (bytes == 0) return;
    if (lists_.steps.empty()) lists_.steps.emplace_back();
    const int64_t steps = std::ssize(lists_.steps);
    CopyDealer dealer(part_, std::max((bytes + steps - 1) / steps, kCopyBytesOfStepMin));
    for (CompiledPart::Step& step : lists_.steps) {
      step.copies = dealer.Deal(lists_.copies);
    }
  }

  void ListPeers() {
    const DeviceRank self = part_.part().spec().devices.front();
    // All of a group, whether or not they send something: each takes part in every broadcast.
    for (const DeviceRank device : part_.part().BroadcastGroupOf(self)) {
      if (device != self) lists_.peers.push_back(device);
    }
    lists_.senders = PeersOf(lists_.receives);
    lists_.receivers = PeersOf(lists_.sends);
    for (const auto* some : {&lists_.senders, &lists_.receivers}) {
      lists_.peers.insert(lists_.peers.end(), some->begin(), some->end());
    }
    SortDistinct(lists_.peers);
  }

  void ListScaled() {
    const TensorTable& tensors = part_.part().tensors();
    const std::vector<int32_t>& scaled = tensors.spec().scaled_tensors;
    if (scaled.empty()) return;
    const std::vector<bool> is_read = ReadGroups();
    const std::vector<int32_t>& groups = tensors.group_of_tensor();
    for (int32_t i = 0; i < std::ssize(scaled); ++i) {
      if (is_read[groups[scaled[i]]] || is_read[groups[tensors.first_scales() + i]]) {
        lists_.scaled.push_back(i);
      }
    }
  }

  // By group: does the device read any of its tensors?
  std::vector<bool> ReadGroups() const {
    std::set<ClassIndex> classes;
    for (const CompiledPart::Pack& pack : lists_.packs) classes.insert(pack.slice_class);
    for (const CompiledPart::Copy& copy : lists_.copies) classes.insert(copy.slice_class);
    std::vector<bool> is_read(part_.slicing().grids());
    for (int32_t group = 0; group < part_.slicing().grids(); ++group) {
      const GroupGrid& grid = part_.slicing().grid(group);
      is_read[group] = std::ranges::any_of(
          classes, [&](ClassIndex slice_class) { return grid.FindClass(slice_class) >= 0; });
    }
    return is_read;
  }

  const PreparedPart& part_;
  const MessageSchedule& schedule_;
  const CompiledPart::Options& options_;
  StagingPlaces places_;
  StepWaits waits_;
  StepWaits::Needs needs_;                   // of the step in hand
  std::vector<int64_t> numbers_;             // [step]
  std::vector<int64_t> offset_of_message_;   // once it has a place
  std::vector<int64_t> first_leaf_of_node_;  // of those received
  CompiledPart::Lists lists_;
};

}  // namespace

absl::StatusOr<CompiledPart::Lists> CompilePart(const PreparedPart& part,
                                                const MessageSchedule& schedule,
                                                const CompiledPart::Options& options) {
  return PartCompiler(part, schedule, options).Compile();
}

}  // namespace crossmesh
