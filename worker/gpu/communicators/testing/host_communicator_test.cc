#include "worker/gpu/communicators/testing/host_communicator.h"

#include "common/base/thread.h"
#include "worker/gpu/communicators/testing/communicator_conformance.h"

#include <list>
#include <utility>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

class HostRank final : public RankUnderTest {
 public:
  explicit HostRank(std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  Communicator& communicator() override { return *communicator_; }
  CUstream stream() override { return nullptr; }
  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) override {
    return memory_.emplace_back(bytes);
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  const std::unique_ptr<Communicator> communicator_;
  std::list<std::vector<std::byte>> memory_;
};

// Each rank on a thread.
std::vector<std::string> RunThreads(int size,
                                    absl::FunctionRef<absl::Status(RankUnderTest&)> body) {
  std::vector<std::string> results(size);
  std::vector<Thread> threads;
  for (std::unique_ptr<Communicator>& communicator : MakeHostCommunicators(size)) {
    std::string& result = results[communicator->rank()];
    threads.emplace_back("rank", [&result, &body, rank = std::move(communicator)]() mutable {
      HostRank host_rank(std::move(rank));
      const absl::Status status = body(host_rank);
      if (!status.ok()) result = status.ToString();
    });
  }
  for (Thread& thread : threads) thread.Join();
  return results;
}

INSTANTIATE_TEST_SUITE_P(Host, CommunicatorConformanceTest,
                         testing::Values(CommunicatorUnderTest{"OneRank", 1, RunThreads},
                                         CommunicatorUnderTest{"TwoRanks", 2, RunThreads},
                                         CommunicatorUnderTest{"FiveRanks", 5, RunThreads}),
                         CommunicatorUnderTest::Name);

class HostCommunicatorTest : public testing::Test {
 protected:
  absl::Status Send(int from, int to, int64_t bytes) {
    const RankMessage message = {to, AddressOf(memory_), bytes};
    return ranks_[from]->Exchange({&message, 1}, {}, nullptr);
  }
  absl::Status Receive(int to, int from, int64_t bytes) {
    const RankMessage message = {from, AddressOf(memory_) + 50, bytes};
    return ranks_[to]->Exchange({}, {&message, 1}, nullptr);
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(100);
  std::vector<std::unique_ptr<Communicator>> ranks_ = MakeHostCommunicators(2);
};

TEST_F(HostCommunicatorTest, ASendWaitsForItsReceive) {
  ASSERT_OK(Send(0, 1, 10));
  EXPECT_THAT(ranks_[0]->Poll(), IsOkAndHolds(Communicator::Progress::kInProgress));
  ASSERT_OK(Receive(1, 0, 10));
  EXPECT_THAT(ranks_[0]->Poll(), IsOkAndHolds(Communicator::Progress::kIdle));
  EXPECT_THAT(ranks_[1]->Poll(), IsOkAndHolds(Communicator::Progress::kIdle));
}

TEST_F(HostCommunicatorTest, OtherSizesFailBothEnds) {
  ASSERT_OK(Send(0, 1, 10));
  ASSERT_OK(Receive(1, 0, 20));
  for (const auto& rank : ranks_) {
    EXPECT_THAT(
        rank->Poll(),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 HasSubstr("from rank 0 to rank 1 is sent as 10 bytes and received as 20")));
  }
}

TEST_F(HostCommunicatorTest, CollectivesThatDifferFailAllRanks) {
  const CUdeviceptr address = AddressOf(memory_);
  ASSERT_OK(ranks_[0]->Perform({.from = address, .to = address, .count = 10}, nullptr));
  ASSERT_OK(ranks_[1]->Perform({.from = address, .to = address, .count = 11}, nullptr));
  EXPECT_THAT(ranks_[0]->Poll(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("rank 1 makes broadcast of 11 U8, root 0")));
}

TEST_F(HostCommunicatorTest, RanksThatWaitForEachOtherFail) {
  ASSERT_OK(Send(0, 1, 10));
  EXPECT_THAT(ranks_[0]->Poll(), IsOkAndHolds(Communicator::Progress::kInProgress));
  ASSERT_OK(Send(1, 0, 10));
  EXPECT_THAT(ranks_[1]->Poll(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("all ranks wait for each other")));
}

}  // namespace
}  // namespace crossmesh
