#include "worker/gpu/communicators/testing/communicator_under_test.h"

#include "common/base/status_macros.h"

#include <thread>

namespace crossmesh {

absl::Status RankUnderTest::Await() {
  while (true) {
    ASSIGN_OR_RETURN(const Communicator::Progress progress, communicator().Poll());
    if (progress == Communicator::Progress::kIdle) return Synchronize();
    std::this_thread::yield();
  }
}

}  // namespace crossmesh
