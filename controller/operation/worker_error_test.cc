#include "controller/operation/worker_error.h"

#include "common/testing/status_matchers.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr auto kCode = absl::StatusCode::kAborted;

TEST(WorkerErrorTest, ANameIsToldOnce) {
  EXPECT_THAT(AboutWorker("a", absl::AbortedError("it stops")),
              StatusIs(kCode, "worker a: it stops"));
  EXPECT_THAT(AboutWorker("a", absl::AbortedError("worker a: it stops")),
              StatusIs(kCode, "worker a: it stops"));
  EXPECT_THAT(AboutWorker("a", absl::AbortedError("worker ab: it stops")),
              StatusIs(kCode, "worker a: worker ab: it stops"));
}

TEST(WorkerErrorTest, WithoutAWorkerAnErrorStaysAsItIs) {
  EXPECT_THAT(AboutWorker("", absl::AbortedError("it stops")), StatusIs(kCode, "it stops"));
}

}  // namespace
}  // namespace crossmesh
