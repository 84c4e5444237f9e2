// Printing and then parsing gives the same value; parsing damaged text never crashes.

#include "common/mesh/box.h"
#include "common/mesh/device.h"
#include "common/mesh/layout.h"
#include "common/mesh/layout_rules.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"
#include "common/mesh/testing/random_values.h"
#include "common/testing/status_matchers.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr uint64_t kTextCases = 2000;

Layout RandomExplicitLayout(RandomValues& random, const Shape& shape) {
  ExplicitLayout layout;
  layout.slots.resize(random.Between(1, 4));
  for (Tile& tile : layout.slots) {
    for (int64_t i = random.Between(0, 3); i > 0; --i) tile.push_back(random.RandomBox(shape));
  }
  return Layout(std::move(layout));
}

TEST(TextFormPropertyTest, ValuesSurvivePrintingAndParsing) {
  for (uint64_t seed = 1; seed <= kTextCases; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomValues random(seed);
    const Mesh mesh = random.RandomMesh();
    const Shape shape = random.RandomShape(4, 1000);
    const Box box = random.RandomBox(shape);
    const Layout axis_layout = random.RandomAxisLayout(mesh, shape);
    const Layout explicit_layout = RandomExplicitLayout(random, shape);
    Coordinates coordinates;
    for (const Axis& axis : mesh.axes()) coordinates.emplace_back(axis.name, axis.size);

    ASSERT_THAT(ParseMesh(ToString(mesh)), IsOkAndHolds(mesh));
    ASSERT_THAT(ParseAxes(AxesToString(mesh.axes())), IsOkAndHolds(mesh.axes()));
    ASSERT_THAT(ParseDevices(DevicesToString(mesh.devices())), IsOkAndHolds(mesh.devices()));
    ASSERT_THAT(ParseDevice(ToString(mesh.devices()[0])), IsOkAndHolds(mesh.devices()[0]));
    ASSERT_THAT(ParseCoordinates(CoordinatesToString(coordinates)), IsOkAndHolds(coordinates));
    ASSERT_THAT(ParseShape(ToString(shape)), IsOkAndHolds(shape));
    ASSERT_THAT(ParseBox(ToString(box)), IsOkAndHolds(box));
    ASSERT_THAT(ParseLayout(ToString(axis_layout)), IsOkAndHolds(axis_layout));
    ASSERT_THAT(ParseLayout(ToString(explicit_layout)), IsOkAndHolds(explicit_layout));
  }
}

TEST(TextFormPropertyTest, DamagedTextIsRefusedOrParsesToAValueThatPrints) {
  for (uint64_t seed = 1; seed <= kTextCases; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomValues random(seed);
    const Mesh mesh = random.RandomMesh();
    const Shape shape = random.RandomShape(4, 1000);
    const Layout layout = random.Between(0, 1) == 0 ? random.RandomAxisLayout(mesh, shape)
                                                    : RandomExplicitLayout(random, shape);
    for (std::string text : {ToString(mesh), ToString(shape), ToString(layout)}) {
      for (int64_t i = random.Between(1, 3); i > 0 && !text.empty(); --i) {
        const auto place = random.Between(0, static_cast<int64_t>(text.size()) - 1);
        if (random.Between(0, 2) == 0) {
          text.erase(place, 1);
        } else {
          text[place] = "[]{}:;,*-.=0a9 \xff"[random.Between(0, 15)];
        }
      }
      const absl::StatusOr<Mesh> parsed_mesh = ParseMesh(text);
      if (parsed_mesh.ok()) {
        ASSERT_THAT(ParseMesh(ToString(*parsed_mesh)), IsOkAndHolds(*parsed_mesh));
      }
      const absl::StatusOr<Shape> parsed_shape = ParseShape(text);
      if (parsed_shape.ok()) {
        ASSERT_THAT(ParseShape(ToString(*parsed_shape)), IsOkAndHolds(*parsed_shape));
      }
      const absl::StatusOr<Layout> parsed_layout = ParseLayout(text);
      if (parsed_layout.ok()) {
        ASSERT_THAT(ParseLayout(ToString(*parsed_layout)), IsOkAndHolds(*parsed_layout));
      }
      const absl::StatusOr<LayoutRules> rules = LayoutRules::Parse(text);
      if (rules.ok()) {
        (void)rules->Match(text, 2);
      }
    }
  }
}

}  // namespace
}  // namespace crossmesh
