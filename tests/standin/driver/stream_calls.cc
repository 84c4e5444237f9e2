// Streams and events.

#include "tests/standin/driver/call.h"
#include "tests/standin/driver/driver_state.h"

#include <atomic>
#include <memory>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

Outcome NeedEvent(CUevent handle, Event*& event) {
  RETURN_IF_FAILED(Call::NeedDriver());
  event = State().events.Find(handle);
  if (event != nullptr) return State().CheckContext(event->device());
  return Violation(CUDA_ERROR_INVALID_HANDLE, "no such event, or one that was destroyed");
}

// CUDA takes an event that was never recorded for one that has happened: work begins too early.
Outcome NeedRecord(CUevent handle, Event*& event, int64_t& record) {
  RETURN_IF_FAILED(NeedEvent(handle, event));
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

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  Call call("cuCtxGetStreamPriorityRange");
  int device = -1;
  END_IF_FAILED(call, Call::NeedContext(device));
  *least = Stream::kLeastPriority;
  *greatest = Stream::kGreatestPriority;
  return call.End();
}

CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned int flags, int priority) {
  Call call("cuStreamCreateWithPriority");
  int device = -1;
  END_IF_FAILED(call, Call::NeedContext(device));
  if (flags != CU_STREAM_NON_BLOCKING) {
    return call.Refuse(CUDA_ERROR_INVALID_VALUE,
                       "a stream that waits for the default stream; flags must be NON_BLOCKING");
  }
  // CUDA takes the nearest one that there is, and says nothing.
  if (priority < Stream::kGreatestPriority || priority > Stream::kLeastPriority) {
    return call.Refuse(CUDA_ERROR_INVALID_VALUE, absl::StrCat("no priority ", priority));
  }
  *handle =
      reinterpret_cast<CUstream>(State().streams.Add(std::make_unique<Stream>(device, priority)));
  return call.End();
}

CUresult cuStreamDestroy(CUstream handle) {
  Call call("cuStreamDestroy", handle);
  Stream* stream = nullptr;
  END_IF_FAILED(call, Call::NeedStream(handle, stream));
  State().streams.Close(stream);
  stream->Stop();
  return call.End();
}

CUresult cuStreamQuery(CUstream handle) {
  Call call("cuStreamQuery", handle);
  Stream* stream = nullptr;
  END_IF_FAILED(call, Call::NeedStream(handle, stream));
  const bool is_idle = stream->idle();
  END_IF_FAILED(call, State().CheckContext(stream->device()));
  return call.End({is_idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY});
}

CUresult cuStreamSynchronize(CUstream handle) {
  Call call("cuStreamSynchronize", handle);
  Stream* stream = nullptr;
  END_IF_FAILED(call, Call::NeedStream(handle, stream));
  stream->WaitUntilIdle();
  return call.End(State().CheckContext(stream->device()));
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int) {
  Call call("cuStreamWaitEvent", handle);
  Stream* stream = nullptr;
  Event* event = nullptr;
  int64_t record = 0;
  END_IF_FAILED(call, Call::NeedStream(handle, stream));
  END_IF_FAILED(call, crossmesh::NeedRecord(event_handle, event, record));
  stream->Enqueue([event, record] { event->Wait(record); });
  return call.End();
}

CUresult cuStreamWriteValue64(CUstream handle, CUdeviceptr address, cuuint64_t value,
                              unsigned int) {
  Call call("cuStreamWriteValue64", handle);
  Stream* stream = nullptr;
  END_IF_FAILED(call, Call::NeedStream(handle, stream));
  if (!State().memory.IsRegisteredHost(reinterpret_cast<void*>(address), 8)) {
    return call.Refuse(CUDA_ERROR_INVALID_VALUE, "expected host memory that is registered");
  }
  stream->Enqueue(
      [address, value] { std::atomic_ref(*reinterpret_cast<cuuint64_t*>(address)).store(value); });
  return call.End();
}

CUresult cuEventCreate(CUevent* handle, unsigned int flags) {
  Call call("cuEventCreate");
  int device = -1;
  END_IF_FAILED(call, Call::NeedContext(device));
  const bool has_time = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  *handle =
      reinterpret_cast<CUevent>(State().events.Add(std::make_unique<Event>(device, has_time)));
  return call.End();
}

CUresult cuEventDestroy(CUevent handle) {
  Call call("cuEventDestroy");
  Event* event = nullptr;
  END_IF_FAILED(call, crossmesh::NeedEvent(handle, event));
  State().events.Close(event);
  return call.End();
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  Call call("cuEventRecord", stream_handle);
  Stream* stream = nullptr;
  Event* event = nullptr;
  END_IF_FAILED(call, Call::NeedStream(stream_handle, stream));
  END_IF_FAILED(call, crossmesh::NeedEvent(handle, event));
  if (event->device() != stream->device()) {
    return call.Refuse(CUDA_ERROR_INVALID_HANDLE, "the event is of another device than the stream");
  }
  const int64_t record = event->Record();
  stream->Enqueue([event, record] { event->Complete(record); });
  return call.End();
}

CUresult cuEventQuery(CUevent handle) {
  Call call("cuEventQuery");
  Event* event = nullptr;
  int64_t record = 0;
  END_IF_FAILED(call, crossmesh::NeedRecord(handle, event, record));
  const bool is_completed = event->completed(record);
  END_IF_FAILED(call, State().CheckContext(event->device()));
  return call.End({is_completed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY});
}

CUresult cuEventSynchronize(CUevent handle) {
  Call call("cuEventSynchronize");
  Event* event = nullptr;
  int64_t record = 0;
  END_IF_FAILED(call, crossmesh::NeedRecord(handle, event, record));
  event->Wait(record);
  return call.End(State().CheckContext(event->device()));
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin_handle, CUevent end_handle) {
  Call call("cuEventElapsedTime");
  Event* events[2] = {};
  const CUevent handles[2] = {begin_handle, end_handle};
  for (int i = 0; i < 2; ++i) {
    int64_t record = 0;
    END_IF_FAILED(call, crossmesh::NeedRecord(handles[i], events[i], record));
    if (!events[i]->has_time()) {
      return call.Refuse(CUDA_ERROR_INVALID_HANDLE, "the event was made without time");
    }
    if (!events[i]->completed(record)) return call.End({CUDA_ERROR_NOT_READY});
  }
  *milliseconds = static_cast<float>(events[1]->time_ns() - events[0]->time_ns()) * 1e-6F;
  return call.End();
}

}  // extern "C"
