#pragma once

#include <absl/strings/string_view.h>

namespace crossmesh {

// The metrics that both daemons serve: their names, what they mean, and the bounds of histograms'
// buckets. Names and label keys are constants, because the library that serves them throws at a bad
// one. Label values are in label_set.h. Everything exists, at 0, from the start.
struct MetricName {
  absl::string_view name;
  absl::string_view help;
};

namespace metric {

// Both daemons. Labels: version, revision, role.
inline constexpr MetricName kBuildInfo = {"crossmesh_build_info", "Build identity."};
inline constexpr MetricName kInsecure = {
    "crossmesh_insecure_enabled", "1 when plaintext beyond loopback is allowed (--insecure)."};
inline constexpr MetricName kConfigHash = {
    "crossmesh_config_hash", "Number of the configuration that holds: the same text has the same."};
inline constexpr MetricName kConfigReloadSuccessful = {
    "crossmesh_config_last_reload_successful", "1 when the last reload worked, or none was asked."};
inline constexpr MetricName kConfigReloadTime = {
    "crossmesh_config_last_reload_success_timestamp_seconds",
    "Unix time at which the configuration that holds was read."};
inline constexpr MetricName kConfigReloads = {"crossmesh_config_reloads_total",
                                              "Reloads of the configuration, by result."};
inline constexpr MetricName kProcessCpu = {"process_cpu_seconds_total",
                                           "User and system CPU time spent, in seconds."};
inline constexpr MetricName kProcessMemory = {"process_resident_memory_bytes",
                                              "Resident memory, in bytes."};
inline constexpr MetricName kProcessAllocated = {
    "process_allocated_memory_bytes",
    "Memory that the allocator has given out, in bytes; resident is what it keeps for later, too."};
inline constexpr MetricName kProcessFds = {"process_open_fds", "Open file descriptors."};
inline constexpr MetricName kProcessMaxFds = {"process_max_fds",
                                              "Most file descriptors that may be open."};
inline constexpr MetricName kProcessStart = {"process_start_time_seconds",
                                             "Start of the process, in Unix seconds."};
inline constexpr MetricName kProcessThreads = {"process_threads", "Threads of the process."};

// Servers. Labels: grpc_service, grpc_method; of kRpcHandled grpc_code as well, of which OK and
// UNAVAILABLE exist from the start and the others once they have been seen.
inline constexpr MetricName kRpcStarted = {"grpc_server_started_total", "RPCs started."};
inline constexpr MetricName kRpcHandled = {"grpc_server_handled_total", "RPCs finished, by code."};
inline constexpr MetricName kRpcSeconds = {"grpc_server_handling_seconds",
                                           "Time from an RPC's start to its status."};
inline constexpr MetricName kRpcInFlight = {"crossmesh_requests_in_flight", "RPCs being handled."};
inline constexpr MetricName kConnectionsRefused = {
    "crossmesh_connections_refused_total", "Connections that were closed unserved, by reason."};

// Controller.
inline constexpr MetricName kEpoch = {"crossmesh_controller_epoch",
                                      "Current epoch, the fencing number."};
inline constexpr MetricName kWorkers = {"crossmesh_controller_workers", "Workers by state."};
inline constexpr MetricName kWorkerSessions = {"crossmesh_controller_worker_sessions",
                                               "Open worker streams."};
inline constexpr MetricName kWorkerRegistrations = {
    "crossmesh_controller_worker_registrations_total", "Worker registrations by result."};
inline constexpr MetricName kWorkerLosses = {"crossmesh_controller_worker_losses_total",
                                             "Workers declared lost, by reason."};
inline constexpr MetricName kHeartbeatInterval = {
    "crossmesh_controller_heartbeat_interval_seconds",
    "Time between heartbeats of one worker, all workers."};
inline constexpr MetricName kCommunicators = {"crossmesh_controller_communicators",
                                              "Communicators of GPUs by state."};
inline constexpr MetricName kCommunicatorSeconds = {
    "crossmesh_controller_communicator_seconds",
    "Time to make a communicator of GPUs, from its turn until all its ranks are ready."};
inline constexpr MetricName kObjects = {"crossmesh_controller_objects", "Stored objects by kind."};
// Of the store; sizes, free space, backups and verifications of one that is in a folder.
inline constexpr MetricName kStoreSeconds = {"crossmesh_store_transaction_seconds",
                                             "Time of commits and reads, until they answer."};
inline constexpr MetricName kStoreTransactions = {"crossmesh_store_transactions_total",
                                                  "Commits and reads, by what became of them."};
inline constexpr MetricName kStoreSize = {"crossmesh_store_size_bytes",
                                          "Sizes of the store's files."};
inline constexpr MetricName kStoreCommitsKept = {
    "crossmesh_store_commits_kept", "Newest commits that are kept for those who follow the store."};
inline constexpr MetricName kStoreKeptBytes = {
    "crossmesh_store_kept_bytes", "Keys and values that these commits wrote, in the database."};
inline constexpr MetricName kStoreFree = {"crossmesh_store_filesystem_free_bytes",
                                          "Free space where the store is."};
inline constexpr MetricName kStoreRevision = {"crossmesh_store_revision",
                                              "Revision of the newest commit."};
inline constexpr MetricName kStoreReadOnly = {
    "crossmesh_store_read_only", "1 when nothing is written: the store is damaged, or full."};
inline constexpr MetricName kStoreCorruptions = {
    "crossmesh_store_corruptions_total", "Times that bytes were not those that were written."};
inline constexpr MetricName kStoreVerified = {
    "crossmesh_store_last_verify_timestamp_seconds",
    "Unix time at which all of the store was read and was good; 0: not yet."};
inline constexpr MetricName kStoreBackedUp = {"crossmesh_store_last_backup_timestamp_seconds",
                                              "Unix time of the last backup; 0: none."};
inline constexpr MetricName kStoreBackupFailures = {"crossmesh_store_backup_failures_total",
                                                    "Backups that failed."};
inline constexpr MetricName kOperationsInProgress = {"crossmesh_controller_operations_in_progress",
                                                     "Operations not yet ended, by state."};
inline constexpr MetricName kOperations = {"crossmesh_controller_operations_total",
                                           "Operations ended, by strategy and result."};
inline constexpr MetricName kOperationSeconds = {
    "crossmesh_controller_operation_seconds",
    "Wall time of an operation, from the request to its end."};
inline constexpr MetricName kOperationBytes = {
    "crossmesh_controller_operation_bytes_total",
    "Logical bytes delivered to committed destination replicas."};
inline constexpr MetricName kOperationTransferSeconds = {
    "crossmesh_controller_operation_transfer_seconds_total",
    "Time that committed operations spent moving bytes."};
inline constexpr MetricName kOperationBoundSeconds = {
    "crossmesh_controller_operation_bound_seconds_total",
    "Least time that any plan needs for the bytes of the same operations."};
inline constexpr MetricName kPlanSeconds = {"crossmesh_controller_plan_compute_seconds",
                                            "Time to plan and prove."};
inline constexpr MetricName kPlanRelays = {"crossmesh_controller_plan_relays", "Relays in a plan."};
inline constexpr MetricName kPlanCacheBytes = {"crossmesh_controller_plan_cache_bytes",
                                               "Memory that cached plans keep."};
inline constexpr MetricName kPlansWaiting = {"crossmesh_controller_plans_waiting",
                                             "Requests that wait for a planner's thread."};
inline constexpr MetricName kPlanWaitSeconds = {
    "crossmesh_controller_plan_wait_seconds", "Time that a request waited for a planner's thread."};
inline constexpr MetricName kPlanBytes = {
    "crossmesh_controller_plan_bytes_total",
    "Bytes that the plans handed out move through NICs, counted at the sender."};
inline constexpr MetricName kPlanLeastBytes = {"crossmesh_controller_plan_least_bytes_total",
                                               "Least bytes possible for the same plans."};
inline constexpr MetricName kPlanCacheRequests = {"crossmesh_controller_plan_cache_requests_total",
                                                  "Plan cache lookups by result."};
inline constexpr MetricName kDispatchSeconds = {
    "crossmesh_controller_dispatch_seconds",
    "Time from an operation's first dispatch to the last worker's acceptance."};

// Worker.
inline constexpr MetricName kRegistered = {"crossmesh_worker_registered",
                                           "1 when a session with a controller is open."};
inline constexpr MetricName kSessionReconnects = {"crossmesh_worker_session_reconnects_total",
                                                  "Session reconnects by reason."};
inline constexpr MetricName kCommandsRejected = {"crossmesh_worker_commands_rejected_total",
                                                 "Commands refused, by reason."};
inline constexpr MetricName kRelays = {"crossmesh_worker_relays_total",
                                       "Relays ended, by this worker's part in them and result."};
inline constexpr MetricName kRelaysInProgress = {"crossmesh_worker_relays_in_progress",
                                                 "Relays running."};
inline constexpr MetricName kRelaySeconds = {"crossmesh_worker_relay_seconds",
                                             "Time of one relay."};
inline constexpr MetricName kRelayThroughput = {
    "crossmesh_worker_relay_throughput_bytes_per_second", "Throughput of one relay."};
inline constexpr MetricName kTransferBytes = {"crossmesh_worker_transfer_bytes_total",
                                              "Payload bytes moved."};
inline constexpr MetricName kPhaseSeconds = {
    "crossmesh_worker_phase_seconds_total",
    "Time that tasks spent in a phase; the phases of one task overlap."};
inline constexpr MetricName kChannelStalls = {
    "crossmesh_worker_channel_stalls_total",
    "Channels with credit and no byte past the stall limit."};
inline constexpr MetricName kLastProgress = {
    "crossmesh_worker_last_progress_timestamp_seconds",
    "Unix time at which any running relay last moved bytes."};
inline constexpr MetricName kChecksumFailures = {"crossmesh_worker_checksum_failures_total",
                                                 "Relay checksum mismatches."};
inline constexpr MetricName kGpus = {"crossmesh_worker_gpus",
                                     "GPUs by whether their process can be used."};
inline constexpr MetricName kGpuProcessesLost = {
    "crossmesh_worker_gpu_processes_lost_total",
    "Processes of GPUs that were up and ended or were killed; others take their places."};
inline constexpr MetricName kCourseSteps = {
    "crossmesh_worker_course_steps_total",
    "Steps of courses that have moved, by what they do, counted once for each instance."};
inline constexpr MetricName kReducedBytes = {"crossmesh_worker_reduced_bytes_total",
                                             "Summands that were reduced."};
inline constexpr MetricName kStagingBytes = {"crossmesh_worker_staging_bytes",
                                             "Staging buffers, used and limit."};
inline constexpr MetricName kStagingPeakBytes = {
    "crossmesh_worker_staging_peak_bytes",
    "Most of the staging buffers that was in use at a time, for sending and for receiving."};
inline constexpr MetricName kTensorBytes = {
    "crossmesh_worker_tensor_bytes",
    "Tensor bytes held: at rest, being received, in idle shadows, and between steps."};
inline constexpr MetricName kArrayPeakBytes = {
    "crossmesh_worker_array_peak_bytes",
    "Most tensor bytes that were held between steps of courses at a time."};

// Upper bounds of buckets, in the metric's unit; +Inf is added.
inline constexpr double kLatencyBuckets[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                             0.25,  0.5,    1,     2.5,  5,     10};
inline constexpr double kStoreBuckets[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                           0.025,  0.05,    0.1,    0.25,  0.5,    1};
inline constexpr double kPlanBuckets[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                          0.25,   0.5,   1,      2.5,   5,    10,    30};
inline constexpr double kTransferBuckets[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                              0.5,   1,      2.5,   5,    10,    30,   60,  120};
inline constexpr double kThroughputBuckets[] = {0x1p26, 0x1p27, 0x1p28, 0x1p29, 0x1p30,
                                                0x1p31, 0x1p32, 0x1p33, 0x1p34, 0x1p35,
                                                0x1p36, 0x1p37, 0x1p38, 0x1p39};
inline constexpr double kHeartbeatBuckets[] = {0.1, 0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 30};
inline constexpr double kRelaysBuckets[] = {1,   2,   4,   8,    16,   32,   64,
                                            128, 256, 512, 1024, 4096, 16384};

}  // namespace metric
}  // namespace crossmesh
