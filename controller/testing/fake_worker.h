#pragma once

#include "common/base/mutex.h"
#include "common/communicators/communicator_key.h"
#include "common/plan/worker_part.h"
#include "common/rpc/server.h"
#include "controller/testing/fake_communicators.h"
#include "controller/testing/fake_probes.h"
#include "controller/testing/fake_programs.h"
#include "crossmesh/v1/execution_service.grpc.pb.h"
#include "crossmesh/v1/worker_service.grpc.pb.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// A worker that moves nothing: it registers with a controller, serves Execute, RunProgram and
// probes of its one interface "eth0", and says what a worker says. Thread-safe.
class FakeWorker final : public v1::ExecutionService::CallbackService {
 public:
  // What it does with a task that it is given.
  enum class Manner {
    kDiligent,  // accepts, and is done at once
    kHolding,   // accepts, and does no more until told
    kRefusing,  // ends the call with FailedPrecondition
  };

  struct Options {
    std::string folder;
    std::string name;
    std::string devices;
    std::string controller;       // address
    std::optional<RankName> gpu;  // the first device
  };
  // Serves at `folder`/NAME.sock, and joins the controller.
  explicit FakeWorker(Options options);
  // As Vanish.
  ~FakeWorker() override;

  void SetManner(Manner manner);
  // Held tasks go on.
  void Release();
  // Another session, with the controller that is there now.
  void Rejoin();
  // As a process that dies: the session and all calls break.
  void Vanish();
  // Says goodbye, then as Vanish. Returns when the controller knows.
  void Leave();
  void SendHeartbeat(const std::string& operation_id, int64_t moved_bytes);
  // Tells which process drives the GPU now.
  void SendGpuHeartbeat();
  // Waits until the session has a message, and returns it; an error when it has ended.
  absl::StatusOr<v1::WorkerSessionResponse> ReadSession();

  FakeProbes& probes() { return probes_; }
  FakePrograms& programs() { return programs_; }
  FakeCommunicators& communicators() { return communicators_; }
  // The last start of a task.
  v1::ExecuteRequest::Start last_start() const;

  // Since the start.
  struct Counts {
    int calls = 0;
    int parts = 0;  // that were sent
    int commits = 0;
    int abandons = 0;
    int cancels = 0;
    int acknowledgements = 0;
    int adoptions = 0;
  };
  Counts counts() const;
  // Waits until as many tasks are held.
  void WaitUntilHolding(int tasks);

  grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>* Execute(
      grpc::CallbackServerContext* context) override;

 private:
  class Call;
  class Session;

  v1::WorkerSessionRequest::Register Registration() const;
  v1::WorkerSessionRequest Heartbeat() const;

  const Options options_;
  const std::string address_;
  FakeProbes probes_;
  FakePrograms programs_;
  FakeCommunicators communicators_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::shared_ptr<Session> session_;

  mutable Mutex mutex_;
  CondVar holding_;
  Manner manner_ ABSL_GUARDED_BY(mutex_) = Manner::kDiligent;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  v1::ExecuteRequest::Start last_start_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Call>> held_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::shared_ptr<const WorkerPart>> parts_
      ABSL_GUARDED_BY(mutex_);
  // Digests of the parts of accepted tasks, by operation.
  absl::flat_hash_map<uint64_t, std::string> tasks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
