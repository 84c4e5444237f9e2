#include "common/testing/patience.h"

#include <source_location>

#include <absl/time/time.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(PatienceTest, EndsWithTheLineThatWaited) {
  Patience().Check();
  EXPECT_DEATH(Patience(std::source_location::current(), absl::ZeroDuration()).Check(),
               "patience_test\\.cc:[0-9]+ waited 0 in vain");
}

}  // namespace
}  // namespace crossmesh
