#include "worker/pipeline/program_start.h"

#include "common/testing/status_matchers.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::RunProgramRequest::Start StartWithLost(const std::vector<int32_t>& ranks) {
  v1::RunProgramRequest::Start start;
  start.set_token(std::string(16, 't'));
  start.mutable_stall_limit()->set_seconds(1);
  start.mutable_lost_ranks()->Assign(ranks.begin(), ranks.end());
  return start;
}

TEST(ProgramStart, NamesTheRanksThatHaveLostTheirState) {
  ASSERT_OK_AND_ASSIGN(const ProgramStart start, FromProto(StartWithLost({0, 3})));
  EXPECT_THAT(start.lost_ranks, ElementsAre(0, 3));
}

TEST(ProgramStart, LostRanksAscendFromZero) {
  for (const auto& [ranks, found] : std::vector<std::pair<std::vector<int32_t>, std::string>>{
           {{-1}, "found -1"}, {{2, 2}, "found 2, 2"}, {{3, 1}, "found 3, 1"}}) {
    EXPECT_THAT(FromProto(StartWithLost(ranks)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(found)));
  }
}

}  // namespace
}  // namespace crossmesh
