#pragma once

#include <memory>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

namespace crossmesh {

// Hears of jobs of one kind, as clients see them: Subject is the API's message, v1.Operation or
// v1.PipelineRun. Called on the queue on which jobs are carried out; must not block.
template <typename Subject>
class JobSink {
 public:
  virtual ~JobSink() = default;
  // Makes the intent durable: nothing is started before. `done` may be called at once or later, on
  // any thread.
  virtual void Commit(std::shared_ptr<const Subject> intent,
                      absl::AnyInvocable<void(absl::Status)> done) = 0;
  // The job has changed; one that has an end time is the last of it.
  virtual void OnChange(std::shared_ptr<const Subject> job) = 0;
};

}  // namespace crossmesh
