#include "controller/leadership/etcd/etcd_candidate.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "controller/store/etcd/testing/etcd_process.h"
#include "controller/store/etcd/testing/unix_proxy.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

namespace crossmesh {
namespace {

bool BecomesReadable(const EventFd& event) {
  pollfd poll = {event.fd(), POLLIN, 0};
  return ::poll(&poll, 1, 30'000) == 1;
}
bool IsReadable(const EventFd& event) {
  pollfd poll = {event.fd(), POLLIN, 0};
  return ::poll(&poll, 1, 0) == 1;
}

class EtcdCandidateTest : public testing::Test {
 protected:
  static std::unique_ptr<EtcdCandidate> Start(const std::string& endpoint,
                                              const std::string& address) {
    absl::StatusOr<std::unique_ptr<EtcdCandidate>> candidate =
        EtcdCandidate::Start({.store = {.etcd = {.endpoints = {endpoint}}},
                              .address = address,
                              .lease_time = absl::Seconds(1)});
    EXPECT_OK(candidate.status());
    return *std::move(candidate);
  }

  EtcdProcess etcd_;
};

TEST_F(EtcdCandidateTest, TheNextTermBeginsWithAllThatTheOneBeforeHasWritten) {
  const std::unique_ptr<EtcdCandidate> first = Start(etcd_.endpoint(), "first:1");
  ASSERT_TRUE(BecomesReadable(first->has_begun()));
  const std::unique_ptr<EtcdCandidate> second = Start(etcd_.endpoint(), "second:1");
  const uint64_t epoch = *first->standing().epoch;
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(
        first->store()->Commit({.epoch = epoch, .writes = {{"k", absl::StrCat(i)}}}).status());
  }
  EXPECT_THAT(second->store()->Commit({.epoch = epoch, .writes = {{"k", "x"}}}),
              StatusIs(absl::StatusCode::kAborted));
  first->Resign(absl::Seconds(10));
  EXPECT_TRUE(IsReadable(first->has_ended()));
  ASSERT_TRUE(BecomesReadable(second->has_begun()));
  EXPECT_EQ(second->store()->Get("k")->value, "19");
  const uint64_t next_epoch = *second->standing().epoch;
  EXPECT_GT(next_epoch, epoch);
  EXPECT_OK(second->store()->Commit({.epoch = next_epoch, .writes = {{"k", "20"}}}).status());
  EXPECT_THAT(first->store()->Commit({.epoch = epoch, .writes = {{"k", "late"}}}),
              StatusIs(absl::StatusCode::kAborted));
  EXPECT_FALSE(IsReadable(second->has_ended()));
}

TEST_F(EtcdCandidateTest, OneThatIsCutOffIsToldThatItsTermHasEnded) {
  UnixProxy proxy(etcd_.socket());
  const std::unique_ptr<EtcdCandidate> first = Start(proxy.endpoint(), "first:1");
  ASSERT_TRUE(BecomesReadable(first->has_begun()));
  const std::unique_ptr<EtcdCandidate> second = Start(etcd_.endpoint(), "second:1");
  proxy.Hold();
  ASSERT_TRUE(BecomesReadable(first->has_ended()));
  EXPECT_FALSE(first->leads());
  EXPECT_THAT(first->standing().why, StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_TRUE(BecomesReadable(second->has_begun()));
  EXPECT_TRUE(second->leads());
  proxy.Heal();
}

TEST_F(EtcdCandidateTest, TheStoreMayOutliveIt) {
  std::unique_ptr<EtcdCandidate> candidate = Start(etcd_.endpoint(), "first:1");
  const std::shared_ptr<EtcdStore> store = candidate->store();
  candidate.reset();
  EXPECT_THAT(store->Commit({.epoch = 1, .writes = {{"k", "1"}}}),
              StatusIs(absl::StatusCode::kAborted));
}

TEST_F(EtcdCandidateTest, AnEtcdThatWasSetBackWhileNoControllerRanIsRefused) {
  const TemporaryFolder folder;
  EtcdCandidate::Options options{.store = {.etcd = etcd_.options()},
                                 .address = "first:1",
                                 .lease_time = absl::Seconds(1),
                                 .watermark = folder.PathOf("watermark")};
  const auto lead_and_commit = [&options](const std::string& value) {
    absl::StatusOr<std::unique_ptr<EtcdCandidate>> candidate = EtcdCandidate::Start(options);
    ASSERT_OK(candidate.status());
    ASSERT_TRUE(BecomesReadable((*candidate)->has_begun()));
    const uint64_t epoch = *(*candidate)->standing().epoch;
    ASSERT_OK((*candidate)->store()->Commit({.epoch = epoch, .writes = {{"k", value}}}).status());
    (*candidate)->Resign(absl::Seconds(10));
  };
  lead_and_commit("1");
  etcd_.Kill();
  const std::string backup = folder.PathOf("backup");
  std::filesystem::copy(etcd_.data_folder(), backup, std::filesystem::copy_options::recursive);
  etcd_.Start();
  lead_and_commit("2");
  etcd_.Kill();
  std::filesystem::remove_all(etcd_.data_folder());
  std::filesystem::copy(backup, etcd_.data_folder(), std::filesystem::copy_options::recursive);
  etcd_.Start();
  for (int start = 0; start < 2; ++start) {
    EXPECT_THAT(EtcdCandidate::Start(options),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         testing::AllOf(testing::HasSubstr("was set back"),
                                        testing::HasSubstr(options.watermark))));
  }
  // The operator takes it as it is.
  ASSERT_TRUE(std::filesystem::remove(options.watermark));
  lead_and_commit("3");
}

}  // namespace
}  // namespace crossmesh
