#include "tests/benchmark/plan_load.h"

#include "client/pause.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "tests/benchmark/half_to_half.h"
#include "tests/benchmark/measure.h"

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

PlanLoad::Outcome PlanLoad::Run(int clients, double seconds, Plans plans) {
  Outcome outcome;
  Mutex mutex;
  std::atomic<bool> stop = false;
  {
    std::vector<Thread> threads;
    for (int i = 0; i < clients; ++i) {
      threads.emplace_back("plans", [&] {
        const Outcome mine = RunClient(stop, plans);
        const MutexLock lock(mutex);
        outcome.answered.insert(outcome.answered.end(), mine.answered.begin(), mine.answered.end());
        outcome.beside.insert(outcome.beside.end(), mine.beside.begin(), mine.beside.end());
      });
    }
    Pause(absl::Seconds(seconds));
    stop = true;
  }
  outcome.per_second = static_cast<double>(outcome.answered.size()) / seconds;
  return outcome;
}

v1::PlanReshardRequest PlanLoad::NewPlan() { return NumberedPlan(next_++, matrices_); }

PlanLoad::Outcome PlanLoad::RunClient(const std::atomic<bool>& stop, Plans plans) {
  absl::StatusOr<Client> client = Client::Connect(address_, {.call_timeout = absl::Minutes(2)});
  CHECK_OK(client);
  const v1::PlanReshardRequest same = NumberedPlan(0, matrices_);
  Outcome mine;
  while (!stop) {
    const v1::PlanReshardRequest request = plans == Plans::kNew ? NewPlan() : same;
    double planned = 0;
    const double seconds = SecondsOf([&] {
      const auto response = client->Plan(request);
      CHECK_OK(response);
      planned = response->summary().plan_seconds();
    });
    if (stop) break;
    mine.answered.push_back(seconds);
    mine.beside.push_back(seconds - planned);
  }
  return mine;
}

}  // namespace crossmesh
