#include "common/base/error_place.h"

#include <memory>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(ErrorPlaceTest, AnErrorKeepsItsCodeAndGetsItsPlace) {
  EXPECT_EQ(At("file x", absl::AbortedError("lost")), absl::AbortedError("file x: lost"));
  EXPECT_EQ(At("file x", absl::StatusOr<int>(absl::AbortedError("lost"))).status(),
            absl::AbortedError("file x: lost"));
}

TEST(ErrorPlaceTest, WhatIsOkStaysAsItIs) {
  EXPECT_EQ(At("file x", absl::OkStatus()), absl::OkStatus());
  const absl::StatusOr<std::unique_ptr<int>> moved =
      At("file x", absl::StatusOr<std::unique_ptr<int>>(std::make_unique<int>(7)));
  EXPECT_EQ(**moved, 7);
}

}  // namespace
}  // namespace crossmesh
