// What plans between GPUs are compiled to: that they fit into staging, and what of launches, groups
// and messages a GPU has for each GiB.

#include "common/base/check.h"
#include "common/mesh/gpu_host.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"
#include "planner/reshard/plan_reshard.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/part_work.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

Plan PlanOnH100s(const std::string& tensor) {
  ReshardRequest request;
  request.tensors =
      std::make_shared<const TensorTable>(TableOf({TensorOf(tensor, DataType::kBF16)}));
  request.topology = *GpuHosts("h100x8", request.tensors->hosts());
  absl::StatusOr<Plan> plan = PlanReshard(request);
  CHECK_OK(plan);
  return *std::move(plan);
}

struct Case {
  std::string name;
  std::string tensor;
  double groups_per_gib_max = 0;
  int64_t message_bytes_min = 0;  // in the mean
};

TEST(GpuPlansTest, FitIntoStagingAndHaveFewLongSteps) {
  const std::vector<Case> cases = {
      {"4 GPUs to 4 of a host", "[86016, 86016]: x=4 on a.0-3 [x, -] -> y=4 on a.4-7 [-, y]", 20,
       8 * kMiB},
      {"8 GPUs of a host", "[86016, 86016]: x=8 on a.0-7 [x, -] -> y=8 on a.0-7 [-, y]", 24,
       2 * kMiB},
      {"16 GPUs to 4 replicas",
       "[86016, 86016]: x=16 on a.0-7,b.0-7 [x, -] -> r=4,y=8 on e.0-7,f.0-7,g.0-7,h.0-7 [-, y]",
       40, kMiB / 2},
      {"one GPU to 4 replicas",
       "[86016, 86016]: x=1 on a.0 [-, -] -> r=4 on b.0,c.0,d.0,e.0 [-, -]", 40, 8 * kMiB}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Plan plan = PlanOnH100s(c.tensor);
    ASSERT_OK_AND_ASSIGN(const CompiledParts parts,
                         CompiledPartsOf(plan, {.staging_bytes = 256 * kMiB}));
    for (const auto& part : parts) {
      const PartWork work = WorkOf(*part);
      const double gib = work.gibibytes();
      EXPECT_LE(static_cast<double>(work.groups), c.groups_per_gib_max * gib) << gib << " GiB";
      EXPECT_LE(work.launches, 3 * work.steps);
      EXPECT_GE(work.bytes, c.message_bytes_min * work.messages);
      if (&part != &parts.back()) continue;
      RecordProperty(c.name, absl::StrCat(static_cast<double>(work.launches) / gib, " launches, ",
                                          static_cast<double>(work.groups) / gib,
                                          " groups per GiB, messages of ",
                                          work.bytes / std::max<int64_t>(1, work.messages)));
    }
  }
}

}  // namespace
}  // namespace crossmesh
