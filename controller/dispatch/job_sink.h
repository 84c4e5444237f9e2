#pragma once

#include <memory>
#include <string>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

namespace crossmesh {

// Hears of jobs of one kind, as clients see them: Subject is the API's message, v1.Operation or
// v1.PipelineRun. Called on the queue on which jobs are carried out; must not block.
template <typename Subject>
class JobSink {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  virtual ~JobSink() = default;
  // Makes an intent durable, the first one or another in its place: nothing of it is started
  // before. By `resumption` another controller can take the job up. `done` may be called at once or
  // later, on any thread.
  virtual void Commit(std::shared_ptr<const Subject> intent, std::string resumption, Done done) = 0;
  // Makes durable how far a job has come whose intent is, in place of what was said before: small,
  // and often. `done` as above; ResourceExhausted or Unavailable: nothing is lost, and it may be
  // tried again; any other error: this controller has been replaced.
  virtual void RecordProgress(const std::string& id, std::string progress, Done done) = 0;
  // The job has changed, and has not ended.
  virtual void OnChange(std::shared_ptr<const Subject> job) = 0;
  // The job has ended. It is shown so once that is durable, and then `done` is called, on the
  // queue. An error: this controller has been replaced, and how the job ends is for the next one to
  // say.
  virtual void Finish(std::shared_ptr<const Subject> job, Done done) = 0;
};

}  // namespace crossmesh
