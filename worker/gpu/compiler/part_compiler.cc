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

// Copies are small beside what a GPU moves in a step, and each is a launch.
constexpr int64_t kCopiesOfStepMax = 16;

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
    ListCopies();
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

  // Chunk by chunk. Received in place into the storage that is read, nothing is to be copied: the
  // part was proven to keep its tiles where they are.
  void ListCopies() {
    const WorkerPart::Spec& spec = part_.part().spec();
    if (spec.shared_storage && spec.binding == BindingMode::kInPlace) return;
    for (const PreparedPart::Copy& copy : part_.copies()) {
      const int64_t bytes = part_.slicing().classes()[copy.slice_class].bytes;
      for (int64_t begin = 0; begin < bytes; begin += spec.chunk_bytes) {
        lists_.copies.push_back({.slice_class = copy.slice_class,
                                 .begin = begin,
                                 .end = std::min(begin + spec.chunk_bytes, bytes)});
      }
    }
  }

  // Evenly over the steps, to run beside their transfers; what that leaves gets steps of its own.
  void DealCopies() {
    const int64_t copies = std::ssize(lists_.copies);
    const int64_t steps = std::max<int64_t>(std::ssize(lists_.steps), 1);
    const int64_t share = std::min((copies + steps - 1) / steps, kCopiesOfStepMax);
    int64_t dealt = 0;
    const auto deal = [&](CompiledPart::Step& step) {
      step.copies = {dealt, std::min(dealt + share, copies)};
      dealt = step.copies.end;
    };
    for (CompiledPart::Step& step : lists_.steps) deal(step);
    while (dealt < copies) {
      CompiledPart::Step step;
      if (!lists_.steps.empty()) step.number = lists_.steps.back().number + 1;
      deal(step);
      lists_.steps.push_back(step);
    }
  }

  void ListPeers() {
    const DeviceRank self = part_.part().spec().devices.front();
    // All of a group, whether or not they send something: each takes part in every broadcast.
    for (const DeviceRank device : part_.part().BroadcastGroupOf(self)) {
      if (device != self) lists_.peers.push_back(device);
    }
    for (const auto* transfers : {&lists_.sends, &lists_.receives}) {
      for (const CompiledPart::Transfer& transfer : *transfers) {
        lists_.peers.push_back(transfer.peer);
      }
    }
    std::ranges::sort(lists_.peers);
    const auto repeated = std::ranges::unique(lists_.peers);
    lists_.peers.erase(repeated.begin(), repeated.end());
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
