#pragma once

#include "client/outcome.h"
#include "common/mesh/manifest.h"
#include "crossmesh/v1/controller_service.pb.h"
#include "crossmesh/v1/manifest_service.pb.h"
#include "crossmesh/v1/mesh_service.pb.h"
#include "crossmesh/v1/network_service.pb.h"
#include "crossmesh/v1/operation_service.pb.h"
#include "crossmesh/v1/pipeline_service.pb.h"
#include "crossmesh/v1/reshard_service.pb.h"
#include "crossmesh/v1/worker_service.pb.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <google/protobuf/repeated_ptr_field.h>

namespace grpc {
class ClientContext;
class Status;
}  // namespace grpc

namespace crossmesh {

class Backoff;
struct FollowerOptions;

struct ClientOptions {
  bool insecure = false;  // allows an address that is not local
  // Of each call that answers once.
  absl::Duration call_timeout = absl::Seconds(30);
  // How long a call that may be repeated is tried again while the controller is unavailable; if not
  // given, 5 s, and 15 s with several controllers, of which the next one may have to be elected.
  std::optional<absl::Duration> retry_for;
  // The same while an operation is followed; it goes on meanwhile.
  absl::Duration follow_for = absl::Minutes(1);
  // The most of the time that a call takes, with all its attempts; of one that follows something,
  // until that has ended: DeadlineExceeded then, while it goes on.
  absl::Duration timeout = absl::InfiniteDuration();
};

// A controller's services as blocking calls. Every call has a deadline. A call that the server or
// the connection cut (Unavailable, or a Cancelled that this client did not ask for, which becomes
// Unavailable) is made again when making it twice does no harm. Errors are the controller's own;
// those of the connection name its address. Of several controllers it finds the one that leads.
// Thread-safe.
class Client {
 public:
  // Connects at the first call. `address`: as ParseAddressList. InvalidArgument: one is malformed,
  // or not local without `insecure`.
  static absl::StatusOr<Client> Connect(const std::string& address, const ClientOptions& options);

  Client(Client&& other) noexcept;
  Client& operator=(Client&& other) noexcept;
  ~Client();

  const std::string& address() const { return address_; }

  // AlreadyExists when the name is taken by another mesh. Returns the revision, as PutManifest
  // does.
  absl::StatusOr<int64_t> CreateMesh(const v1::Mesh& mesh);
  absl::StatusOr<v1::GetMeshResponse> GetMesh(const std::string& name);
  // All pages; by name.
  absl::StatusOr<std::vector<v1::Mesh>> ListMeshes();
  // NotFound. `revision` 0: any.
  absl::Status DeleteMesh(const std::string& name, int64_t revision = 0);

  // Streamed in messages of bounded size. AlreadyExists when the name is taken by another manifest.
  absl::StatusOr<v1::PutManifestResponse> PutManifest(const std::string& name,
                                                      const Manifest& manifest);
  absl::StatusOr<Manifest> GetManifest(const std::string& name);
  absl::StatusOr<std::vector<v1::ListManifestsResponse::Entry>> ListManifests();
  absl::Status DeleteManifest(const std::string& name, int64_t revision = 0);

  // The description that plans are made for.
  absl::StatusOr<v1::Network> GetNetwork();
  // InvalidArgument names what is wrong in the description. Returns what is current now. With a
  // revision, that of the one that it takes the place of: Aborted when another one is there.
  absl::StatusOr<v1::Network> SetNetwork(const v1::SetNetworkRequest& request);
  // Probes the links between workers, and makes what is found the current description.
  // `on_progress` is called by this thread. Made once; NetworkService has the errors.
  using OnMeasured = absl::FunctionRef<void(const v1::MeasureNetworkResponse::Progress&)>;
  absl::StatusOr<v1::MeasureNetworkResponse::Result> MeasureNetwork(
      const v1::MeasureNetworkRequest& request, OnMeasured on_progress);

  // Measures what the workers' GPUs cost, for the current description. It may have to wait for
  // operations. Made once; NetworkService has the errors.
  absl::StatusOr<v1::CalibrateGpusResponse> CalibrateGpus(const v1::CalibrateGpusRequest& request);

  // Plans and proves without executing.
  absl::StatusOr<v1::PlanReshardResponse> Plan(const v1::PlanReshardRequest& request);

  using OnChange = absl::FunctionRef<void(const v1::Operation&)>;
  // Does it once, and follows it to its end; `on_change` is called at every change, by this thread.
  // A stream that is cut is taken up again: by the request id until the operation is known,
  // by WatchOperation then. Returns the operation as it ended, also when it failed: see its state.
  // An error is that of a request that was refused, or of a controller that stayed away for longer
  // than `follow_for`, while the operation may go on.
  absl::StatusOr<v1::Operation> Execute(const v1::ExecuteReshardRequest& request,
                                        OnChange on_change);
  // Does it once, and returns the operation as it begins. Errors are those of a request that was
  // refused.
  absl::StatusOr<v1::Operation> Start(const v1::ExecuteReshardRequest& request);
  // Follows an operation to its end in the same way. NotFound.
  absl::StatusOr<v1::Operation> Watch(const std::string& id, OnChange on_change);
  absl::StatusOr<v1::Operation> GetOperation(const std::string& id);
  // Newest first, at most `count`.
  absl::StatusOr<std::vector<v1::Operation>> ListOperations(int64_t count);
  absl::Status CancelOperation(const std::string& id, const std::string& reason);

  // AlreadyExists when the name is taken by another pipeline. Returns the revision.
  absl::StatusOr<int64_t> CreatePipeline(const v1::PipelineSpec& pipeline);
  absl::StatusOr<v1::PipelineSpec> GetPipeline(const std::string& name);
  // All pages; by name.
  absl::StatusOr<std::vector<v1::PipelineSpec>> ListPipelines();
  absl::Status DeletePipeline(const std::string& name);
  // Plans and proves without running.
  absl::StatusOr<v1::PipelinePlan> PlanPipeline(const v1::PlanPipelineRequest& request);

  using OnRunChange = absl::FunctionRef<void(const v1::PipelineRun&)>;
  // Runs it once, and follows the run to its end as Execute does an operation: returns it as it
  // ended, also when it failed.
  absl::StatusOr<v1::PipelineRun> StartPipeline(const v1::StartPipelineRequest& request,
                                                OnRunChange on_change);
  // Follows a run to its end in the same way. NotFound.
  absl::StatusOr<v1::PipelineRun> WatchPipelineRun(const std::string& id, OnRunChange on_change);
  // As it is now. NotFound.
  absl::StatusOr<v1::PipelineRun> GetPipelineRun(const std::string& id);
  // Newest first, at most `count`, without measurements and schedules.
  absl::StatusOr<std::vector<v1::PipelineRun>> ListPipelineRuns(int64_t count);
  // The run ends after the iteration that runs, or at once with `now`; returns without waiting for
  // that. NotFound.
  absl::Status StopPipelineRun(const std::string& id, bool now);

  // The controller itself, and how its store does.
  absl::StatusOr<v1::Controller> GetController();
  // The newest lines of its log, oldest first.
  absl::StatusOr<std::vector<std::string>> ListLogLines(int32_t count);
  // Of the next three FailedPrecondition: its store is in no folder. The file, on its machine, of a
  // new copy.
  absl::StatusOr<std::string> BackUpStore();
  // The revision that was verified at least; DataLoss.
  absl::StatusOr<int64_t> VerifyStore();
  absl::Status ReleaseStoreReserve();

  // By name.
  absl::StatusOr<std::vector<v1::Worker>> ListWorkers();
  absl::Status DrainWorker(const std::string& name);
  // NotFound; FailedPrecondition: the worker leaves of its own.
  absl::Status UndrainWorker(const std::string& name);
  // NotFound: there is no live one.
  absl::Status EvictWorker(const std::string& name);
  // NotFound; FailedPrecondition: it is not lost.
  absl::Status ForgetWorker(const std::string& name);

 private:
  // Apart, so that users read no headers of gRPC.
  struct Stubs;
  class Controllers;

  Client(std::string address, const ClientOptions& options,
         std::unique_ptr<Controllers> controllers);

  // Between attempts, which start over at another time for each client.
  Backoff NewBackoff() const;
  FollowerOptions OptionsFor(absl::string_view noun) const;
  // By the request, or by the id when there is none.
  absl::StatusOr<v1::Operation> FollowOperation(const v1::ExecuteReshardRequest* request,
                                                const std::string& id, OnChange on_change);
  absl::StatusOr<v1::PipelineRun> FollowPipelineRun(const v1::StartPipelineRequest* request,
                                                    const std::string& id, OnRunChange on_change);

  // What to answer for the status of one attempt.
  absl::Status Explain(const absl::Status& status) const;
  // The same of a request that may have been refused since the controller is of a release before
  // `later`, e.g. "redistributions"; empty: everything in it is known to all.
  absl::Status ExplainRefusal(const absl::Status& status, absl::string_view later);
  // Runs `attempt` once, and again while it is Unavailable and there is time.
  absl::Status Retry(absl::FunctionRef<absl::Status(Stubs&)> attempt) const;
  template <typename Stub, typename Request, typename Response>
  using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Response*);
  template <typename Stub>
  using Service = const std::unique_ptr<Stub> Stubs::*;
  template <typename Stub, typename Request, typename Response>
  auto Attempt(Service<Stub> service, Method<Stub, Request, Response> method,
               const Request& request, Response& response) const;
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> CallOnce(Service<Stub> service, Method<Stub, Request, Response> method,
                                    const Request& request) const;
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Service<Stub> service, Method<Stub, Request, Response> method,
                                const Request& request) const;

  // The first `count` items that a method lists, page by page.
  template <typename Item, typename Stub, typename Request, typename Response>
  absl::StatusOr<std::vector<Item>> Pages(
      Service<Stub> service, Method<Stub, Request, Response> method,
      const google::protobuf::RepeatedPtrField<Item>& (Response::*items)() const,
      int64_t count = std::numeric_limits<int64_t>::max()) const;

  std::string address_;
  ClientOptions options_;
  std::unique_ptr<Controllers> controllers_;
};

// A request id that is never used again: 128 random bits.
std::string NewRequestId();

}  // namespace crossmesh
