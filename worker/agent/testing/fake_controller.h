#pragma once

#include "common/base/mutex.h"
#include "common/rpc/server.h"
#include "common/rpc/server_streams.h"
#include "crossmesh/v1/worker_service.grpc.pb.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// A controller that knows workers' sessions and nothing else. Waits end with false after 20 s.
// Thread-safe.
class FakeController final : public v1::WorkerService::CallbackService {
 public:
  struct Seen {
    v1::WorkerSessionRequest::Register registration;  // the last one
    int registrations = 0;
    int heartbeats = 0;
    int sessions_ended = 0;
    bool left = false;
    v1::WorkerSessionRequest::Heartbeat heartbeat;  // the last one
  };

  static absl::StatusOr<std::unique_ptr<FakeController>> Start(const std::string& address);
  ~FakeController() override;

  const std::string& address() const { return server_->addresses().front(); }
  // Of sessions that register from now on; 50 ms.
  void SetHeartbeatInterval(absl::Duration interval);
  // Sessions that register from now on end with this at once.
  void Refuse(absl::Status status);
  void SendDrain(const std::string& worker);
  void SendUndrain(const std::string& worker);
  void SendOperationsEnded(const std::string& worker, const std::string& operation);
  void EndSession(const std::string& worker, const absl::Status& status);
  // Waits until what was seen of the worker is as wanted.
  bool WaitUntil(const std::string& worker, const std::function<bool(const Seen&)>& wanted);
  Seen seen(const std::string& worker);

  grpc::ServerBidiReactor<v1::WorkerSessionRequest, v1::WorkerSessionResponse>* WorkerSession(
      grpc::CallbackServerContext* context) override;

 private:
  class Session;

  // An error: the session is refused with it.
  absl::Status OnRegister(const std::shared_ptr<Session>& session,
                          const v1::WorkerSessionRequest::Register& registration);
  absl::Duration heartbeat_interval();
  void OnHeartbeat(const std::string& worker, const v1::WorkerSessionRequest::Heartbeat& heartbeat);
  void OnLeave(const std::string& worker);
  void OnSessionEnd(const std::string& worker);
  std::shared_ptr<Session> Find(const std::string& worker);

  std::unique_ptr<RpcServer> server_;

  Mutex mutex_;
  CondVar changed_;
  absl::Duration heartbeat_interval_ ABSL_GUARDED_BY(mutex_) = absl::Milliseconds(50);
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Seen> seen_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
