#include "common/base/count_text.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(CountTextTest, OneIsSingular) {
  EXPECT_EQ(CountText(1, "class", "classes"), "1 class");
  EXPECT_EQ(CountText(0, "class", "classes"), "0 classes");
  EXPECT_EQ(CountText(2, "class", "classes"), "2 classes");
}

}  // namespace
}  // namespace crossmesh
