#include "client/drawing/plan_drawing.h"

#include "client/drawing/host_places.h"
#include "client/drawing/testing/svg_reader.h"
#include "client/drawing/timeline.h"
#include "common/base/check.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/random_topology.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"
#include "planner/reshard/plan_reshard.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

struct Simulated {
  Plan plan;
  Topology topology;
  SimulatedTimeline run;

  SimulatedPlan view() const { return {.plan = plan, .topology = topology, .run = run}; }
};

Simulated Simulation(ReshardRequest request) {
  absl::StatusOr<Plan> plan = PlanReshard(request);
  CHECK_OK(plan);
  absl::StatusOr<SimulatedTimeline> run =
      Simulate(*plan, request.topology, {.keep_transfers = true});
  CHECK_OK(run);
  return {*std::move(plan), std::move(request.topology), *std::move(run)};
}

Simulated Simulation(const TensorText& tensor, const Topology& topology = {},
                     Strategy strategy = Strategy::kRelay) {
  return Simulation({.tensors = std::make_shared<const TensorTable>(TableOf({tensor})),
                     .topology = topology,
                     .strategy = strategy});
}

// 16 MiB that `from` hold, to all of `to`.
TensorText CopyOf(const std::vector<std::string>& from, const std::vector<std::string>& to) {
  const auto mesh = [](char axis, const std::vector<std::string>& hosts) {
    return absl::StrCat(std::string(1, axis), "=", hosts.size(), " on ",
                        absl::StrJoin(hosts, ".0,"), ".0");
  };
  return {.shape = "[4194304]",
          .source_mesh = mesh('x', from),
          .source = "[-]",
          .destination_mesh = mesh('y', to),
          .destination = "[-]"};
}

std::vector<std::string> Hosts(const std::string& prefix, int count) {
  std::vector<std::string> hosts;
  for (int i = 0; i < count; ++i) hosts.push_back(absl::StrCat(prefix, i));
  return hosts;
}

Topology TwoNics(const std::vector<std::string>& names, std::vector<Rack> racks = {}) {
  std::vector<Host> hosts;
  for (const std::string& name : names) {
    hosts.push_back(
        {.name = name, .nics = {{"left", 1 << 30, 1 << 30}, {"right", 1 << 30, 1 << 30}}});
  }
  absl::StatusOr<Topology> topology = Topology::Create(std::move(hosts), std::move(racks));
  CHECK_OK(topology);
  return *std::move(topology);
}

// A picture, read back.
struct Picture {
  explicit Picture(const Simulated& simulated) : text(DrawPlan(simulated.view())) {
    absl::StatusOr<std::vector<SvgElement>> read = ReadSvg(text);
    CHECK_OK(read);
    elements = *std::move(read);
  }

  bool IsIn(const SvgElement& element, const std::string& css_class) const {
    return element.parent >= 0 && elements[element.parent].attribute("class") == css_class;
  }
  std::vector<SvgElement> Of(const std::string& name, const std::string& css_class) const {
    std::vector<SvgElement> found;
    for (const SvgElement& element : elements) {
      if (element.name == name && element.attribute("class") == css_class) found.push_back(element);
    }
    return found;
  }
  std::vector<std::string> TitlesIn(const std::string& css_class) const {
    std::vector<std::string> titles;
    for (const SvgElement& element : elements) {
      if (element.name == "title" && IsIn(element, css_class)) titles.push_back(element.text);
    }
    return titles;
  }
  std::vector<std::string> Texts() const {
    std::vector<std::string> texts;
    for (const SvgElement& element : elements) {
      if (element.name == "text") texts.push_back(element.text);
    }
    return texts;
  }

  std::string text;
  std::vector<SvgElement> elements;
};

// Every bar lies in a row of the timeline, and every host on the paper beside all others.
void ExpectAllInPlace(const Picture& picture) {
  const double width = picture.elements[0].number("width");
  const double height = picture.elements[0].number("height");
  std::vector<DrawnBox> hosts;
  for (const SvgElement& box : picture.Of("rect", "box")) {
    hosts.push_back({box.number("x"), box.number("y"), box.number("width"), box.number("height")});
    EXPECT_GE(hosts.back().x, 0);
    EXPECT_LT(hosts.back().right(), width - 60);
    EXPECT_LT(hosts.back().bottom(), height - 60);
    for (size_t i = 0; i + 1 < hosts.size(); ++i) EXPECT_FALSE(hosts[i].Overlaps(hosts.back()));
  }
  for (const SvgElement& bars : picture.Of("path", "bars")) {
    const auto row = std::ranges::find_if(picture.elements, [&](const SvgElement& e) {
      return e.parent == bars.parent && e.attribute("class") == "row";
    });
    ASSERT_NE(row, picture.elements.end());
    const double left = row->number("x"), top = row->number("y");
    for (const SvgBar& bar : ReadBars(bars.attribute("d"))) {
      EXPECT_GE(bar.x, left);
      EXPECT_LE(bar.x + bar.width, left + row->number("width") + 0.35);
      EXPECT_GE(bar.y, top - 0.1);
      EXPECT_LE(bar.y + bar.height, top + row->number("height") + 0.2);
    }
  }
}

TEST(PlanDrawingTest, AChainIsALineOfHosts) {
  const Picture picture(Simulation(CopyOf({"a"}, {"b", "c", "d", "e"})));
  EXPECT_THAT(picture.TitlesIn("host"), ElementsAre("a", "b", "c", "d", "e"));
  double last = -1;
  for (const SvgElement& box : picture.Of("rect", "box")) {
    EXPECT_GT(box.number("x"), last);
    EXPECT_EQ(box.attribute("y"), picture.Of("rect", "box")[0].attribute("y"));
    last = box.number("x") + box.number("width");
  }
  EXPECT_THAT(picture.Of("path", "route"), SizeIs(4));
  EXPECT_THAT(picture.Of("text", "bytes"), SizeIs(4));
  EXPECT_EQ(picture.Of("text", "bytes")[0].text, "16.8 MB");
  EXPECT_THAT(picture.TitlesIn("port"),
              ElementsAre("a/nic out", "b/nic in", "b/nic out", "c/nic in", "c/nic out", "d/nic in",
                          "d/nic out", "e/nic in"));
  EXPECT_THAT(picture.Texts(), Contains(HasSubstr("rates are assumed")));
  ExpectAllInPlace(picture);
}

TEST(PlanDrawingTest, TheBoundIsALineBeforeTheEnd) {
  const Simulated simulated = Simulation(CopyOf({"a"}, {"b", "c", "d", "e"}));
  const Picture picture(simulated);
  // The legend has the first kind of line as well.
  const SvgElement bound = picture.Of("line", "bound")[0], end = picture.Of("line", "end")[0];
  EXPECT_EQ(bound.attribute("x1"), bound.attribute("x2"));
  const double left = picture.Of("rect", "row")[0].number("x");
  const double ratio = simulated.plan.figures().bound.seconds / simulated.run.seconds;
  EXPECT_NEAR((bound.number("x1") - left) / (end.number("x1") - left), ratio, 0.001);
  EXPECT_THAT(picture.Texts(), Contains("time (ms)"));
}

TEST(PlanDrawingTest, EveryNicHasALineAndRows) {
  const Topology topology = TwoNics({"a", "b"});
  const Picture picture(Simulation(CopyOf({"a"}, {"b"}), topology));
  EXPECT_THAT(picture.TitlesIn("port"),
              ElementsAre("a/left out", "a/right out", "b/left in", "b/right in"));
  EXPECT_THAT(picture.Texts(), Contains("left"));
  EXPECT_THAT(picture.Texts(), Contains("right"));
  EXPECT_THAT(picture.Texts(), Contains("1.1 GB/s"));
  EXPECT_THAT(picture.Texts(), Not(Contains(HasSubstr("assumed"))));
  EXPECT_THAT(picture.Of("rect", "use"), SizeIs(8));
}

TEST(PlanDrawingTest, RacksAreFramesAndTheirUplinksRows) {
  const Topology topology =
      TwoNics({"a", "b", "c", "d"},
              {{"north", {"a", "b"}, 1 << 30, 1 << 30}, {"south", {"c", "d"}, 1 << 30, 1 << 30}});
  TensorText tensor = CopyOf({"a", "b"}, {"c", "d"});
  tensor.source = "[x]";
  tensor.destination = "[y]";
  const Picture picture(Simulation(tensor, topology));
  EXPECT_THAT(picture.Of("rect", "rack"), SizeIs(2));
  EXPECT_THAT(picture.Texts(), Contains("rack north"));
  EXPECT_THAT(picture.TitlesIn("port"), Contains("north up"));
  EXPECT_THAT(picture.TitlesIn("port"), Contains("south down"));
  ExpectAllInPlace(picture);
}

TEST(PlanDrawingTest, ColoursAreThoseOfTheRoots) {
  const Picture picture(Simulation(CopyOf({"a", "b"}, {"c", "d", "e"})));
  std::vector<std::string> strokes;
  for (const SvgElement& route : picture.Of("path", "route")) {
    strokes.push_back(route.attribute("stroke"));
  }
  std::ranges::sort(strokes);
  const auto colours = std::ranges::unique(strokes);
  EXPECT_EQ(std::distance(strokes.begin(), colours.begin()), 2);
  for (const char* root : {"a", "b"}) EXPECT_THAT(picture.Texts(), Contains(root));
}

TEST(PlanDrawingTest, WhatNeedsNoNetworkSaysSo) {
  const Picture picture(Simulation(CopyOf({"a", "b"}, {"b", "a"})));
  EXPECT_THAT(picture.Texts(), Contains(HasSubstr("Nothing crosses the network")));
  EXPECT_THAT(picture.Of("rect", "row"), SizeIs(0));
}

TEST(PlanDrawingTest, BigPlansAreCutDownAndSaySo) {
  const std::vector<std::string> from = Hosts("old", 16), to = Hosts("new", 30);
  TensorText tensor = CopyOf(from, to);
  tensor.source = "[x]";
  const Picture picture(Simulation(tensor, TwoNics({}), Strategy::kSendRecv));
  EXPECT_THAT(picture.TitlesIn("host"), SizeIs(NetworkPlaces::kHostsMax));
  EXPECT_THAT(picture.Of("rect", "row"), SizeIs(Timeline::kRowsMax));
  EXPECT_THAT(picture.Texts(), Contains(HasSubstr("Not drawn, since others have more to do: "
                                                  "22 hosts")));
  EXPECT_LT(picture.text.size(), 300'000u);
  ExpectAllInPlace(picture);
}

TEST(PlanDrawingTest, EqualPlansGiveEqualPictures) {
  const TensorText tensor = CopyOf({"a", "b"}, {"c", "d", "e"});
  EXPECT_EQ(DrawPlan(Simulation(tensor).view()), DrawPlan(Simulation(tensor).view()));
}

TEST(PlanDrawingTest, AnyPlanIsAPicture) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    ReshardRequest request;
    request.tensors = std::make_shared<const TensorTable>(RandomTensorTable(random));
    request.topology = RandomTopology(random, *request.tensors);
    request.strategy = kAllStrategies[seed % std::size(kAllStrategies)];
    ExpectAllInPlace(Picture(Simulation(std::move(request))));
  }
}

TEST(TimelineTest, ShortChunksBecomeRunsAndLongOnesStay) {
  const Simulated simulated = Simulation(CopyOf({"a"}, {"b"}));
  const DrawnPlan drawn(simulated.view());
  const double seconds = simulated.run.seconds;
  const Timeline coarse = MakeTimeline(drawn, seconds / 600);
  ASSERT_THAT(coarse.rows, SizeIs(2));
  ASSERT_THAT(coarse.rows[0].bars, SizeIs(1));
  EXPECT_DOUBLE_EQ(coarse.rows[0].bars[0].end, seconds);
  EXPECT_NEAR(coarse.rows[0].lanes[0], 1, 1e-9);
  const Timeline fine = MakeTimeline(drawn, seconds / 6000);
  EXPECT_THAT(fine.rows[0].bars, SizeIs(simulated.run.transfers.size()));
}

TEST(TimelineTest, TheCriticalChainEndsWithTheRun) {
  const Simulated simulated = Simulation(CopyOf({"a"}, {"b", "c", "d"}));
  const Timeline timeline = MakeTimeline(DrawnPlan(simulated.view()), 1e-6);
  ASSERT_THAT(timeline.critical, SizeIs(3));  // a, b, c, d
  EXPECT_EQ(timeline.critical.front().begin, 0);
  EXPECT_EQ(timeline.critical.back().end, simulated.run.seconds);
  for (size_t i = 0; i + 1 < 3; ++i) {
    EXPECT_EQ(timeline.critical[i].end, timeline.critical[i + 1].begin);
  }
}

TEST(TimelineTest, LanesSayWhichPartOfTheRatePasses) {
  // Two hosts send to one at the same time.
  TensorText tensor = CopyOf({"a", "b"}, {"c"});
  tensor.source = "[x]";
  const Simulated simulated = Simulation(tensor);
  const Timeline timeline = MakeTimeline(DrawnPlan(simulated.view()), 1e-6);
  ASSERT_THAT(timeline.rows, SizeIs(3));
  const TimelineRow& into_c = timeline.rows[2];
  ASSERT_THAT(into_c.lanes, SizeIs(2));
  EXPECT_NEAR(into_c.lanes[0], 0.5, 1e-6);
  EXPECT_NEAR(into_c.lanes[1], 0.5, 1e-6);
}

TEST(TimelineTest, BarsAreFewWhateverThePlan) {
  const std::vector<std::string> hosts = Hosts("h", 16);
  TensorText tensor = CopyOf(hosts, hosts);
  tensor.source = "[x]";
  const Simulated simulated = Simulation(tensor);
  const Timeline timeline = MakeTimeline(DrawnPlan(simulated.view()), simulated.run.seconds / 1e9);
  size_t bars = 0;
  for (const TimelineRow& row : timeline.rows) bars += row.bars.size();
  EXPECT_GT(simulated.run.transfers.size(), Timeline::kBarsMax);
  EXPECT_LE(bars, Timeline::kBarsMax);
}

}  // namespace
}  // namespace crossmesh
