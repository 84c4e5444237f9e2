#include "common/base/row_fetch.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(FetchRowTest, LooksAtNothing) {
  const std::byte row{7};
  FetchRow(&row, 100'000);
  FetchRow(nullptr, 1);
}

}  // namespace
}  // namespace crossmesh
