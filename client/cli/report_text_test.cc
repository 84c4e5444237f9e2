#include "client/cli/report_text.h"

#include <string>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(ReportTextTest, WhatATerminalWouldObeyIsShownInstead) {
  EXPECT_EQ(Printable("a\x1b[31mb\x7f\tc\nd"), "a\\x1b[31mb\\x7f\\x09c\nd");
  EXPECT_EQ(Printable("\u009b31m"), "\\u009b31m");
  EXPECT_EQ(Printable("gr\u00f6\u00dfe"), "gr\u00f6\u00dfe");
  EXPECT_EQ(PrintableName(std::string("a\nb\0c", 5)), "a\\x0ab\\x00c");
}

TEST(ReportTextTest, OfAnIdAsMuchAsTellsItFromOthers) {
  EXPECT_EQ(ShortId("0123456789abcdef"), "0123456789ab");
  EXPECT_EQ(ShortId("plan"), "plan");
}

}  // namespace
}  // namespace crossmesh
