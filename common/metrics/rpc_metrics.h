#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// What a server tells about its calls. Implementations are thread-safe, never block, and leave out
// methods that they do not know.
class RpcMetrics {
 public:
  virtual ~RpcMetrics() = default;

  // `service` and `method` as in "crossmesh.v1.MeshService" and "GetMesh".
  virtual void CallStarted(absl::string_view service, absl::string_view method) = 0;
  // Once for each CallStarted. A call whose client went away has the code kCancelled.
  virtual void CallEnded(absl::string_view service, absl::string_view method, absl::StatusCode code,
                         absl::Duration duration) = 0;
};

class NullRpcMetrics final : public RpcMetrics {
 public:
  void CallStarted(absl::string_view /*service*/, absl::string_view /*method*/) override {}
  void CallEnded(absl::string_view /*service*/, absl::string_view /*method*/,
                 absl::StatusCode /*code*/, absl::Duration /*duration*/) override {}
};

}  // namespace crossmesh
