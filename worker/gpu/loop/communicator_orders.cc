#include "worker/gpu/loop/communicator_orders.h"

#include "common/base/free_space.h"
#include "common/base/status_macros.h"
#include "common/communicators/shared_memory.h"
#include "common/wire/communicator_codec.h"
#include "worker/gpu/protocol/gpu_message.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// NCCL says of a full /dev/shm only that a system call failed. What it had taken is there again by
// now, but for the other ranks' on this host.
absl::Status WithShortage(const absl::Status& cause) {
  const std::optional<int64_t> free = FreeBytesAt("/dev/shm");
  if (!free.has_value()) return cause;
  const std::optional<std::string> shortage = SharedMemoryShortage(*free, /*ranks=*/2);
  if (!shortage.has_value()) return cause;
  return absl::Status(cause.code(),
                      absl::StrCat(cause.message(), "; ", *shortage, ": ", kSharedMemoryAdvice));
}

}  // namespace

void CommunicatorOrders::Create(const v1::CreateCommunicatorRequest& order, Done done) {
  Keep(Begin(order), std::move(done));
}

void CommunicatorOrders::Destroy(const v1::DestroyCommunicatorRequest& order, Done done) {
  Keep(Begin(order), std::move(done));
}

void CommunicatorOrders::Stop(const v1::StopCommunicatorRequest& order, Done done) {
  Keep(Begin(order), std::move(done));
  // Its user must hear of it before it uses it again.
  Poll();
}

void CommunicatorOrders::BeginEpoch(uint64_t epoch, Done done) {
  Keep(Begin(epoch), std::move(done));
  Poll();
}

absl::StatusOr<CommunicatorOrders::Order> CommunicatorOrders::Begin(
    const v1::CreateCommunicatorRequest& order) {
  ASSIGN_OR_RETURN(CommunicatorKey key, FromProto(order.key()));
  ASSIGN_OR_RETURN(const uint64_t ticket, ParseTicket(order.ticket()));
  ASSIGN_OR_RETURN(const absl::Duration timeout,
                   ParseLimit("create_communicator.timeout", order.timeout()));
  RETURN_IF_ERROR(table_.BeginEpoch(key.epoch));
  RETURN_IF_ERROR(table_.Create(key, ticket, order.id()));
  return Order{
      .kind = Kind::kCreate, .key = std::move(key), .deadline = clock_.Monotonic() + timeout};
}

absl::StatusOr<CommunicatorOrders::Order> CommunicatorOrders::Begin(
    const v1::DestroyCommunicatorRequest& order) {
  ASSIGN_OR_RETURN(CommunicatorKey key, FromProto(order.key()));
  ASSIGN_OR_RETURN(const uint64_t ticket, ParseTicket(order.ticket()));
  ASSIGN_OR_RETURN(const absl::Duration timeout,
                   ParseLimit("destroy_communicator.timeout", order.timeout()));
  RETURN_IF_ERROR(table_.Destroy(key, ticket));
  return Order{
      .kind = Kind::kDestroy, .key = std::move(key), .deadline = clock_.Monotonic() + timeout};
}

absl::StatusOr<CommunicatorOrders::Order> CommunicatorOrders::Begin(
    const v1::StopCommunicatorRequest& order) {
  ASSIGN_OR_RETURN(CommunicatorKey key, FromProto(order.key()));
  RETURN_IF_ERROR(table_.Stop(key, absl::CancelledError(order.reason())));
  return Order{.kind = Kind::kStop, .key = std::move(key), .deadline = absl::InfiniteDuration()};
}

absl::StatusOr<CommunicatorOrders::Order> CommunicatorOrders::Begin(uint64_t epoch) {
  RETURN_IF_ERROR(table_.BeginEpoch(epoch));
  return Order{.kind = Kind::kEpoch, .key = {.epoch = epoch}, .deadline = absl::InfiniteDuration()};
}

void CommunicatorOrders::Keep(absl::StatusOr<Order> begun, Done done) {
  if (!begun.ok()) return done(begun.status());
  begun->done = std::move(done);
  orders_.push_back(*std::move(begun));
}

void CommunicatorOrders::Stop(const Communicator& communicator, const absl::Status& why) {
  const auto found = std::ranges::find_if(
      ready_, [&](const auto& entry) { return entry.second == &communicator; });
  // One that is gone is told of as such.
  if (found != ready_.end()) static_cast<void>(table_.Stop(found->first, why));
}

void CommunicatorOrders::Poll() {
  // First, so that what is too late is told as stopped by the same look.
  StopLate();
  for (const CommunicatorTable::Change& change : table_.Poll()) OnChange(change);
  EndEpochs();
}

void CommunicatorOrders::StopLate() {
  const absl::Duration now = clock_.Monotonic();
  for (Order& order : orders_) {
    if (now <= order.deadline) continue;
    // Once: how long the end may take is the table's to watch.
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
    Done done = std::move(made->done);
    orders_.erase(made);
    return done(change.bytes);
  }
  const auto was_ready = ready_.find(change.key);
  if (was_ready != ready_.end()) {
    handlers_.on_change(*was_ready->second, change.state, change.cause);
  }
  if (change.state == CommunicatorState::kHung) {
    health_.Update(absl::DeadlineExceededError(absl::StrCat("communicator ", change.key.ToString(),
                                                            " is HUNG: ", change.cause.message())));
  } else if (IsOver(change.state)) {
    OnGone(change);
  }
}

void CommunicatorOrders::OnGone(const CommunicatorTable::Change& change) {
  ready_.erase(change.key);
  // The end answers every order for it: the one that it was made or destroyed by, and each stop.
  if (!HasOrder(change.key)) return handlers_.on_lost(change.key, change.cause);
  for (auto it = orders_.begin(); it != orders_.end();) {
    if (it->key != change.key) {
      ++it;
      continue;
    }
    Order order = std::move(*it);
    it = orders_.erase(it);
    // The end that was ordered is what was wanted, for any cause.
    if (order.kind == Kind::kStop || change.cause.ok()) {
      order.done(0);
    } else {
      order.done(WithShortage(change.cause));
    }
  }
}

void CommunicatorOrders::EndEpochs() {
  uint64_t earliest = std::numeric_limits<uint64_t>::max();
  for (const auto& there : table_.List()) earliest = std::min(earliest, there.key.epoch);
  for (auto it = orders_.begin(); it != orders_.end();) {
    if (it->kind != Kind::kEpoch || earliest < it->key.epoch) {
      ++it;
      continue;
    }
    Order order = std::move(*it);
    it = orders_.erase(it);
    order.done(0);
  }
}

bool CommunicatorOrders::HasOrder(const CommunicatorKey& key) const {
  return std::ranges::any_of(orders_, [&](const Order& order) {
    return order.key == key || (order.kind == Kind::kEpoch && key.epoch < order.key.epoch);
  });
}

}  // namespace crossmesh
