#include "controller/service/job_registry.h"

#include "common/base/fake_clock.h"
#include "common/testing/status_matchers.h"
#include "common/wire/time_codec.h"
#include "controller/dispatch/job_numbers.h"
#include "controller/dispatch/testing/manual_task_queue.h"
#include "controller/store/memory_store.h"

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
using ::testing::Pair;

using Registry = JobRegistry<v1::PipelineRun>;

// What a watcher was told.
struct Watched {
  int64_t enough = 100;
  std::vector<int64_t> revisions;
  absl::Status dismissal;
};

class JobRegistryTest : public ::testing::Test {
 protected:
  // `outcome`: of beginning it.
  absl::StatusOr<std::string> Begin(const std::string& request_id,
                                    const std::string& content = "content",
                                    const absl::Status& outcome = absl::OkStatus()) {
    v1::PipelineRun first;
    first.set_request_id(request_id);
    first.set_state(v1::PIPELINE_RUN_STATE_PREPARING);
    return registry_.Begin(std::move(first), Digest::Of(content), [&](Registry::Entry entry) {
      begun_.push_back(entry.job.id());
      if (!outcome.ok()) early_ = Watch(entry.job.id());
      return outcome;
    });
  }
  v1::PipelineRun Open(const std::string& request_id) {
    const size_t before = begun_.size();
    const absl::StatusOr<std::string> id = Begin(request_id);
    EXPECT_OK(id);
    EXPECT_EQ(begun_.size(), before + 1) << request_id << " was begun before";
    return **registry_.Get(*id);
  }
  void Tell(v1::PipelineRun& run, bool ended = false, size_t error_bytes = 0) {
    run.set_revision(run.revision() + 1);
    run.set_error(std::string(error_bytes, 'x'));
    if (ended) *run.mutable_end_time() = ToProto(clock_.Now());
    registry_.OnChange(std::make_shared<const v1::PipelineRun>(run));
  }
  std::shared_ptr<Watched> Watch(const std::string& id) {
    auto watched = std::make_shared<Watched>();
    registry_.Watch(id, [watched](const auto& run) {
      if (!run.ok()) {
        watched->dismissal = run.status();
        return false;
      }
      watched->revisions.push_back((*run)->revision());
      return std::ssize(watched->revisions) < watched->enough;
    });
    queue_.Run();
    return watched;
  }
  std::vector<std::string> ListedRequests(const std::string& before = "", int64_t limit = 100) {
    std::vector<std::string> listed;
    for (const auto& run : registry_.List(before, limit)) listed.push_back(run->request_id());
    return listed;
  }

  FakeClock clock_;
  ManualTaskQueue queue_{clock_};
  MemoryStore store_;
  JobRecords records_{
      store_,
      /*epoch=*/7,
      clock_,
      {.noun = "run", .id_prefix = "pr-", .finished_max = 3, .finished_bytes_max = 1000}};
  JobNumbers numbers_{7};
  std::vector<std::pair<int, int>> states_;
  Registry registry_{{.records = records_,
                      .numbers = numbers_,
                      .queue = queue_,
                      .clock = clock_,
                      .on_state = [this](int from, int to) { states_.emplace_back(from, to); }}};
  std::vector<std::string> begun_;  // ids
  std::shared_ptr<Watched> early_;  // what a watcher of a run that cannot be begun was told
};

TEST_F(JobRegistryTest, ARequestIdNamesOneRun) {
  const v1::PipelineRun run = Open("r");
  EXPECT_EQ(run.id(), "pr-0000000000000008");
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_PREPARING);
  EXPECT_EQ(run.revision(), 1);
  EXPECT_THAT(Begin("r"), IsOkAndHolds(run.id()));
  EXPECT_THAT(begun_, ElementsAre(run.id()));
  EXPECT_THAT(Begin("r", "other content"),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(run.id())));
}

TEST_F(JobRegistryTest, ARequestIdIsRememberedAfterTheEnd) {
  v1::PipelineRun run = Open("r");
  Tell(run, /*ended=*/true);
  EXPECT_THAT(Begin("r"), IsOkAndHolds(run.id()));
  EXPECT_THAT(Begin("r", "other content"), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(begun_, ElementsAre(run.id()));
  EXPECT_EQ((*registry_.Get(run.id()))->revision(), 2);
}

TEST_F(JobRegistryTest, NothingNewIsBegunWhenTheControllerStops) {
  const v1::PipelineRun run = Open("r");
  registry_.RefuseNew();
  EXPECT_THAT(Begin("s"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Begin("r"), IsOkAndHolds(run.id()));
}

TEST_F(JobRegistryTest, ACommittedIntentIsListedOnceWithItsLatestState) {
  v1::PipelineRun run = Open("r");
  absl::Status committed = absl::UnknownError("not called");
  registry_.Commit(std::make_shared<const v1::PipelineRun>(run),
                   [&](const absl::Status& status) { committed = status; });
  EXPECT_OK(committed);
  EXPECT_OK(records_.Get(run.id()));
  Tell(run);
  ASSERT_THAT(ListedRequests(), ElementsAre("r"));
  EXPECT_EQ(registry_.List("", 1).front()->revision(), 2);
  Tell(run, /*ended=*/true);
  ASSERT_THAT(ListedRequests(), ElementsAre("r"));
  EXPECT_EQ(registry_.List("", 1).front()->revision(), 3);
}

TEST_F(JobRegistryTest, ChangesOfAStateAreTold) {
  v1::PipelineRun run = Open("r");
  Tell(run);
  run.set_state(v1::PIPELINE_RUN_STATE_RUNNING);
  Tell(run);
  run.set_state(v1::PIPELINE_RUN_STATE_DONE);
  Tell(run, /*ended=*/true);
  EXPECT_THAT(states_, ElementsAre(Pair(0, 1), Pair(1, 2), Pair(2, 0)));
}

TEST_F(JobRegistryTest, AWatcherHearsEveryChangeUntilTheEnd) {
  v1::PipelineRun run = Open("r");
  const auto watcher = Watch(run.id());
  Tell(run);
  Tell(run, /*ended=*/true);
  EXPECT_THAT(watcher->revisions, ElementsAre(1, 2, 3));
  EXPECT_THAT(Watch(run.id())->revisions, ElementsAre(3));
  EXPECT_THAT(Watch("pr-0")->dismissal, StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(JobRegistryTest, AWatcherThatHasEnoughHearsNoMore) {
  v1::PipelineRun run = Open("r");
  const auto watcher = Watch(run.id());
  watcher->enough = 2;
  Tell(run);
  Tell(run);
  EXPECT_THAT(watcher->revisions, ElementsAre(1, 2));
}

TEST_F(JobRegistryTest, WatchersAreDismissedOnceAndForAll) {
  v1::PipelineRun run = Open("r");
  const auto watcher = Watch(run.id());
  registry_.DismissWatchers(absl::UnavailableError("stopping"));
  EXPECT_THAT(watcher->dismissal, StatusIs(absl::StatusCode::kUnavailable));
  Tell(run);
  EXPECT_THAT(watcher->revisions, ElementsAre(1));
}

TEST_F(JobRegistryTest, ARunThatCannotBeBegunNeverWas) {
  EXPECT_THAT(Begin("r", "content", absl::ResourceExhaustedError("too many")),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(early_->revisions, ElementsAre(1));
  EXPECT_THAT(early_->dismissal, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(registry_.Get(begun_.front()), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_NE(Open("r").id(), begun_.front());
}

TEST_F(JobRegistryTest, RunsAreListedNewestFirstPageByPage) {
  for (const char* id : {"r", "s", "t"}) Open(id);
  EXPECT_THAT(ListedRequests(), ElementsAre("t", "s", "r"));
  const auto first = registry_.List("", 2);
  EXPECT_THAT(ListedRequests(first.back()->id()), ElementsAre("r"));
  EXPECT_THAT(ListedRequests(registry_.List("", 3).back()->id()), IsEmpty());
}

TEST_F(JobRegistryTest, OnlySoManyThatHaveEndedAreRemembered) {
  Open("running");
  for (const char* id : {"r", "s", "t", "u"}) {
    v1::PipelineRun run = Open(id);
    Tell(run, /*ended=*/true);
  }
  EXPECT_THAT(ListedRequests(), ElementsAre("u", "t", "s", "running"));
}

TEST_F(JobRegistryTest, ThoseThatHaveEndedTakeOnlySoMuchMemory) {
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
