#pragma once

#include "common/base/cancel_check.h"
#include "common/base/digest.h"
#include "common/base/mutex.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/functional/any_invocable.h>
#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Work by digest, of which what is wanted twice at once is done once. Thread-safe.
template <typename T>
class SingleFlight {
 public:
  using Result = absl::StatusOr<std::shared_ptr<const T>>;
  struct Wanted {
    std::function<bool()> cancelled;  // cheap, see CancelCheck
    absl::AnyInvocable<void(const Result&)> done;
  };

  // Calls `done` with what `work` returns: on this thread, or later on another one that does the
  // same work already. Work goes on until it is not wanted by any call that waits for it.
  void Do(const Digest& key, Wanted wanted, absl::FunctionRef<Result(CancelCheck)> work) {
    const auto flight = std::make_shared<Flight>();
    {
      const MutexLock lock(mutex_);
      const auto [present, is_new] = flights_.try_emplace(key, flight);
      present->second->push_back(std::move(wanted));
      if (!is_new) return;
    }
    const Result result = work([&] { return GivenUp(key, flight); });
    Flight told;
    {
      const MutexLock lock(mutex_);
      Erase(key, flight);
      told.swap(*flight);
    }
    for (Wanted& each : told) each.done(result);
  }

 private:
  using Flight = std::vector<Wanted>;
  using FlightPointer = std::shared_ptr<Flight>;

  // Then the next one that wants the same begins anew.
  bool GivenUp(const Digest& key, const FlightPointer& flight) {
    const MutexLock lock(mutex_);
    const auto is_cancelled = [](const Wanted& wanted) { return wanted.cancelled(); };
    if (!std::ranges::all_of(*flight, is_cancelled)) return false;
    Erase(key, flight);
    return true;
  }

  void Erase(const Digest& key, const FlightPointer& flight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = flights_.find(key);
    if (found != flights_.end() && found->second == flight) flights_.erase(found);
  }

  Mutex mutex_;
  absl::flat_hash_map<Digest, FlightPointer> flights_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
