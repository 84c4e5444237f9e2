#include "common/mesh/utf8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(Utf8Test, AcceptsWellFormedText) {
  for (const char* text : {"", "abc", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xc3\xa9z"}) {
    EXPECT_TRUE(IsValidUtf8(text)) << text;
  }
}

TEST(Utf8Test, RefusesMalformedText) {
  for (const char* text : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2z", "\xe0\x9f\xbf",
                           "\xed\xa0\x80", "\xed\xbf\xbf", "\xe2\x82", "\xf0\x8f\xbf\xbf",
                           "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff", "abc\xfe"}) {
    EXPECT_FALSE(IsValidUtf8(text)) << ::testing::PrintToString(text);
  }
}

TEST(Utf8Test, ReplacesOnlyWhatIsMalformed) {
  EXPECT_EQ(ReplaceInvalidUtf8("a\xc3\xa9z"), "a\xc3\xa9z");
  EXPECT_EQ(ReplaceInvalidUtf8("a\xc3"), "a?");
  EXPECT_EQ(ReplaceInvalidUtf8("\xff\xed\xa0\x80z"), "????z");
}

}  // namespace
}  // namespace crossmesh
