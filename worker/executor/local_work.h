#pragma once

#include "worker/executor/prepared_part.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace crossmesh {

class ClassCopy;
class LocalChannel;
class SourceScales;
struct TaskContext;

// What a task does inside its worker, a bounded piece at a time: computes scales, which comes
// before all that is read of their sources, and copies between and within its devices, each in
// turn. Confined to the loop.
class LocalWork {
 public:
  // All must outlive the work. `scales` are those of the context.
  LocalWork(TaskContext& context, SourceScales& scales);
  LocalWork(const LocalWork&) = delete;
  LocalWork& operator=(const LocalWork&) = delete;
  ~LocalWork();

  // As if nothing had been copied. Not before finished().
  void Rewind();
  // Something has come of the relay of an entry of a channel inside the worker.
  void OnProgress(const PreparedPart::Out& out);
  // Returns whether more is to be done now.
  bool Step();
  bool finished() const;

 private:
  void ComputeScales();
  bool Copy();

  TaskContext& context_;
  SourceScales& scales_;
  std::vector<LocalChannel*> by_channel_;  // of the part; none where it leads elsewhere
  std::vector<std::unique_ptr<LocalChannel>> channels_;
  std::vector<ClassCopy> copies_;
  size_t next_ = 0;  // of the channels, then copies
};

}  // namespace crossmesh
