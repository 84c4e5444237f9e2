// Workers without daemons that run courses.

#pragma once

#include "common/base/byte_count.h"
#include "common/base/mutex.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/memory/arena.h"

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>

namespace crossmesh {

// The memory that tasks have for arrays between steps. Thread-safe.
class ArrayCount {
 public:
  // Of one device; before the first task.
  void Limit(int64_t bytes) { bytes_max_ = bytes; }
  // Of all that were made.
  int64_t bytes() const;
  // Until all have been given back, which tasks do after they have reported; aborts when that takes
  // long.
  void WaitUntilGone() const;

  absl::StatusOr<std::shared_ptr<Arena>> Make(ByteCount bytes);

 private:
  void Release();

  int64_t bytes_max_ = INT64_MAX;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t left_ ABSL_GUARDED_BY(mutex_) = 0;  // pieces
};

// The same, with a runner of courses over every executor. `arrays`, if given, must outlive the
// mesh.
MeshRunner::Options WithCourseRunners(MeshRunner::Options options, ArrayCount* arrays = nullptr);

}  // namespace crossmesh
