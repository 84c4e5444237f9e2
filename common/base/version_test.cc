#include "common/base/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::MatchesRegex;

TEST(VersionTest, TheLineNamesProgramVersionAndTheCommitIfItIsKnown) {
  EXPECT_THAT(std::string(Version()), MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(VersionLine("crossmesh-worker"),
              MatchesRegex("crossmesh-worker [0-9.]+( \\([0-9a-z.-]+\\))?"));
}

}  // namespace
}  // namespace crossmesh
