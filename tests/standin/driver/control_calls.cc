#include "tests/standin/control/stand_in_control.h"
#include "tests/standin/driver/driver_state.h"
#include "tests/standin/driver/faults.h"
#include "tests/standin/driver/journal.h"

using crossmesh::DriverState;
using crossmesh::Faults;
using crossmesh::Journal;
using crossmesh::Stream;

extern "C" {

const char* crossmeshStandInName() { return "Crossmesh stand-in"; }

void crossmeshStandInAddKernel(const StandInKernel* kernel) {
  DriverState::OfProcess().kernels.Add(*kernel);
}

int crossmeshStandInSetFaults(const char* faults) {
  return Faults::OfProcess().Set(faults) ? 0 : 1;
}

int64_t crossmeshStandInFault(const char* name) { return Faults::OfProcess().Value(name); }

int crossmeshStandInFaultDue(const char* name) { return Faults::OfProcess().Due(name) ? 1 : 0; }

void crossmeshStandInViolate(const char* text) { Journal::OfProcess().Violate(text); }

int64_t crossmeshStandInViolationCount() { return Journal::OfProcess().violation_count(); }

const char* crossmeshStandInViolation(int64_t index) {
  return Journal::OfProcess().violation(index);
}

void crossmeshStandInLogCall(const StandInCall* call) { Journal::OfProcess().Add(*call); }

int64_t crossmeshStandInReadLog(int64_t first, StandInCall* calls, int64_t max) {
  return Journal::OfProcess().Read(first, calls, max);
}

int crossmeshStandInStreamPriority(CUstream handle) {
  Stream* const stream = DriverState::OfProcess().streams.Find(handle);
  return stream == nullptr ? 1 : stream->priority();
}

int crossmeshStandInEnqueue(CUstream handle, void (*run)(void*), void* argument) {
  Stream* const stream = DriverState::OfProcess().streams.Find(handle);
  if (stream == nullptr) return 1;
  stream->Enqueue([run, argument] { run(argument); });
  return 0;
}

int crossmeshStandInHoldStream(CUstream handle, const char* reason) {
  Stream* const stream = DriverState::OfProcess().streams.Find(handle);
  return stream != nullptr && stream->Hold(reason) ? 0 : 1;
}

void crossmeshStandInReleaseStream(CUstream handle) {
  Stream* const stream = DriverState::OfProcess().streams.Find(handle);
  if (stream != nullptr) stream->Release();
}

int crossmeshStandInStreamDevice(CUstream handle) {
  Stream* const stream = DriverState::OfProcess().streams.Find(handle);
  return stream == nullptr ? -1 : stream->device();
}

int crossmeshStandInCurrentDevice() { return DriverState::OfProcess().CurrentDevice(); }

StandInMemory crossmeshStandInMemoryKind(const void* address, size_t bytes) {
  return DriverState::OfProcess().memory.KindOf(address, bytes);
}

void crossmeshStandInUseMemory(const void* address, size_t bytes, int users) {
  DriverState::OfProcess().memory.AddUsers(address, bytes, users);
}

void crossmeshStandInRegisterMemory(const void* address, size_t bytes, int registrations) {
  DriverState::OfProcess().memory.AddRegistrations(address, bytes, registrations);
}

int crossmeshStandInTakeMemory(int device, int64_t bytes) {
  return DriverState::OfProcess().memory.Take(device, bytes).ok() ? 0 : 1;
}

}  // extern "C"
