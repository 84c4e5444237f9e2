#include "client/drawing/svg_writer.h"

#include "client/drawing/testing/svg_reader.h"
#include "common/testing/status_matchers.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(SvgWriterTest, WhatIsOpenIsClosed) {
  SvgWriter svg(10, 20.5, "text{fill:#000}");
  svg.Open("g");
  svg.Open("g", {{"class", "inner"}});
  svg.Add("line", {{"x1", 1}, {"y2", 2.25}});
  svg.Close();
  svg.AddText("text", "word", {{"x", 3}});
  ASSERT_OK_AND_ASSIGN(const std::vector<SvgElement> elements, ReadSvg(std::move(svg).Finish()));
  ASSERT_EQ(elements.size(), 6u);
  EXPECT_EQ(elements[0].attribute("viewBox"), "0 0 10 20.5");
  EXPECT_EQ(elements[4].name, "line");
  EXPECT_EQ(elements[4].parent, 3);
  EXPECT_EQ(elements[4].attribute("y2"), "2.3");
  EXPECT_EQ(elements[5].text, "word");
  EXPECT_EQ(elements[5].parent, 2);
}

TEST(SvgWriterTest, TextIsEscapedEverywhere) {
  SvgWriter svg(1, 1, "");
  svg.AddText("text", "a<b> & \"c\"\x01\xff", {{"class", "\"><script>"}});
  const std::string text = std::move(svg).Finish();
  ASSERT_OK_AND_ASSIGN(const std::vector<SvgElement> elements, ReadSvg(text));
  ASSERT_EQ(elements.size(), 3u);
  EXPECT_EQ(elements[2].text, "a&lt;b&gt; &amp; &quot;c&quot;??");
  EXPECT_EQ(elements[2].attribute("class"), "&quot;&gt;&lt;script&gt;");
}

TEST(SvgWriterTest, LengthsHaveOneDecimalAtMost) {
  EXPECT_EQ(SvgNumber(0), "0");
  EXPECT_EQ(SvgNumber(12.04), "12");
  EXPECT_EQ(SvgNumber(12.06), "12.1");
  EXPECT_EQ(SvgNumber(-0.26), "-0.3");
}

TEST(SvgWriterTest, LongLabelsKeepBothEnds) {
  EXPECT_EQ(SvgLabel("node-17", 7), "node-17");
  EXPECT_EQ(SvgLabel("node-17.rack.example", 14), "node-17...mple");
  EXPECT_EQ(SvgLabel("node-17.rack.example", 14).size(), 14u);
}

TEST(SvgReaderTest, RefusesWhatIsNotWellFormed) {
  for (const char* text : {"<a>", "<a></b>", "<a x=1/>", "<a x=\"1\" x=\"2\"/>", "<a>&b</a>",
                           "<a/><b/>", "<a x=\"<\"/>", "<a"}) {
    EXPECT_THAT(ReadSvg(text), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
  }
}

}  // namespace
}  // namespace crossmesh
