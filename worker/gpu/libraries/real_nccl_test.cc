// The binding against NCCL itself, as far as it goes on a machine without a driver.

#include "common/testing/status_matchers.h"
#include "worker/gpu/libraries/driver_api.h"
#include "worker/gpu/libraries/nccl_api.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RealNcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(nccl_, NcclApi::Load({.library = CROSSMESH_NCCL_LIBRARY}));
  }

  // What follows is what NCCL says where there is none.
  static bool HasDriver() { return DriverApi::Load({}).ok(); }

  std::unique_ptr<const NcclApi> nccl_;
};

TEST_F(RealNcclTest, IsOfTheHeadersVersion) {
  EXPECT_EQ(nccl_->version(), NCCL_VERSION_CODE);
  EXPECT_EQ(nccl_->description(), "NCCL 2.30.7, " CROSSMESH_NCCL_LIBRARY);
}

TEST_F(RealNcclTest, SuccessAndInProgressAreNoErrors) {
  EXPECT_OK(nccl_->Check(ncclSuccess, "ncclSend"));
  EXPECT_OK(nccl_->Check(ncclInProgress, "ncclSend"));
}

TEST_F(RealNcclTest, ErrorsHaveTheCallAndNcclsText) {
  EXPECT_THAT(nccl_->Check(ncclRemoteError, "ncclSend"),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("ncclSend: remote process exited"), HasSubstr("(6)"))));
  EXPECT_THAT(nccl_->Check(ncclInvalidArgument, "ncclSend"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("ncclSend: invalid argument"), HasSubstr("(4)"))));
  EXPECT_THAT(nccl_->Check(ncclSystemError, "ncclSend"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("unhandled system error")));
  EXPECT_THAT(nccl_->Check(ncclTimeout, "ncclSend"),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("(8)")));
  EXPECT_THAT(nccl_->Check(ncclInternalError, "ncclSend"),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("internal error")));
}

TEST_F(RealNcclTest, UniqueIdsNeedNoDriverAndDiffer) {
  ncclUniqueId first;
  ncclUniqueId second;
  ASSERT_OK(nccl_->Check(nccl_->ncclGetUniqueId(&first), "ncclGetUniqueId"));
  ASSERT_OK(nccl_->Check(nccl_->ncclGetUniqueId(&second), "ncclGetUniqueId"));
  EXPECT_FALSE(std::ranges::equal(first.internal, second.internal));
}

TEST_F(RealNcclTest, AGroupEndsOnlyOnceItHasStarted) {
  EXPECT_THAT(
      nccl_->Check(nccl_->ncclGroupEnd(), "ncclGroupEnd"),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("ncclGroupEnd: invalid usage")));
  EXPECT_EQ(nccl_->ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(nccl_->ncclGroupEnd(), ncclSuccess);
}

TEST_F(RealNcclTest, MemoryNeedsADriver) {
  if (HasDriver()) GTEST_SKIP() << "this machine has a driver";
  void* memory = nullptr;
  EXPECT_THAT(
      nccl_->Check(nccl_->ncclMemAlloc(&memory, 4096), "ncclMemAlloc"),
      StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr("ncclMemAlloc: unhandled cuda error"),
                                                  HasSubstr("driver version is insufficient"))));
  EXPECT_EQ(memory, nullptr);
}

TEST_F(RealNcclTest, ACommunicatorNeedsADriver) {
  if (HasDriver()) GTEST_SKIP() << "this machine has a driver";
  ncclUniqueId id;
  ASSERT_EQ(nccl_->ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t communicator = nullptr;
  EXPECT_THAT(nccl_->Check(nccl_->ncclCommInitRankConfig(&communicator, 1, id, 0, &config),
                           "ncclCommInitRankConfig"),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("unhandled cuda error"), HasSubstr("driver"))));
  EXPECT_EQ(communicator, nullptr);
}

TEST(RealDriverTest, AMachineWithoutADriverSaysWhichLibraryItLacks) {
  const auto driver = DriverApi::Load({});
  if (driver.ok()) GTEST_SKIP() << "this machine has " << (*driver)->description();
  EXPECT_THAT(driver, StatusIs(absl::StatusCode::kNotFound,
                               HasSubstr("library libcuda.so.1 cannot be loaded")));
}

}  // namespace
}  // namespace crossmesh
