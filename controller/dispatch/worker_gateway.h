#pragma once

#include "controller/dispatch/task_queue.h"
#include "crossmesh/v1/execution_service.pb.h"
#include "crossmesh/v1/pipeline_execution_service.pb.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// What opens a call to a worker.
template <typename Request>
struct WorkerCallStart {
  std::string address;
  Request start;  // the call's first message
  // Gives the serialized part or program, which follows in pieces: when the worker asks for it, or
  // at once where it cannot ask. Called at most once for each time that it is sent, by any thread.
  std::function<std::string()> body;
  absl::Duration time_max = absl::InfiniteDuration();  // of the whole call
};

// What a worker says on a call. Called by any thread, one call after the other, never from inside a
// method of the call; `on_end` comes last, and the listener goes away after it.
template <typename Response>
struct WorkerCallListener {
  std::function<void(Response)> on_message;
  std::function<void(const absl::Status&)> on_end;
};

// A call to a worker. Thread-safe; methods never block. What is sent after the end is dropped.
// Destroying it breaks the call off, which leaves an accepted task as it is and gives a program up.
template <typename Request>
class WorkerCall {
 public:
  virtual ~WorkerCall() = default;
  virtual void Send(Request request) = 0;
  // The last word: the worker ends the call.
  virtual void SendLast(Request request) = 0;
  // Ends the call at once, with Cancelled.
  virtual void Cancel() = 0;
};

// The way to workers, one for each kind of call. The only place where tests put a fake.
template <typename Request, typename Response>
class WorkerGateway {
 public:
  virtual ~WorkerGateway() = default;
  virtual std::unique_ptr<WorkerCall<Request>> Open(WorkerCallStart<Request> start,
                                                    WorkerCallListener<Response> listener) = 0;
};
using TaskGateway = WorkerGateway<v1::ExecuteRequest, v1::ExecuteResponse>;
using ProgramGateway = WorkerGateway<v1::RunProgramRequest, v1::RunProgramResponse>;

// Brings what `listener` is to hear to the queue. There `is_current` says whether the call is still
// its owner's latest one: what comes of an earlier call is dropped.
template <typename Response>
WorkerCallListener<Response> OnQueue(TaskQueue& queue, std::function<bool()> is_current,
                                     WorkerCallListener<Response> listener) {
  return {.on_message =
              [&queue, is_current, hear = std::move(listener.on_message)](Response response) {
                queue.Post([is_current, hear, response = std::move(response)]() mutable {
                  if (is_current()) hear(std::move(response));
                });
              },
          .on_end =
              [&queue, is_current = std::move(is_current),
               hear = std::move(listener.on_end)](const absl::Status& status) {
                queue.Post([is_current, hear, status] {
                  if (is_current()) hear(status);
                });
              }};
}

}  // namespace crossmesh
