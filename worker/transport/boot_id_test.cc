#include "worker/transport/boot_id.h"

#include "common/testing/status_matchers.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(BootIdTest, ItStaysTheSame) {
  ASSERT_OK_AND_ASSIGN(const std::string boot_id, ReadBootId());
  EXPECT_EQ(boot_id.size(), 16);
  EXPECT_THAT(ReadBootId(), IsOkAndHolds(boot_id));
}

}  // namespace
}  // namespace crossmesh
