#pragma once

#include "worker/executor/prepared_part.h"

#include <compare>
#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// What happens in which step to every chunk that a device packs, receives or sends: the part of its
// compiled part that its peers must agree with. Where it lies in staging is each device's own
// affair.
struct MessageSchedule {
  enum class Action : uint8_t { kPack, kReceive, kSend, kBroadcast };

  // A chunk of a relay at this device: it comes into staging once, and may go on several times. In
  // a broadcast group it comes and goes by one broadcast.
  struct Message {
    int32_t node = 0;  // index into the part's nodes
    int32_t chunk = 0;
    int64_t last_step = 0;  // in which it is received, sent or broadcast
  };

  // Ordered by step. Within one, two devices exchange messages in the order of relays and chunks,
  // which is the same at both; and all devices of a group make their broadcasts in that order.
  struct Event {
    int64_t step =
        0;  // counted from the beginning of the execution, the same at both ends of a hop
    Action action = Action::kPack;
    int64_t message = 0;  // index into messages
    DeviceRank peer = 0;  // where it comes from or goes to; of a pack, the device itself; of a
                          // broadcast, its root
    friend auto operator<=>(const Event&, const Event&) = default;
  };

  std::vector<Message> messages;  // by relay and chunk, as the part numbers its chunks
  std::vector<Event> events;      // ascending
};

// Of a part of one device. InvalidArgument when a relay goes on before it has come: a hop's period
// must be after that of the hop which brings its bytes. Cost: that of sorting the events.
absl::StatusOr<MessageSchedule> ScheduleMessages(const PreparedPart& part);

}  // namespace crossmesh
