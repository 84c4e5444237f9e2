#include "controller/service/pipeline_run_registry.h"

#include "common/base/fake_clock.h"
#include "common/testing/status_matchers.h"
#include "common/wire/time_codec.h"
#include "controller/dispatch/testing/manual_task_queue.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FakeWatcher final : public PipelineWatcher {
 public:
  bool OnRun(const v1::PipelineRun& run) override {
    revisions.push_back(run.revision());
    return std::ssize(revisions) < enough;
  }
  void OnNoRun(const absl::Status& status) override { dismissal = status; }

  int64_t enough = 100;
  std::vector<int64_t> revisions;
  absl::Status dismissal;
};

class PipelineRunRegistryTest : public ::testing::Test {
 protected:
  static v1::StartPipelineRequest Request(const std::string& id, int64_t iterations = 1) {
    v1::StartPipelineRequest request;
    request.set_request_id(id);
    request.set_pipeline("p");
    request.set_iterations(iterations);
    return request;
  }
  v1::PipelineRun Open(const std::string& request_id) {
    const auto entry = registry_.Open(Request(request_id));
    EXPECT_OK(entry);
    EXPECT_TRUE(entry->is_new);
    return entry->run;
  }
  void Tell(v1::PipelineRun& run, bool ended = false, size_t error_bytes = 0) {
    run.set_revision(run.revision() + 1);
    run.set_error(std::string(error_bytes, 'x'));
    if (ended) *run.mutable_end_time() = ToProto(clock_.Now());
    registry_.OnRun(std::make_shared<const v1::PipelineRun>(run));
  }
  std::shared_ptr<FakeWatcher> Watch(const std::string& id) {
    auto watcher = std::make_shared<FakeWatcher>();
    registry_.Watch(id, watcher);
    queue_.Run();
    return watcher;
  }
  std::vector<std::string> ListedRequests(const std::string& before = "", int64_t limit = 100) {
    std::vector<std::string> listed;
    for (const auto& run : registry_.List(before, limit)) listed.push_back(run->request_id());
    return listed;
  }

  FakeClock clock_;
  ManualTaskQueue queue_{clock_};
  PipelineRunRegistry registry_{
      {.queue = queue_, .clock = clock_, .epoch = 7, .ended_max = 3, .ended_bytes_max = 1000}};
};

TEST_F(PipelineRunRegistryTest, ARequestIdNamesOneRun) {
  const v1::PipelineRun run = Open("r");
  EXPECT_EQ(run.id(), "pr-0000000000000008");
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_PREPARING);
  ASSERT_OK_AND_ASSIGN(const auto again, registry_.Open(Request("r")));
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.run.id(), run.id());
  EXPECT_THAT(registry_.Open(Request("r", 2)),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(run.id())));
  EXPECT_THAT(registry_.Find(Request("s")), IsOkAndHolds(std::nullopt));
}

TEST_F(PipelineRunRegistryTest, AWatcherHearsEveryChangeUntilTheEnd) {
  v1::PipelineRun run = Open("r");
  const auto watcher = Watch(run.id());
  Tell(run);
  Tell(run, /*ended=*/true);
  EXPECT_THAT(watcher->revisions, ElementsAre(1, 2, 3));
  EXPECT_THAT(Watch(run.id())->revisions, ElementsAre(3));
  EXPECT_THAT(Watch("pr-0")->dismissal, StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(PipelineRunRegistryTest, AWatcherThatHasEnoughHearsNoMore) {
  v1::PipelineRun run = Open("r");
  const auto watcher = Watch(run.id());
  watcher->enough = 2;
  Tell(run);
  Tell(run);
  EXPECT_THAT(watcher->revisions, ElementsAre(1, 2));
}

TEST_F(PipelineRunRegistryTest, WatchersAreDismissedOnceAndForAll) {
  v1::PipelineRun run = Open("r");
  const auto watcher = Watch(run.id());
  registry_.DismissWatchers(absl::UnavailableError("stopping"));
  EXPECT_THAT(watcher->dismissal, StatusIs(absl::StatusCode::kUnavailable));
  Tell(run);
  EXPECT_THAT(watcher->revisions, ElementsAre(1));
}

TEST_F(PipelineRunRegistryTest, ARunThatIsWithdrawnNeverWas) {
  const v1::PipelineRun run = Open("r");
  const auto watcher = Watch(run.id());
  registry_.Withdraw(run.id(), absl::ResourceExhaustedError("too many"));
  EXPECT_THAT(watcher->dismissal, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(registry_.Get(run.id()), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_NE(Open("r").id(), run.id());
}

TEST_F(PipelineRunRegistryTest, RunsAreListedNewestFirstPageByPage) {
  for (const char* id : {"r", "s", "t"}) Open(id);
  EXPECT_THAT(ListedRequests(), ElementsAre("t", "s", "r"));
  const auto first = registry_.List("", 2);
  EXPECT_THAT(ListedRequests(first.back()->id()), ElementsAre("r"));
  EXPECT_THAT(ListedRequests(registry_.List("", 3).back()->id()), IsEmpty());
}

TEST_F(PipelineRunRegistryTest, OnlySoManyThatHaveEndedAreRemembered) {
  Open("running");
  for (const char* id : {"r", "s", "t", "u"}) {
    v1::PipelineRun run = Open(id);
    Tell(run, /*ended=*/true);
  }
  EXPECT_THAT(ListedRequests(), ElementsAre("u", "t", "s", "running"));
  EXPECT_THAT(registry_.Find(Request("r")), IsOkAndHolds(std::nullopt));
}

TEST_F(PipelineRunRegistryTest, ThoseThatHaveEndedTakeOnlySoMuchMemory) {
  v1::PipelineRun first = Open("r");
  Tell(first, /*ended=*/true, 500);
  v1::PipelineRun large = Open("s");
  Tell(large, /*ended=*/true, 5000);
  EXPECT_THAT(ListedRequests(), ElementsAre("s"));
  v1::PipelineRun last = Open("t");
  Tell(last, /*ended=*/true, 500);
  EXPECT_THAT(ListedRequests(), ElementsAre("t"));
}

}  // namespace
}  // namespace crossmesh
