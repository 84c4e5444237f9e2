#include "tests/benchmark/plan_overload.h"

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/push_back.h"
#include "common/rpc/status_codec.h"
#include "crossmesh/v1/reshard_service.grpc.pb.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <absl/status/status.h>
#include <absl/time/time.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kConnectMax = absl::Seconds(10);

using Stub = v1::ReshardService::Stub;

// Stubs with connections that no other one has, which are there.
std::vector<std::unique_ptr<Stub>> Connect(const std::string& address, int clients) {
  std::vector<std::unique_ptr<Stub>> stubs;
  for (int i = 0; i < clients; ++i) {
    auto channel = BuildRpcChannel({.address = address, .session = true});
    CHECK_OK(channel);
    CHECK(AwaitConnection(**channel, kConnectMax));
    stubs.push_back(v1::ReshardService::NewStub(*channel));
  }
  return stubs;
}

// What became of requests. Thread-safe.
class Answers {
 public:
  explicit Answers(absl::Duration until) : until_(until) {}

  void Ask(Stub& stub, v1::PlanReshardRequest request) {
    auto call = std::make_shared<Call>();
    call->request = std::move(request);
    call->begin = clock_.Monotonic();
    SetDeadline(call->context, absl::Minutes(2));
    {
      const MutexLock lock(mutex_);
      ++open_;
    }
    stub.async()->PlanReshard(
        &call->context, &call->request, &call->response,
        [this, call](const grpc::Status& status) { End(*call, FromGrpcStatus(status)); });
  }

  void WaitUntil(absl::Duration time) {
    const MutexLock lock(mutex_);
    for (auto left = Left(time); left > absl::ZeroDuration(); left = Left(time)) {
      never_.WaitFor(mutex_, left);
    }
  }

  // When all have ended.
  PlanOverload::Outcome Take() {
    const MutexLock lock(mutex_);
    while (open_ > 0) ended_.Wait(mutex_);
    return std::move(outcome_);
  }

 private:
  struct Call {
    grpc::ClientContext context;
    v1::PlanReshardRequest request;
    v1::PlanReshardResponse response;
    absl::Duration begin;
  };

  absl::Duration Left(absl::Duration time) const { return time - clock_.Monotonic(); }

  void End(const Call& call, const absl::Status& status) {
    const absl::Duration now = clock_.Monotonic();
    const MutexLock lock(mutex_);
    if (status.ok()) {
      if (now <= until_) ++outcome_.per_second;  // a count, until it is told
    } else {
      CHECK(absl::IsResourceExhausted(status)) << status;
      const auto push_back = PushBackOf(status);
      CHECK(push_back.has_value()) << status;
      outcome_.refused.push_back(absl::ToDoubleSeconds(now - call.begin));
      outcome_.told.push_back(absl::ToDoubleSeconds(*push_back));
    }
    if (--open_ == 0) ended_.Signal();
  }

  const RealClock clock_;
  const absl::Duration until_;
  Mutex mutex_;
  CondVar never_;
  CondVar ended_;
  int64_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  PlanOverload::Outcome outcome_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

PlanOverload::Outcome PlanOverload::Run(
    absl::FunctionRef<v1::PlanReshardRequest(int64_t)> next) const {
  const std::vector<std::unique_ptr<Stub>> stubs = Connect(address, clients);
  // Before the first is sent: to make one takes longer than to send it.
  std::vector<v1::PlanReshardRequest> requests(static_cast<size_t>(per_second * seconds));
  for (size_t i = 0; i < requests.size(); ++i) requests[i] = next(static_cast<int64_t>(i));
  const RealClock clock;
  const absl::Duration begin = clock.Monotonic();
  Answers answers(begin + absl::Seconds(seconds));
  double latest = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const absl::Duration due = begin + absl::Seconds(static_cast<double>(i) / per_second);
    answers.WaitUntil(due);
    latest = std::max(latest, absl::ToDoubleSeconds(clock.Monotonic() - due));
    answers.Ask(*stubs[i % stubs.size()], std::move(requests[i]));
  }
  Outcome outcome = answers.Take();
  outcome.per_second /= seconds;
  outcome.latest = latest;
  return outcome;
}

}  // namespace crossmesh
