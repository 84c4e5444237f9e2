#include "common/mesh/data_type.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(DataTypeTest, NamesParseBackAndHaveTheSizesOfSafetensors) {
  const std::vector<std::pair<std::string, int64_t>> expected = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"I64", 8}, {"U64", 8},     {"F64", 8}};
  for (const auto& [name, bytes] : expected) {
    ASSERT_OK_AND_ASSIGN(const DataType type, ParseDataType(name));
    EXPECT_EQ(DataTypeName(type), name);
    EXPECT_EQ(ItemBytes(type), bytes) << name;
  }
}

TEST(DataTypeTest, RefusesOtherSpellingsAndListsTheTypes) {
  for (const char* name : {"", "bf16", "BF16 ", "F128"}) {
    EXPECT_THAT(ParseDataType(name), IsRefused("F8_E5M2, F8_E4M3")) << name;
  }
}

}  // namespace
}  // namespace crossmesh
