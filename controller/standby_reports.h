#pragma once

#include "common/base/mutex.h"
#include "common/base/thread.h"

#include <functional>
#include <optional>
#include <string>

#include <absl/base/thread_annotations.h>
#include <absl/time/time.h>

namespace grpc {
class ClientContext;
}  // namespace grpc

namespace crossmesh {

// Tells the controller that leads, again and again, that this one stands by, so that its operators
// know who would take over. What cannot be told is not: the leader may be gone. Thread-safe.
class StandbyReports {
 public:
  struct Options {
    std::string address;  // of this one
    bool insecure = false;
    absl::Duration interval = absl::Seconds(2);
    // The address of the one that leads, if that is known; must not block. Outlives this.
    std::function<std::optional<std::string>()> leader;
  };

  explicit StandbyReports(Options options);
  // Breaks off what is being told.
  ~StandbyReports();

 private:
  void Run();
  void TellOnce(const std::string& leader);
  // False: it is to stop, and the call must not begin.
  bool SetCall(grpc::ClientContext* call);

  const Options options_;
  Mutex mutex_;
  CondVar stopping_changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // under way
  Thread thread_;                                                // last: it uses the others
};

}  // namespace crossmesh
