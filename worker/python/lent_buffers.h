#pragma once

#include "common/base/mutex.h"
#include "worker/memory/arena.h"

#include <memory>
#include <vector>

#include <nanobind/nanobind.h>

namespace crossmesh {

// Buffers of Python objects that are lent to a worker. An object is held as long as there is an
// arena over its memory, so it is neither freed nor resized. Arenas go on any thread, objects only
// where the GIL is held: those whose arena has gone wait for Collect. Thread-safe.
class LentBuffers : public std::enable_shared_from_this<LentBuffers> {
 public:
  // The GIL must be held, as for Collect. Raises BufferError, or TypeError, of the object, unless
  // it has contiguous memory that may be written.
  std::shared_ptr<Arena> Lend(nanobind::handle object);
  void Collect();

 private:
  void Return(Py_buffer* buffer);

  Mutex mutex_;
  std::vector<Py_buffer*> returned_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
