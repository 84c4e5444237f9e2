#include "common/testing/random_cases.h"

#include <cstdint>
#include <cstdlib>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(RandomCasesTest, AsManyAsTheEnvironmentSays) {
  setenv("CROSSMESH_CASES", "7", 1);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(RandomCases(400), 7);
  setenv("CROSSMESH_CASES", "many", 1);  // NOLINT(concurrency-mt-unsafe)
  const int64_t cases = RandomCases(400);
  unsetenv("CROSSMESH_CASES");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(RandomCases(400), cases) << "what is no number is none";
  EXPECT_TRUE(cases == 400 || cases == 200 || cases == 100) << cases;
  EXPECT_EQ(RandomCases(1), 1) << "whatever the sanitizer";
}

}  // namespace
}  // namespace crossmesh
