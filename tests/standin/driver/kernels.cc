#include "tests/standin/driver/kernels.h"

namespace crossmesh {

void Kernels::Add(const StandInKernel& kernel) {
  MutexLock lock(mutex_);
  kernels_.insert_or_assign(kernel.name, kernel);
}

const StandInKernel* Kernels::Find(absl::string_view name) {
  MutexLock lock(mutex_);
  const auto found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : &found->second;
}

}  // namespace crossmesh
