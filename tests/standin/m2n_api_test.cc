#include "worker/gpu/libraries/m2n_api.h"

#include "common/testing/status_matchers.h"
#include "tests/standin/stand_in.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class M2nApiTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK_AND_ASSIGN(stand_in_, StandIn::Load()); }

  std::unique_ptr<StandIn> stand_in_;
};

TEST_F(M2nApiTest, ALibraryThatIsNotThereIsNamed) {
  EXPECT_THAT(M2nApi::Load(stand_in_->nccl(), {.library = "libnccl_m2n-that-is-not-there.so"}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("library libnccl_m2n-that-is-not-there.so cannot be loaded")));
}

TEST_F(M2nApiTest, ALibraryThatIsNotM2nIsRefusedWithWhatItLacks) {
  EXPECT_THAT(M2nApi::Load(stand_in_->nccl(), {.library = "libm.so.6"}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("libm.so.6"), HasSubstr("ncclM2nGroupEnd, "),
                             HasSubstr("ncclReshard"))));
}

TEST_F(M2nApiTest, NcclThatIsTooOldForItIsNamed) {
  setenv("CROSSMESH_STANDIN_NCCL_VERSION", "2.29.7", 1);
  ASSERT_OK_AND_ASSIGN(const auto older, NcclApi::Load({.library = StandInNcclPath()}));
  unsetenv("CROSSMESH_STANDIN_NCCL_VERSION");
  EXPECT_THAT(M2nApi::Load(*older, {.library = StandInM2nPath()}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("expected NCCL 2.30.5 or later"), HasSubstr("2.29.7"))));
}

TEST_F(M2nApiTest, ErrorsHaveTheCallAndM2nsText) {
  ASSERT_OK_AND_ASSIGN(const auto m2n,
                       M2nApi::Load(stand_in_->nccl(), {.library = StandInM2nPath()}));
  EXPECT_THAT(m2n->description(), HasSubstr("NCCL M2N, "));
  EXPECT_THAT(m2n->Check(m2n->ncclM2nGroupEnd(), "ncclM2nGroupEnd"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("ncclM2nGroupEnd: "), HasSubstr("without"))));
}

}  // namespace
}  // namespace crossmesh
