#pragma once

#include "client/client.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/testing/patience.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {

// A client that makes one call after the other. Thread-safe.
class SteadyClient {
 public:
  // Gets the number of the call.
  using Call = std::function<absl::Status(Client&, int)>;

  SteadyClient(std::string addresses, Call call)
      : addresses_(std::move(addresses)),
        call_(std::move(call)),
        thread_("steady", [this] { Run(); }) {}
  ~SteadyClient() { Stop(); }
  SteadyClient(const SteadyClient&) = delete;
  SteadyClient& operator=(const SteadyClient&) = delete;

  int done() const { return done_; }
  // So that a call that began after this has ended.
  void AwaitAnother() const {
    const int before = done_;
    for (const Patience patience; done_ < before + 2;) patience.Check();
  }
  void Stop() {
    stopped_ = true;
    thread_.Join();
  }
  std::vector<std::string> failures() const {
    const MutexLock lock(mutex_);
    return failures_;
  }
  absl::Duration worst() const {
    const MutexLock lock(mutex_);
    return worst_;
  }

 private:
  void Run() {
    absl::StatusOr<Client> client = Client::Connect(addresses_, {});
    for (int number = 0; !stopped_; ++number) {
      const absl::Duration begin = clock_.Monotonic();
      const absl::Status status = client.ok() ? call_(*client, number) : client.status();
      const absl::Duration took = clock_.Monotonic() - begin;
      ++done_;
      const MutexLock lock(mutex_);
      worst_ = std::max(worst_, took);
      if (!status.ok()) failures_.push_back(absl::StrCat(number, ": ", status.ToString()));
    }
  }

  const std::string addresses_;
  const Call call_;
  const RealClock clock_;
  std::atomic<bool> stopped_ = false;
  std::atomic<int> done_ = 0;
  mutable Mutex mutex_;
  std::vector<std::string> failures_ ABSL_GUARDED_BY(mutex_);
  absl::Duration worst_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;  // last: it uses the others
};

}  // namespace crossmesh
