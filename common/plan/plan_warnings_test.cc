#include "common/plan/plan_warnings.h"

#include "common/plan/testing/tables.h"

#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TensorTable From(const std::string& source, const std::string& destination) {
  return TableOf({{.shape = "[4096]",
                   .source_mesh = "x=1 on " + source,
                   .source = "[-]",
                   .destination_mesh = destination,
                   .destination = "[-]"}});
}

Topology Describing(const std::string& host) {
  return *Topology::Create({{host, {{"eth0", 1, 1}}}}, {}, 2'000'000);
}

TEST(PlanWarningsTest, NameTheHostsThatADescriptionLacks) {
  EXPECT_THAT(PlanWarnings(From("a.0", "y=3 on a.1,b.0,c.0"), Describing("a")),
              ElementsAre("the network description lacks b, c: 2.0 MB/s per host and direction "
                          "assumed"));
}

TEST(PlanWarningsTest, CountTheHostsThatAreTooManyToName) {
  std::string devices = "h0.0";
  for (int i = 1; i < 20; ++i) absl::StrAppend(&devices, ",h", i, ".0");
  EXPECT_THAT(PlanWarnings(From("a.0", "y=20 on " + devices), Describing("a")),
              ElementsAre(HasSubstr("h5 and 4 more: ")));
}

TEST(PlanWarningsTest, AreNoneWhereAllHostsOrNoneAreDescribed) {
  EXPECT_THAT(PlanWarnings(From("a.0", "y=1 on a.1"), Describing("a")), IsEmpty());
  EXPECT_THAT(PlanWarnings(From("a.0", "y=1 on b.0"), Topology()), IsEmpty());
}

}  // namespace
}  // namespace crossmesh
