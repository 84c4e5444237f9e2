// Streams and events.

#include "tests/standin/driver/call.h"
#include "tests/standin/driver/driver_state.h"

#include <memory>

namespace crossmesh {
namespace {

DriverState& State() { return DriverState::OfProcess(); }

Outcome NeedEvent(CUevent handle, Event*& event) {
  if (Outcome outcome = Call::NeedDriver(); !outcome.ok()) return outcome;
  event = State().events.Find(handle);
  if (event != nullptr) return State().CheckContext(event->device());
  return Violation(CUDA_ERROR_INVALID_HANDLE, "no such event, or one that was destroyed");
}

// CUDA takes an event that was never recorded for one that has happened: work begins too early.
Outcome NeedRecord(CUevent handle, Event*& event, int64_t& record) {
  if (Outcome outcome = NeedEvent(handle, event); !outcome.ok()) return outcome;
  record = event->recorded();
  if (record > 0) return {};
  return Violation(CUDA_ERROR_ILLEGAL_STATE, "the event has not been recorded");
}

}  // namespace
}  // namespace crossmesh

using crossmesh::Call;
using crossmesh::Event;
using crossmesh::Outcome;
using crossmesh::State;
using crossmesh::Stream;

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned int flags, int) {
  Call call("cuStreamCreateWithPriority");
  int device = -1;
  if (Outcome outcome = Call::NeedContext(device); !outcome.ok()) return call.End(outcome);
  if (flags != CU_STREAM_NON_BLOCKING) {
    return call.Refuse(CUDA_ERROR_INVALID_VALUE,
                       "a stream that waits for the default stream; flags must be NON_BLOCKING");
  }
  *handle = reinterpret_cast<CUstream>(State().streams.Add(std::make_unique<Stream>(device)));
  return call.End();
}

CUresult cuStreamDestroy(CUstream handle) {
  Call call("cuStreamDestroy", handle);
  Stream* stream = nullptr;
  if (Outcome outcome = Call::NeedStream(handle, stream); !outcome.ok()) return call.End(outcome);
  State().streams.Close(stream);
  stream->Stop();
  return call.End();
}

CUresult cuStreamQuery(CUstream handle) {
  Call call("cuStreamQuery", handle);
  Stream* stream = nullptr;
  if (Outcome outcome = Call::NeedStream(handle, stream); !outcome.ok()) return call.End(outcome);
  const bool is_idle = stream->idle();
  if (Outcome outcome = State().CheckContext(stream->device()); !outcome.ok()) {
    return call.End(outcome);
  }
  return call.End({is_idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY});
}

CUresult cuStreamSynchronize(CUstream handle) {
  Call call("cuStreamSynchronize", handle);
  Stream* stream = nullptr;
  if (Outcome outcome = Call::NeedStream(handle, stream); !outcome.ok()) return call.End(outcome);
  stream->WaitUntilIdle();
  return call.End(State().CheckContext(stream->device()));
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int) {
  Call call("cuStreamWaitEvent", handle);
  Stream* stream = nullptr;
  Event* event = nullptr;
  int64_t record = 0;
  if (Outcome outcome = Call::NeedStream(handle, stream); !outcome.ok()) return call.End(outcome);
  if (Outcome outcome = crossmesh::NeedRecord(event_handle, event, record); !outcome.ok()) {
    return call.End(outcome);
  }
  return call.End(Call::Enqueue(*stream, [event, record] { event->Wait(record); }));
}

CUresult cuEventCreate(CUevent* handle, unsigned int flags) {
  Call call("cuEventCreate");
  int device = -1;
  if (Outcome outcome = Call::NeedContext(device); !outcome.ok()) return call.End(outcome);
  const bool has_time = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  *handle =
      reinterpret_cast<CUevent>(State().events.Add(std::make_unique<Event>(device, has_time)));
  return call.End();
}

CUresult cuEventDestroy(CUevent handle) {
  Call call("cuEventDestroy");
  Event* event = nullptr;
  if (Outcome outcome = crossmesh::NeedEvent(handle, event); !outcome.ok()) {
    return call.End(outcome);
  }
  State().events.Close(event);
  return call.End();
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  Call call("cuEventRecord", stream_handle);
  Stream* stream = nullptr;
  Event* event = nullptr;
  if (Outcome outcome = Call::NeedStream(stream_handle, stream); !outcome.ok()) {
    return call.End(outcome);
  }
  if (Outcome outcome = crossmesh::NeedEvent(handle, event); !outcome.ok()) {
    return call.End(outcome);
  }
  if (event->device() != stream->device()) {
    return call.Refuse(CUDA_ERROR_INVALID_HANDLE, "the event is of another device than the stream");
  }
  const int64_t record = event->Record();
  return call.End(Call::Enqueue(*stream, [event, record] { event->Complete(record); }));
}

CUresult cuEventQuery(CUevent handle) {
  Call call("cuEventQuery");
  Event* event = nullptr;
  int64_t record = 0;
  if (Outcome outcome = crossmesh::NeedRecord(handle, event, record); !outcome.ok()) {
    return call.End(outcome);
  }
  const bool is_completed = event->completed(record);
  if (Outcome outcome = State().CheckContext(event->device()); !outcome.ok()) {
    return call.End(outcome);
  }
  return call.End({is_completed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY});
}

CUresult cuEventSynchronize(CUevent handle) {
  Call call("cuEventSynchronize");
  Event* event = nullptr;
  int64_t record = 0;
  if (Outcome outcome = crossmesh::NeedRecord(handle, event, record); !outcome.ok()) {
    return call.End(outcome);
  }
  event->Wait(record);
  return call.End(State().CheckContext(event->device()));
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin_handle, CUevent end_handle) {
  Call call("cuEventElapsedTime");
  Event* events[2] = {};
  const CUevent handles[2] = {begin_handle, end_handle};
  for (int i = 0; i < 2; ++i) {
    int64_t record = 0;
    if (Outcome outcome = crossmesh::NeedRecord(handles[i], events[i], record); !outcome.ok()) {
      return call.End(outcome);
    }
    if (!events[i]->has_time()) {
      return call.Refuse(CUDA_ERROR_INVALID_HANDLE, "the event was made without time");
    }
    if (!events[i]->completed(record)) return call.End({CUDA_ERROR_NOT_READY});
  }
  *milliseconds = static_cast<float>(events[1]->time_ns() - events[0]->time_ns()) * 1e-6F;
  return call.End();
}

}  // extern "C"
