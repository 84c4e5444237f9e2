#pragma once

#include "controller/controller.h"

#include <memory>

namespace crossmesh {

class ControllerMetrics;
class JobRecords;
class TaskQueue;
class WorkerRegistry;

// What a controller does for its store and its process, beside what it is there for.

// The store of the options, or one in memory.
std::shared_ptr<MetadataStore> StoreOf(const Controller::Options& options);
// The same store, with what it does recorded. All outlive it.
std::unique_ptr<MetadataStore> Measured(MetadataStore& store, const Clock& clock,
                                        ControllerMetrics& metrics);

// Has the threads on which the controller depends watched, if the options ask for it.
void BeWatched(const Controller::Options& options, TaskQueue& queue);
// Before they end.
void BeWatchedNoMore(const Controller::Options& options);
// What probes are answered from now on.
void SayServing(const Controller::Options& options, bool is_serving);

// Brings the metrics of all jobs that are remembered up to date.
void CountJobs(const JobRecords& operations, const JobRecords& runs, ControllerMetrics& metrics);

// Brings other metrics up to date: of workers and the store.
void UpdateMetrics(const WorkerRegistry& workers, const MetadataStore& store,
                   const StoreUpkeep* upkeep, ControllerMetrics& metrics);

}  // namespace crossmesh
