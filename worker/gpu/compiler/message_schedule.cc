#include "worker/gpu/compiler/message_schedule.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/compiler/chunk_steps.h"

#include <algorithm>
#include <span>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using Action = MessageSchedule::Action;
using Hops = std::span<const WorkerPart::PartHop>;

// The event by which each chunk of a relay comes into staging: packed in the period in which the
// root first sends it, or received. Its step is that period.
MessageSchedule::Event ArrivalOf(const PreparedPart::Node& node, Hops hops) {
  if (node.root) {
    const auto first = std::ranges::min_element(hops, {}, &WorkerPart::PartHop::period);
    return {.step = first->period, .action = Action::kPack, .peer = node.device};
  }
  const auto hop = std::ranges::find(hops, node.device, &WorkerPart::PartHop::to);
  CHECK(hop != hops.end()) << "relay " << node.relay << " was proven to come";
  return {.step = hop->period, .action = Action::kReceive, .peer = hop->from};
}

absl::Status CheckGoesOnLater(const PreparedPart& part, const PreparedPart::Node& node, Hops hops,
                              int64_t arrival) {
  if (node.root) return absl::OkStatus();
  for (const WorkerPart::PartHop& hop : hops) {
    if (hop.to == node.device || hop.period > arrival) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(part, node), ": expected that it goes on to ",
                     ToString(part.part().tensors().devices()[hop.to]), " after period ", arrival,
                     ", in which it comes, found period ", hop.period));
  }
  return absl::OkStatus();
}

// Appends the chunks of a node, with all that happens to them.
absl::Status AddNode(const PreparedPart& part, int32_t node_index, Hops hops,
                     MessageSchedule& schedule) {
  const PreparedPart::Node& node = part.nodes()[node_index];
  const MessageSchedule::Event arrival = ArrivalOf(node, hops);
  RETURN_IF_ERROR(CheckGoesOnLater(part, node, hops, arrival.step));
  const std::vector<int64_t> steps = ChunkSteps(part, node);
  for (int32_t chunk = 0; chunk < node.chunks; ++chunk) {
    const int64_t message = std::ssize(schedule.messages);
    MessageSchedule::Event event = arrival;
    event.step += steps[chunk];
    event.message = message;
    schedule.events.push_back(event);
    int64_t last_step = event.step;
    for (const WorkerPart::PartHop& hop : hops) {
      if (hop.from != node.device) continue;
      const int64_t step = steps[chunk] + hop.period;
      schedule.events.push_back(
          {.step = step, .action = Action::kSend, .message = message, .peer = hop.to});
      last_step = std::max(last_step, step);
    }
    schedule.messages.push_back({.node = node_index, .chunk = chunk, .last_step = last_step});
  }
  return absl::OkStatus();
}

// The same in a broadcast group: each chunk goes once, to all at a time.
void AddBroadcastNode(const PreparedPart& part, int32_t node_index, DeviceRank root,
                      MessageSchedule& schedule) {
  const PreparedPart::Node& node = part.nodes()[node_index];
  const std::vector<int64_t> steps = ChunkSteps(part, node);
  for (int32_t chunk = 0; chunk < node.chunks; ++chunk) {
    MessageSchedule::Event event{.step = steps[chunk], .message = std::ssize(schedule.messages)};
    if (node.root) {
      event.action = Action::kPack;
      event.peer = node.device;
      schedule.events.push_back(event);
    }
    event.action = Action::kBroadcast;
    event.peer = root;
    schedule.events.push_back(event);
    schedule.messages.push_back({.node = node_index, .chunk = chunk, .last_step = event.step});
  }
}

}  // namespace

absl::StatusOr<MessageSchedule> ScheduleMessages(const PreparedPart& part) {
  const WorkerPart::Spec& spec = part.part().spec();
  // One device has one node of each relay that touches it.
  CHECK_EQ(part.nodes().size(), spec.relays.size());
  MessageSchedule schedule;
  schedule.messages.reserve(part.chunks());
  const bool broadcasts = !part.part().BroadcastGroupOf(spec.devices.front()).empty();
  for (size_t i = 0; i < spec.relays.size(); ++i) {
    const WorkerPart::PartRelay& relay = spec.relays[i];
    const auto node = static_cast<int32_t>(i);
    if (broadcasts) {
      AddBroadcastNode(part, node, relay.root, schedule);
    } else {
      RETURN_IF_ERROR(
          AddNode(part, node, Hops(spec.hops).subspan(relay.first_hop, relay.hop_count), schedule));
    }
  }
  // Packs are first within a step, so that what is sent has its place by then. Messages follow by
  // relay and chunk, an order that both ends of a hop know: NCCL matches them by nothing else.
  std::ranges::sort(schedule.events);
  return schedule;
}

}  // namespace crossmesh
