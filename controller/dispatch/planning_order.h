#pragma once

#include "controller/dispatch/planning_queue.h"

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// Which of the requests that wait is next. Clients take turns, so that none waits for all that
// another one has asked for. In its turn a client's cheapest request goes, the oldest of equal
// ones; but one that others of its client have overtaken kOvertakenMax times goes before these.
// Thread-compatible.
class PlanningOrder {
 public:
  // A request of that cost or more is long: it may take a tenth of a second and more.
  static constexpr int64_t kLongCost = int64_t{1} << 18;
  static constexpr int kOvertakenMax = 8;
  static constexpr int64_t kWaitingMax = 256;
  static constexpr int64_t kWaitingOfClientMax = 128;

  struct Waiting {
    PlanningRequest request;
    absl::Duration since;  // on the caller's clock
    int overtaken = 0;

    bool is_long() const { return request.cost >= kLongCost; }
  };

  // Takes it. ResourceExhausted when one more must not wait; then `waiting` is left as it is.
  absl::Status Add(Waiting& waiting);
  // As Add would say to a request of this client.
  absl::Status CheckRoom(const std::string& client) const;
  // Takes the next one. Nothing when none waits, or only long ones, and `long_too` is false.
  std::optional<Waiting> Next(bool long_too);
  int64_t size() const { return size_; }

 private:
  struct Client {
    std::string name;
    std::deque<Waiting> requests;  // the oldest first
  };
  static std::deque<Waiting>::iterator Choose(Client& client, bool long_too);

  std::list<Client> clients_;  // that have requests; the one whose turn is next first
  int64_t size_ = 0;
};

}  // namespace crossmesh
