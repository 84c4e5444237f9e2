#pragma once

#include "common/base/mutex.h"
#include "tests/standin/control/handles.h"
#include "tests/standin/control/outcome.h"
#include "tests/standin/driver/device_life.h"
#include "tests/standin/driver/event.h"
#include "tests/standin/driver/kernels.h"
#include "tests/standin/driver/memory.h"
#include "tests/standin/driver/stream.h"

#include <atomic>
#include <string>
#include <vector>

namespace crossmesh {

// The primary context of a device.
struct Context {
  int device = -1;
  int references = 0;
  bool broken = false;  // by work on the device
};

// All that a process has of the driver. Thread-safe.
class DriverState {
 public:
  // Lives as long as the process, since the calls of a C library have no object.
  static DriverState& OfProcess();

  bool initialized() const { return initialized_; }
  Outcome Initialize();

  int device_count() const { return static_cast<int>(contexts_.size()); }
  // On this host, in all processes.
  int NumberOf(int device) const { return numbers_[device]; }
  // Names the GPU, and the life of it that began no later than cuInit: "3.1". Memory is of both.
  std::string OriginOf(int device) const;

  CUcontext RetainContext(int device);
  // A violation that tells what is left of it, when that was the last reference.
  Outcome ReleaseContext(int device);
  // Of the calling thread; null, or -1, without one.
  CUcontext CurrentContext();
  int CurrentDevice();
  Outcome SetCurrentContext(CUcontext context);
  // Work of the device has touched memory that is not there: nothing of it works any more.
  void BreakContext(int device);
  // The error of a broken context.
  Outcome CheckContext(int device);

  void SynchronizeDevice(int device);

  Memory memory;
  Handles<Stream> streams;
  Handles<Event> events;
  Handles<Module> modules;
  Handles<Function> functions;
  Kernels kernels;

 private:
  DriverState();

  const std::vector<int> numbers_;  // by device
  std::atomic<bool> initialized_ = false;
  std::vector<DeviceLife> lives_;  // by device; from cuInit on

  Mutex mutex_;
  // Never changes in size.
  std::vector<Context> contexts_;  // references and broken are guarded by mutex_
};

inline DriverState& State() { return DriverState::OfProcess(); }
inline Memory& ProcessMemory() { return DriverState::OfProcess().memory; }

}  // namespace crossmesh
