#include "common/testing/allocations/count_allocations.h"
#include "worker/pipeline/program_progress.h"
#include "worker/pipeline/testing/receiver_program.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(ProgramProgress, AllocatesNothingAfterTheFirstIteration) {
  const WorkerProgram program = ReceiverProgram();
  ProgramProgress progress(program);
  const auto run = [&progress] {
    progress.Begin();
    for (int32_t m = 0; m < 3; ++m) {
      progress.OnArrived({0, m});
      progress.OnOpDone(0);
      progress.OnLeft({0, m});
    }
  };
  run();
  EXPECT_EQ(CountAllocations(run), 0);
  EXPECT_TRUE(progress.complete());
}

}  // namespace
}  // namespace crossmesh
