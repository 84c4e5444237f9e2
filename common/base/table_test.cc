#include "common/base/table.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(TextTableTest, AlignsColumns) {
  TextTable table({"NAME", "BYTES>", "STATE"});
  table.AddRow({"wte", "154 MB", "COMMITTED"});
  table.AddRow({"long name", "3 MB", "RUNNING"});
  EXPECT_EQ(table.ToString(),
            "NAME        BYTES  STATE\n"
            "---------  ------  ---------\n"
            "wte        154 MB  COMMITTED\n"
            "long name    3 MB  RUNNING\n");
  EXPECT_EQ(table.row_count(), 2u);
}

TEST(TextTableTest, EmptyCellsLeaveNoTrailingSpace) {
  TextTable table({"A", "B"});
  table.AddRow({"x", ""});
  table.AddRow({"", ""});
  EXPECT_EQ(table.ToString(), "A  B\n-  -\nx\n\n");
}

TEST(TextTableTest, WhatIsTakenIsNotTakenAgainAndColumnsStayAsWide) {
  TextTable table({"NAME", "BYTES>"});
  table.AddRow({"long name", "3"});
  EXPECT_EQ(table.TakeText(), "NAME       BYTES\n---------  -----\nlong name      3\n");
  EXPECT_EQ(table.TakeText(), "");
  table.AddRow({"wte", "1234567"});
  EXPECT_EQ(table.TakeText(), "wte        1234567\n");
  table.AddRow({"wpe", "1"});
  EXPECT_EQ(table.TakeText(), "wpe              1\n");
}

TEST(TextTableDeathTest, RowsHaveOneCellPerColumn) {
  TextTable table({"A", "B"});
  EXPECT_DEATH(table.AddRow({"x"}), "1 vs. 2");
}

}  // namespace
}  // namespace crossmesh
