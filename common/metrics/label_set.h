#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include <absl/strings/string_view.h>

namespace crossmesh {

// The values of metric labels, closed sets all. An enumerator's label value stands at its place in
// the array after it. No label ever carries an id or a text of a user.

// `link` tells what the bytes went through; the pair with the transport is what metrics carry,
// since only these pairs occur. kInprocessLocal also counts copies inside one worker.
enum class TransportLink { kSocketShm, kSocketTcp, kUcxShm, kUcxTcp, kUcxRdma, kInprocessLocal };
enum class TransportKind { kSocket, kUcx, kInprocess };
inline constexpr absl::string_view kTransports[] = {"socket", "ucx", "inprocess"};
inline constexpr absl::string_view kLinks[] = {"local", "shm", "tcp", "rdma"};
inline constexpr absl::string_view kTransportLinks[][2] = {
    {"socket", "shm"}, {"socket", "tcp"}, {"ucx", "shm"},
    {"ucx", "tcp"},    {"ucx", "rdma"},   {"inprocess", "local"}};
// Nothing for a pair that does not occur.
std::optional<TransportLink> FindTransportLink(absl::string_view transport, absl::string_view link);
TransportKind TransportOf(TransportLink link);

inline constexpr absl::string_view kDirections[] = {"send", "recv"};

enum class TransferPhase { kBind, kMove, kPack, kUnpack, kChecksum };
inline constexpr absl::string_view kTransferPhases[] = {"bind", "move", "pack", "unpack",
                                                        "checksum"};

// A worker's part in a relay; kCopy is inside the worker.
enum class RelayKind { kRoot, kForward, kLeaf, kCopy };
inline constexpr absl::string_view kRelayKinds[] = {"root", "forward", "leaf", "copy"};
enum class RelayResult { kSucceeded, kFailed, kAborted };
inline constexpr absl::string_view kRelayResults[] = {"succeeded", "failed", "aborted"};

enum class CommandRejection {
  kStaleEpoch,
  kStaleGeneration,
  kDuplicate,
  kExpired,
  kInvalid,
  kBusy,
};
inline constexpr absl::string_view kCommandRejections[] = {
    "stale_epoch", "stale_generation", "duplicate", "expired", "invalid", "busy"};

enum class ReconnectReason { kEof, kKeepalive, kGoaway, kNotLeader };
inline constexpr absl::string_view kReconnectReasons[] = {"eof", "keepalive", "goaway",
                                                          "not_leader"};

enum class WorkerStateLabel { kReady, kSuspect, kDraining, kLost, kQuarantined };
inline constexpr absl::string_view kWorkerStates[] = {"ready", "suspect", "draining", "lost",
                                                      "quarantined"};

enum class RegistrationResult {
  kAccepted,
  kResumed,
  kRejectedDuplicate,
  kRejectedIdentity,
  kRejectedVersion,
  kThrottled,
};
inline constexpr absl::string_view kRegistrationResults[] = {
    "accepted",          "resumed",          "rejected_duplicate",
    "rejected_identity", "rejected_version", "throttled"};

enum class WorkerLossReason { kHeartbeatTimeout, kStreamClosed, kEvicted };
inline constexpr absl::string_view kWorkerLossReasons[] = {"heartbeat_timeout", "stream_closed",
                                                           "evicted"};

enum class CommunicatorStateLabel { kMaking, kReady, kEnding };
inline constexpr absl::string_view kCommunicatorStates[] = {"making", "ready", "ending"};

// What is remembered of a request that began a job is an object too.
enum class ObjectKind { kMesh, kManifest, kOperation, kOperationRequest, kRun, kRunRequest };
inline constexpr absl::string_view kObjectKinds[] = {
    "mesh", "manifest", "operation", "operation_request", "run", "run_request"};

enum class RunningState { kPreparing, kRunning, kVerifying };
inline constexpr absl::string_view kRunningStates[] = {"preparing", "running", "verifying"};

enum class OperationResult { kCommitted, kPartial, kFailed, kCancelled };
inline constexpr absl::string_view kOperationResults[] = {"committed", "partial", "failed",
                                                          "cancelled"};

enum class StoreOp { kRead, kWrite };
inline constexpr absl::string_view kStoreOps[] = {"read", "write"};
// kAborted: fenced, or a requirement did not hold. kFull: no room, or too many wait.
enum class StoreResult { kSuccess, kAborted, kFull, kUnavailable, kDamaged };
inline constexpr absl::string_view kStoreResults[] = {"success", "aborted", "full", "unavailable",
                                                      "damaged"};
enum class StoreFile { kMain, kLog };
inline constexpr absl::string_view kStoreFiles[] = {"main", "wal"};

enum class ReloadResult { kSuccess, kFailure };
inline constexpr absl::string_view kReloadResults[] = {"success", "failure"};

enum class CacheResult { kHit, kMiss };
inline constexpr absl::string_view kCacheResults[] = {"hit", "miss"};

// What steps of courses do, in the order of StepKind.
inline constexpr absl::string_view kStepKindLabels[] = {
    "slice", "all_gather", "all_to_all", "permute", "reduce_scatter", "all_reduce", "relay"};

// Names of planning strategies, as in PlanFigures::strategy.
inline constexpr absl::string_view kStrategies[] = {"send_recv",
                                                    "local_all_gather",
                                                    "global_all_gather",
                                                    "broadcast_naive",
                                                    "broadcast_size",
                                                    "broadcast_greedy",
                                                    "broadcast_search",
                                                    "relay",
                                                    "m2n",
                                                    "redistribute"};

// Canonical names of status codes, by their number.
inline constexpr absl::string_view kRpcCodes[] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

// Why a server closed a connection that it had accepted: too few descriptors are left, or the
// client has said nothing in time, or too many say nothing.
enum class ConnectionRefusal { kDescriptors, kSilent };
inline constexpr absl::string_view kConnectionRefusals[] = {"descriptors", "silent"};

// Methods whose calls are counted.
struct RpcMethod {
  absl::string_view service;
  absl::string_view method;
};
inline constexpr RpcMethod kControllerMethods[] = {
    {"crossmesh.v1.ControllerService", "BackUpStore"},
    {"crossmesh.v1.ControllerService", "GetController"},
    {"crossmesh.v1.ControllerService", "ListLogLines"},
    {"crossmesh.v1.ControllerService", "ReleaseStoreReserve"},
    {"crossmesh.v1.ControllerService", "ReportStandby"},
    {"crossmesh.v1.ControllerService", "VerifyStore"},
    {"crossmesh.v1.ManifestService", "DeleteManifest"},
    {"crossmesh.v1.ManifestService", "GetManifest"},
    {"crossmesh.v1.ManifestService", "ListManifests"},
    {"crossmesh.v1.ManifestService", "PutManifest"},
    {"crossmesh.v1.MeshService", "CreateMesh"},
    {"crossmesh.v1.MeshService", "DeleteMesh"},
    {"crossmesh.v1.MeshService", "GetMesh"},
    {"crossmesh.v1.MeshService", "ListMeshes"},
    {"crossmesh.v1.NetworkService", "CalibrateGpus"},
    {"crossmesh.v1.NetworkService", "GetNetwork"},
    {"crossmesh.v1.NetworkService", "MeasureNetwork"},
    {"crossmesh.v1.NetworkService", "SetNetwork"},
    {"crossmesh.v1.OperationService", "CancelOperation"},
    {"crossmesh.v1.OperationService", "GetOperation"},
    {"crossmesh.v1.OperationService", "ListOperations"},
    {"crossmesh.v1.OperationService", "WatchOperation"},
    {"crossmesh.v1.PipelineService", "CreatePipeline"},
    {"crossmesh.v1.PipelineService", "DeletePipeline"},
    {"crossmesh.v1.PipelineService", "GetPipeline"},
    {"crossmesh.v1.PipelineService", "ListPipelineRuns"},
    {"crossmesh.v1.PipelineService", "ListPipelines"},
    {"crossmesh.v1.PipelineService", "PlanPipeline"},
    {"crossmesh.v1.PipelineService", "StartPipeline"},
    {"crossmesh.v1.PipelineService", "StopPipelineRun"},
    {"crossmesh.v1.PipelineService", "WatchPipelineRun"},
    {"crossmesh.v1.ReshardService", "ExecuteReshard"},
    {"crossmesh.v1.ReshardService", "PlanReshard"},
    {"crossmesh.v1.WorkerService", "DrainWorker"},
    {"crossmesh.v1.WorkerService", "EvictWorker"},
    {"crossmesh.v1.WorkerService", "ForgetWorker"},
    {"crossmesh.v1.WorkerService", "ListWorkers"},
    {"crossmesh.v1.WorkerService", "UndrainWorker"},
    {"crossmesh.v1.WorkerService", "WorkerSession"},
    {"grpc.health.v1.Health", "Check"}};
inline constexpr RpcMethod kWorkerMethods[] = {
    {"crossmesh.v1.CommunicatorService", "GetPreflight"},
    {"crossmesh.v1.CommunicatorService", "MintCommunicatorId"},
    {"crossmesh.v1.CommunicatorService", "CreateCommunicator"},
    {"crossmesh.v1.CommunicatorService", "DestroyCommunicator"},
    {"crossmesh.v1.CommunicatorService", "MeasureGpu"},
    {"crossmesh.v1.CommunicatorService", "StopCommunicator"},
    {"crossmesh.v1.ExecutionService", "Execute"},
    {"crossmesh.v1.PipelineExecutionService", "RunProgram"},
    {"crossmesh.v1.ProbeService", "OpenProbe"},
    {"crossmesh.v1.ProbeService", "RunProbe"},
    {"grpc.health.v1.Health", "Check"}};

// The place of `value` in a closed set; nothing for a stranger.
std::optional<size_t> FindLabel(std::span<const absl::string_view> values, absl::string_view value);

}  // namespace crossmesh
