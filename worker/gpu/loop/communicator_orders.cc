#include "worker/gpu/loop/communicator_orders.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::Status CommunicatorOrders::Begin(uint64_t request,
                                       const GpuRequest::CreateCommunicator& create) {
  RETURN_IF_ERROR(table_.BeginEpoch(create.key.epoch));
  RETURN_IF_ERROR(table_.Create(create.key, create.ticket, create.id));
  orders_.push_back({.request = request,
                     .kind = Kind::kCreate,
                     .key = create.key,
                     .deadline = clock_.Monotonic() + create.timeout});
  return absl::OkStatus();
}

absl::Status CommunicatorOrders::Begin(uint64_t request,
                                       const GpuRequest::DestroyCommunicator& destroy) {
  RETURN_IF_ERROR(table_.Destroy(destroy.key, destroy.ticket));
  orders_.push_back({.request = request,
                     .kind = Kind::kDestroy,
                     .key = destroy.key,
                     .deadline = clock_.Monotonic() + destroy.timeout});
  return absl::OkStatus();
}

absl::Status CommunicatorOrders::Begin(uint64_t request, const GpuRequest::StopCommunicator& stop) {
  RETURN_IF_ERROR(table_.Stop(stop.key, stop.cause));
  orders_.push_back({.request = request,
                     .kind = Kind::kStop,
                     .key = stop.key,
                     .deadline = absl::InfiniteDuration()});
  // Its user must hear of it before it uses it again.
  Poll();
  return absl::OkStatus();
}

void CommunicatorOrders::Stop(const Communicator& communicator, const absl::Status& why) {
  const auto found = std::ranges::find_if(
      ready_, [&](const auto& entry) { return entry.second == &communicator; });
  // One that is gone is told of as such.
  if (found != ready_.end()) static_cast<void>(table_.Stop(found->first, why));
}

void CommunicatorOrders::Poll() {
  StopLate();
  for (const CommunicatorTable::Change& change : table_.Poll()) OnChange(change);
}

void CommunicatorOrders::StopLate() {
  const absl::Duration now = clock_.Monotonic();
  for (Order& order : orders_) {
    if (now <= order.deadline) continue;
    order.deadline = absl::InfiniteDuration();
    // It is there as long as it has an order.
    static_cast<void>(table_.Stop(
        order.key, absl::DeadlineExceededError(absl::StrCat(
                       "communicator ", order.key.ToString(), " was not ",
                       order.kind == Kind::kCreate ? "made" : "destroyed", " in its time"))));
  }
}

void CommunicatorOrders::OnChange(const CommunicatorTable::Change& change) {
  if (change.state == CommunicatorState::kReady) {
    ready_[change.key] = table_.Find(change.key);
    const auto made = std::ranges::find_if(orders_, [&](const Order& order) {
      return order.key == change.key && order.kind == Kind::kCreate;
    });
    if (made == orders_.end()) return;
    const uint64_t request = made->request;
    orders_.erase(made);
    return listener_.OnCommunicatorMade(request, change.bytes);
  }
  const auto was_ready = ready_.find(change.key);
  if (was_ready != ready_.end()) {
    listener_.OnCommunicatorChange(*was_ready->second, change.state, change.cause);
  }
  if (change.state == CommunicatorState::kHung) {
    listener_.OnCommunicatorHung(change.key, change.cause);
  } else if (IsOver(change.state)) {
    OnGone(change);
  }
}

void CommunicatorOrders::OnGone(const CommunicatorTable::Change& change) {
  ready_.erase(change.key);
  if (!HasOrder(change.key)) return listener_.OnCommunicatorLost(change.key, change.cause);
  for (auto it = orders_.begin(); it != orders_.end();) {
    if (it->key != change.key) {
      ++it;
      continue;
    }
    const Order order = std::move(*it);
    it = orders_.erase(it);
    listener_.OnCommunicatorGone(order.request,
                                 order.kind == Kind::kStop ? absl::OkStatus() : change.cause);
  }
}

bool CommunicatorOrders::HasOrder(const CommunicatorKey& key) const {
  return std::ranges::any_of(orders_, [&](const Order& order) { return order.key == key; });
}

}  // namespace crossmesh
