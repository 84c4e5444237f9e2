#include "controller/dispatch/communicator_leases.h"

#include "common/base/log.h"
#include "common/metrics/controller_metrics.h"
#include "controller/membership/worker_registry.h"
#include "controller/operation/worker_error.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

const RankName& NameOf(const CommunicatorRank& at) { return at.key.ranks[at.rank]; }

// Does the answer to an order to end a communicator say that nothing of it is there? Processes that
// have heard of a later epoch have stopped what is of this one.
bool IsGone(const absl::Status& status) {
  return status.ok() || absl::IsNotFound(status) || absl::IsAborted(status);
}

}  // namespace

CommunicatorLeases::CommunicatorLeases(const Options& options)
    : options_(options), registry_(options.bounds) {}

void CommunicatorLeases::Want(const std::string& user, std::vector<CommunicatorKey> keys,
                              OnAnswer on_answer) {
  std::set<std::string> gpus;
  for (const CommunicatorKey& key : keys) {
    for (const RankName& rank : key.ranks) gpus.insert(rank.gpu);
  }
  leases_[user] = {.keys = std::move(keys), .on_answer = std::move(on_answer)};
  if (turns_.Enter(user, std::move(gpus))) TakeTurn(user);
}

void CommunicatorLeases::TakeTurn(const std::string& user) {
  const std::vector<CommunicatorKey> keys = leases_.at(user).keys;
  for (const CommunicatorKey& key : keys) {
    if (leases_.at(user).on_answer == nullptr) return;  // one was refused
    Feed(CommunicatorWanted{user, key});
  }
}

void CommunicatorLeases::Release(const std::string& user) {
  const auto lease = leases_.extract(user);
  if (lease.empty()) return;
  for (const CommunicatorKey& key : lease.mapped().keys) Feed(CommunicatorReleased{user, key});
  LeaveGpus(user);
}

void CommunicatorLeases::LeaveGpus(const std::string& user) {
  for (const std::string& next : turns_.Leave(user)) {
    // Not before the actions that brought us here are carried out.
    options_.queue.Post([this, next] {
      if (leases_.contains(next)) TakeTurn(next);
    });
  }
}

void CommunicatorLeases::Broken(const std::string& user, const RankName& rank,
                                const absl::Status& status) {
  const auto lease = leases_.find(user);
  if (lease == leases_.end()) return;
  for (const CommunicatorKey& key : lease->second.keys) {
    if (std::ranges::find(key.ranks, rank) == key.ranks.end()) continue;
    if (!lease->second.ended.contains(key)) return Feed(RankFailed{key, rank, status});
  }
}

void CommunicatorLeases::OnProcessLost(const RankName& process, const absl::Status& why) {
  options_.queue.Post([this, process, why] { LoseProcess(process, why); });
}

void CommunicatorLeases::LoseProcess(const RankName& process, const absl::Status& why) {
  std::vector<CommunicatorKey> keys;
  for (const auto& [key, order] : orders_) {
    if (std::ranges::find(key.ranks, process) != key.ranks.end()) keys.push_back(key);
  }
  // Nothing more is to be expected of these orders: the registry makes others of the loss.
  for (const CommunicatorKey& key : keys) Forget(key);
  std::erase_if(stops_, [&](const auto& stop) { return stop.first.second == process; });
  Feed(ProcessLost{process, why});
}

void CommunicatorLeases::Feed(const CommunicatorEvent& event) {
  for (const CommunicatorAction& action : registry_.Handle(event)) {
    std::visit([this](const auto& a) { Do(a); }, action);
  }
  CountCommunicators();
}

void CommunicatorLeases::Do(const CollectPreflights& action) {
  making_since_ = options_.clock.Monotonic();
  Order<PreflightReport>(
      action.key, {.limit = kAnswerLimit},
      [this](const std::string& address, const CommunicatorRank& at, auto on_answer) {
        options_.gateway.GetPreflight(address, at, std::move(on_answer));
      },
      [this](const CommunicatorRank& at, PreflightReport report) {
        OnPreflight(at, std::move(report));
      });
}

void CommunicatorLeases::OnPreflight(const CommunicatorRank& at, PreflightReport report) {
  if (report.rank != NameOf(at)) {
    return Fail(at, absl::UnavailableError(
                        absl::StrCat("another process reports: ", report.rank.ToString())));
  }
  OpenOrder& order = orders_.at(at.key);
  order.reports.resize(at.key.ranks.size());
  order.reports[at.rank] = std::move(report);
  if (!order.unanswered.empty()) return;
  PreflightsCollected collected = {at.key, std::move(order.reports)};
  Forget(at.key);
  Feed(collected);
}

void CommunicatorLeases::Do(const MintId& action) {
  Order<std::string>(
      action.key, {.limit = kAnswerLimit, .first_rank_only = true},
      [this](const std::string& address, const CommunicatorRank& at, auto on_answer) {
        options_.gateway.MintId(address, at, std::move(on_answer));
      },
      [this](const CommunicatorRank& at, std::string id) {
        Forget(at.key);
        Feed(IdMinted{at.key, std::move(id)});
      });
}

void CommunicatorLeases::Do(const CreateCommunicator& action) {
  Order<int64_t>(
      action.key, {.limit = kCreateLimit},
      [&](const std::string& address, const CommunicatorRank& at, auto on_answer) {
        options_.gateway.Create(
            address, {.at = at, .ticket = action.ticket, .id = action.id, .timeout = kCreateLimit},
            std::move(on_answer));
      },
      [this](const CommunicatorRank& at, int64_t bytes) { OnReady(at, bytes); });
}

void CommunicatorLeases::OnReady(const CommunicatorRank& at, int64_t bytes) {
  if (orders_.at(at.key).unanswered.empty()) {
    Forget(at.key);
    const absl::Duration time = options_.clock.Monotonic() - making_since_;
    options_.metrics.CommunicatorMade(time);
    LogInfo("communicator_made", {{"communicator", at.key.ToString()},
                                  {"ranks", at.key.ranks.size()},
                                  {"seconds", absl::ToDoubleSeconds(time)}});
  }
  Feed(RankReady{at.key, NameOf(at), bytes});
}

void CommunicatorLeases::Do(const DestroyCommunicator& action) {
  Order<std::monostate>(
      action.key, {.limit = kDestroyLimit},
      [&](const std::string& address, const CommunicatorRank& at, auto on_answer) {
        options_.gateway.Destroy(
            address, {.at = at, .ticket = action.ticket, .timeout = kDestroyLimit},
            [on_answer = std::move(on_answer)](const absl::Status& status) mutable {
              if (IsGone(status)) return on_answer(std::monostate());
              on_answer(status);
            });
      },
      [this](const CommunicatorRank& at, std::monostate) {
        if (orders_.at(at.key).unanswered.empty()) Forget(at.key);
        Feed(RankGone{at.key, NameOf(at)});
      });
}

void CommunicatorLeases::Do(const StopCommunicator& action) {
  Forget(action.key);
  LogWarning("communicator_stopped",
             {{"communicator", action.key.ToString()}, {"reason", action.cause.message()}});
  for (const RankName& name : action.ranks) {
    const auto found = std::ranges::find(action.key.ranks, name);
    const auto rank = static_cast<int32_t>(found - action.key.ranks.begin());
    stops_[{action.key, name}] = ++last_order_;
    StopRank({action.key, rank}, last_order_, std::string(action.cause.message()));
  }
}

void CommunicatorLeases::StopRank(const CommunicatorRank& at, uint64_t order,
                                  const std::string& reason) {
  if (!IsStopping(at, order)) return;
  const auto place = options_.workers.FindGpuProcess(NameOf(at));
  if (!place.has_value()) {
    return OnProcessLost(NameOf(at), absl::UnavailableError("it is on no live worker"));
  }
  options_.gateway.Stop(
      place->execution_address, at, reason, [this, at, order, reason](const absl::Status& status) {
        options_.queue.Post([this, at, order, reason, is_gone = IsGone(status)] {
          if (!IsStopping(at, order)) return;
          if (is_gone) {
            stops_.erase({at.key, NameOf(at)});
            return Feed(RankGone{at.key, NameOf(at)});
          }
          options_.queue.PostAfter(kStopPause,
                                   [this, at, order, reason] { StopRank(at, order, reason); });
        });
      });
}

bool CommunicatorLeases::IsStopping(const CommunicatorRank& at, uint64_t order) const {
  const auto found = stops_.find({at.key, NameOf(at)});
  return found != stops_.end() && found->second == order;
}

void CommunicatorLeases::Do(const GrantLease& action) {
  const auto found = leases_.find(action.user);
  if (found == leases_.end()) return;  // it is being released
  Lease& lease = found->second;
  lease.granted.insert(action.key);
  if (lease.granted.size() < lease.keys.size() || lease.on_answer == nullptr) return;
  options_.queue.Post([on_answer = std::exchange(lease.on_answer, nullptr)]() mutable {
    on_answer(absl::OkStatus());
  });
}

// Its user hears of its end from the tasks that run over it.
void CommunicatorLeases::Do(const EndLease& action) {
  const auto found = leases_.find(action.user);
  if (found == leases_.end()) return;  // it is being released
  Lease& lease = found->second;
  lease.ended.insert(action.key);
  if (lease.on_answer == nullptr) return;
  // The others that it has or waits for are of no use to it.
  options_.queue.Post([this, user = action.user, cause = action.cause,
                       on_answer = std::exchange(lease.on_answer, nullptr)]() mutable {
    Release(user);
    on_answer(cause);
  });
}

template <typename Value, typename Ask, typename OnValue>
void CommunicatorLeases::Order(const CommunicatorKey& key, const OrderOptions& options, Ask ask,
                               OnValue on_value) {
  Forget(key);
  OpenOrder& order = orders_[key];
  order.number = ++last_order_;
  const auto ranks = options.first_rank_only ? 1 : static_cast<int32_t>(key.ranks.size());
  for (int32_t rank = 0; rank < ranks; ++rank) order.unanswered.insert(rank);
  order.limit = options_.queue.PostAfter(
      options.limit,
      [this, key, number = order.number, limit = options.limit] { OnLimit(key, number, limit); });
  for (int32_t rank = 0; rank < ranks; ++rank) Call<Value>({key, rank}, ask, on_value);
}

void CommunicatorLeases::Forget(const CommunicatorKey& key) {
  const auto order = orders_.extract(key);
  if (!order.empty()) options_.queue.Cancel(order.mapped().limit);
}

void CommunicatorLeases::OnLimit(const CommunicatorKey& key, uint64_t order, absl::Duration limit) {
  const auto found = orders_.find(key);
  if (found == orders_.end() || found->second.number != order) return;
  const CommunicatorRank at = {key, *found->second.unanswered.begin()};
  const auto place = options_.workers.FindGpuProcess(NameOf(at));
  Fail(at, AboutWorker(place.has_value() ? place->worker : "",
                       absl::DeadlineExceededError(absl::StrCat("expected an answer within ",
                                                                absl::FormatDuration(limit)))));
}

template <typename Value, typename Ask, typename OnValue>
void CommunicatorLeases::Call(const CommunicatorRank& at, const Ask& ask, OnValue on_value) {
  const auto place = options_.workers.FindGpuProcess(NameOf(at));
  const std::string worker = place.has_value() ? place->worker : "";
  // Always through the queue: the registry must not be fed from inside its own actions.
  auto on_answer = [this, at, number = orders_.at(at.key).number, worker,
                    on_value = std::move(on_value)](absl::StatusOr<Value> value) mutable {
    options_.queue.Post([this, at, number, worker, on_value = std::move(on_value),
                         value = std::move(value)]() mutable {
      const auto order = orders_.find(at.key);
      if (order == orders_.end() || order->second.number != number) return;
      if (order->second.unanswered.erase(at.rank) == 0) return;
      if (!value.ok()) return Fail(at, AboutWorker(worker, value.status()));
      on_value(at, *std::move(value));
    });
  };
  if (!place.has_value()) return on_answer(absl::UnavailableError("it is on no live worker"));
  ask(place->execution_address, at, std::move(on_answer));
}

void CommunicatorLeases::Fail(const CommunicatorRank& at, const absl::Status& status) {
  Forget(at.key);
  Feed(RankFailed{at.key, NameOf(at), status});
}

void CommunicatorLeases::CountCommunicators() {
  const CommunicatorRegistry::Counts counts = registry_.counts();
  options_.metrics.SetCommunicators(CommunicatorStateLabel::kMaking, counts.making);
  options_.metrics.SetCommunicators(CommunicatorStateLabel::kReady, counts.ready);
  options_.metrics.SetCommunicators(CommunicatorStateLabel::kEnding, counts.ending);
}

}  // namespace crossmesh
