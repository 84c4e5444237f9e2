// What the stand-ins export beside the calls of CUDA and NCCL: control by tests, and what the one
// for NCCL needs of the one for the driver. Plain C, found by name like everything else.

#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda.h>
#include <nccl.h>

extern "C" {

// Named by both libraries; the product's reports show it.
const char* crossmeshStandInName();

// Kernels.

struct StandInLaunch {
  unsigned int grid[3];
  unsigned int block[3];
  void* const* arguments;  // copies made at the launch
  const void* context;     // of the kernel
};

// What cuModuleGetFunction finds under `name`, in any module. All pointers stay valid.
struct StandInKernel {
  const char* name;
  void (*run)(const StandInLaunch* launch);  // on the stream's thread
  const void* context;
  size_t argument_count;
  const size_t* argument_bytes;
};

void crossmeshStandInAddKernel(const StandInKernel* kernel);
// Exported by the library that CROSSMESH_STANDIN_KERNELS names; called by cuInit.
using StandInKernelsFunction = void (*)(void (*add)(const StandInKernel*));

// Faults.

// Replaces all faults and starts counting anew, e.g. "stall_at=3,in_progress_polls=5"; "" for none.
// The README has the names. Not 0 when `faults` is malformed.
int crossmeshStandInSetFaults(const char* faults);
// The value of a fault, 0 without it.
int64_t crossmeshStandInFault(const char* name);
// Counts an event of the fault's kind: 1 when it is the one that the fault names.
int crossmeshStandInFaultDue(const char* name);

// Violations and calls.

// Adds to the report: standard error, and the file CROSSMESH_STANDIN_REPORT.
void crossmeshStandInViolate(const char* text);
int64_t crossmeshStandInViolationCount();
// Text of a violation; valid until the process ends. Null when there are fewer.
const char* crossmeshStandInViolation(int64_t index);

struct StandInCall {
  const char* name;    // a literal
  const void* stream;  // null for calls without
  int64_t bytes;
  int32_t result;
  int64_t start_ns;  // CLOCK_MONOTONIC
  int64_t end_ns;    // when it had been logged, so that the difference is all that it took
  int64_t thread;    // of the caller, as gettid(2) has it
};
// Sets end_ns and thread.
void crossmeshStandInLogCall(const StandInCall* call);
// Copies at most `max` calls from the `first` on. Returns how many there are from there on.
int64_t crossmeshStandInReadLog(int64_t first, StandInCall* calls, int64_t max);

// Of a stream that is there, as cuStreamCreateWithPriority has it; 1 when there is no such stream.
int crossmeshStandInStreamPriority(CUstream stream);

// For NCCL.

// Runs `run(argument)` on the stream's thread, in order. Not 0 when there is no such stream.
int crossmeshStandInEnqueue(CUstream stream, void (*run)(void*), void* argument);
// Until it is released, each use of the stream is a violation that gives the reason. Not 0 when
// there is no such stream, or it is held already.
int crossmeshStandInHoldStream(CUstream stream, const char* reason);
void crossmeshStandInReleaseStream(CUstream stream);
// Device of a stream, -1 when there is no such stream.
int crossmeshStandInStreamDevice(CUstream stream);
// Ordinal of the current context's device, -1 without a context.
int crossmeshStandInCurrentDevice();

enum StandInMemory { kStandInNoMemory, kStandInPlainMemory, kStandInShareableMemory };
// What a whole range is.
enum StandInMemory crossmeshStandInMemoryKind(const void* address, size_t bytes);
// Says that queued work uses a range, or no longer: to unmap it meanwhile is a violation.
void crossmeshStandInUseMemory(const void* address, size_t bytes, int users);
// The same for registrations.
void crossmeshStandInRegisterMemory(const void* address, size_t bytes, int registrations);
// Takes memory of a device, or gives it back. Not 0 when there is not enough.
int crossmeshStandInTakeMemory(int device, int64_t bytes);

// For NCCL M2N, exported by the one for NCCL.

// As ncclCommGetAsyncError tells it; ncclRemoteError of a communicator that another thread has
// aborted, which is no mistake of one that waits for it.
ncclResult_t crossmeshStandInCommunicatorState(ncclComm_t communicator);
// Of a communicator that takes calls; 0 and -1 of any other.
int crossmeshStandInCommunicatorSize(ncclComm_t communicator);
int crossmeshStandInCommunicatorRank(ncclComm_t communicator);

}  // extern "C"
