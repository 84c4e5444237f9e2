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

// A store that refuses commits, or lets them wait, or is behind in what it reads, while it is told
// to; or writes the next one, and says that it is not sure.
class RefusingStore : public MemoryStore {
 public:
  void RefuseCommits(const absl::Status& why) { why_ = why; }
  void DoubtNextCommit() { doubts_ = true; }
  void SetBehind(bool is_behind) { is_behind_ = is_behind; }
  absl::StatusOr<int64_t> RevisionOf(absl::string_view key) const override {
    return is_behind_ ? 0 : MemoryStore::RevisionOf(key);
  }
  void HoldCommits() { holds_ = true; }
  void LetCommitsGo() {
    holds_ = false;
    for (auto& [transaction, done] : std::exchange(held_, {})) {
      MemoryStore::CommitThen(std::move(transaction), std::move(done));
    }
  }
  void CommitThen(StoreTransaction transaction, CommitDone done) override {
    if (!why_.ok()) return done(why_);
    if (std::exchange(doubts_, false)) {
      EXPECT_OK(Commit(std::move(transaction)).status());
      return done(absl::UnavailableError("it may be written"));
    }
    if (holds_) {
      held_.emplace_back(std::move(transaction), std::move(done));
    } else {
      MemoryStore::CommitThen(std::move(transaction), std::move(done));
    }
  }

 private:
  absl::Status why_;
  bool holds_ = false;
  bool doubts_ = false;
  bool is_behind_ = false;
  std::vector<std::pair<StoreTransaction, CommitDone>> held_;
};

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
      first_ = entry.job;
      if (!outcome.ok()) early_ = Watch(entry.job.id());
      return outcome;
    });
  }
  v1::PipelineRun Open(const std::string& request_id) {
    const size_t before = begun_.size();
    const absl::StatusOr<std::string> id = Begin(request_id);
    EXPECT_OK(id);
    EXPECT_EQ(begun_.size(), before + 1) << request_id << " was begun before";
    Commit(first_);
    return **registry_.Get(*id);
  }
  void Commit(const v1::PipelineRun& run) {
    registry_.Commit(std::make_shared<const v1::PipelineRun>(run), "resumption",
                     [](const absl::Status& status) { EXPECT_OK(status); });
    queue_.Run();
  }
  void Tell(v1::PipelineRun& run, bool ended = false, size_t error_bytes = 0) {
    run.set_revision(run.revision() + 1);
    run.set_error(std::string(error_bytes, 'x'));
    if (ended) *run.mutable_end_time() = ToProto(clock_.Now());
    const auto shown = std::make_shared<const v1::PipelineRun>(run);
    if (!ended) return registry_.OnChange(shown);
    registry_.Finish(shown, [this](const absl::Status& status) { ends_.push_back(status); });
    queue_.Run();
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
  RefusingStore store_;
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
  v1::PipelineRun first_;           // the last one, as it was begun
  std::vector<std::string> begun_;  // ids
  std::vector<absl::Status> ends_;  // how recording them came out
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
  EXPECT_OK(records_.Get(run.id()));
  Tell(run);
  ASSERT_THAT(ListedRequests(), ElementsAre("r"));
  EXPECT_EQ(registry_.List("", 1).front()->revision(), 2);
  Tell(run, /*ended=*/true);
  ASSERT_THAT(ListedRequests(), ElementsAre("r"));
  EXPECT_EQ(registry_.List("", 1).front()->revision(), 3);
}

TEST_F(JobRegistryTest, ARunIsKnownOnceItIsOnRecord) {
  ASSERT_OK(Begin("r"));
  const auto watcher = Watch(first_.id());
  v1::PipelineRun run = first_;
  Tell(run);
  EXPECT_THAT(registry_.Get(run.id()), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(ListedRequests(), IsEmpty());
  EXPECT_THAT(watcher->revisions, IsEmpty());
  EXPECT_THAT(Begin("r"), IsOkAndHolds(run.id()));
  Commit(run);
  EXPECT_THAT(ListedRequests(), ElementsAre("r"));
  EXPECT_THAT(watcher->revisions, ElementsAre(2));
}

TEST_F(JobRegistryTest, AnEndWaitsForTheIntentThatIsOnItsWay) {
  ASSERT_OK(Begin("r"));
  v1::PipelineRun run = first_;
  store_.HoldCommits();
  registry_.Commit(std::make_shared<const v1::PipelineRun>(run), "", [](const auto&) {});
  Tell(run, /*ended=*/true);
  EXPECT_THAT(ends_, IsEmpty());
  store_.LetCommitsGo();
  queue_.Run();
  EXPECT_THAT(ends_, ElementsAre(absl::OkStatus()));
  EXPECT_TRUE((*registry_.Get(run.id()))->has_end_time());
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
  EXPECT_THAT(early_->revisions, IsEmpty());
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

TEST_F(JobRegistryTest, AJobThatAnotherControllerLeftIsTakenUp) {
  v1::PipelineRun run = Open("r");
  run.set_state(v1::PIPELINE_RUN_STATE_RUNNING);
  Commit(run);
  JobRecords records(store_, /*epoch=*/8, clock_, {.noun = "run", .id_prefix = "pr-"});
  JobNumbers numbers(8);
  Registry next({.records = records, .numbers = numbers, .queue = queue_, .clock = clock_});
  ASSERT_OK_AND_ASSIGN(const std::vector<JobRecords::Unfinished> left, next.Load());
  ASSERT_EQ(left.size(), 1);
  std::string resumption;
  ASSERT_OK(next.Resume(left[0], [&](const Registry::Entry& entry, const std::string& how) {
    EXPECT_EQ(entry.job.id(), run.id());
    resumption = how;
    return absl::OkStatus();
  }));
  EXPECT_EQ(resumption, "resumption");
  EXPECT_EQ((*next.Get(run.id()))->state(), v1::PIPELINE_RUN_STATE_RUNNING);
  const auto begin = [&](const std::string& content) {
    v1::PipelineRun again;
    again.set_request_id("r");
    return next.Begin(std::move(again), Digest::Of(content),
                      [](const auto&) { return absl::InternalError("begun twice"); });
  };
  EXPECT_THAT(begin("content"), IsOkAndHolds(run.id()));
  EXPECT_THAT(begin("other content"), StatusIs(absl::StatusCode::kAlreadyExists));
  run.set_state(v1::PIPELINE_RUN_STATE_DONE);
  *run.mutable_end_time() = ToProto(clock_.Now());
  next.Finish(std::make_shared<const v1::PipelineRun>(run), [](const auto&) {});
  queue_.Run();
  EXPECT_EQ((*next.Get(run.id()))->state(), v1::PIPELINE_RUN_STATE_DONE);
  EXPECT_THAT(begin("content"), IsOkAndHolds(run.id()));
  EXPECT_THAT(records.Load(), IsOkAndHolds(testing::IsEmpty()));
}

// As where the clock has gone back.
TEST_F(JobRegistryTest, TheNextControllerNumbersBeyondWhatIsOnRecordThoughItsEpochIsLess) {
  v1::PipelineRun ended = Open("first");
  Tell(ended, /*ended=*/true);
  const std::string last = Open("second").id();
  JobRecords records(store_, /*epoch=*/8, clock_, {.noun = "run", .id_prefix = "pr-"});
  JobNumbers numbers(8);
  ASSERT_EQ(last, records.IdOf(9)) << "else nothing is tested";
  Registry next({.records = records, .numbers = numbers, .queue = queue_, .clock = clock_});
  ASSERT_OK(next.Load());
  v1::PipelineRun first;
  first.set_request_id("third");
  EXPECT_THAT(
      next.Begin(first, Digest::Of("content"), [](const auto&) { return absl::OkStatus(); }),
      IsOkAndHolds(records.IdOf(10)));
}

TEST_F(JobRegistryTest, WhatDoesNotParseIsNotTakenUp) {
  EXPECT_THAT(registry_.Resume({.number = 9, .shown = "\xff"},
                               [](const auto&, const auto&) { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("pr-0000000000000009")));
}

TEST_F(JobRegistryTest, AnEndIsShownOnceItIsRecorded) {
  v1::PipelineRun run = Open("r");
  const auto watcher = Watch(run.id());
  store_.RefuseCommits(absl::ResourceExhaustedError("the disk is full"));
  Tell(run, /*ended=*/true);
  EXPECT_THAT(watcher->revisions, ElementsAre(1));
  EXPECT_THAT(ends_, IsEmpty());
  EXPECT_FALSE((*registry_.Get(run.id()))->has_end_time());
  store_.RefuseCommits(absl::OkStatus());
  clock_.Advance(Registry::kRecordPause);
  queue_.Run();
  EXPECT_THAT(watcher->revisions, ElementsAre(1, 2));
  EXPECT_THAT(ends_, ElementsAre(absl::OkStatus()));
}

TEST_F(JobRegistryTest, HowAJobEndsIsNotForAControllerToSayThatWasReplaced) {
  v1::PipelineRun run = Open("r");
  const auto watcher = Watch(run.id());
  ASSERT_OK(store_.Commit({.epoch = 8}).status());
  Tell(run, /*ended=*/true);
  EXPECT_THAT(ends_, ElementsAre(StatusIs(absl::StatusCode::kAborted)));
  EXPECT_THAT(watcher->dismissal, StatusIs(absl::StatusCode::kAborted));
  EXPECT_FALSE((*registry_.Get(run.id()))->has_end_time()) << "as the next controller finds it";
}

TEST_F(JobRegistryTest, ARequestWhoseIntentWasWrittenInDoubtBeginsNoOther) {
  ASSERT_OK_AND_ASSIGN(const std::string id, Begin("request"));
  v1::PipelineRun run = first_;
  store_.DoubtNextCommit();
  registry_.Commit(std::make_shared<const v1::PipelineRun>(run), "resumption",
                   [](const absl::Status& status) {
                     EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
                   });
  queue_.Run();
  EXPECT_THAT(Begin("request"), IsOkAndHolds(id));
  store_.SetBehind(true);
  Tell(run, /*ended=*/true);
  EXPECT_THAT(ends_, IsEmpty()) << "what the store refuses may be its own";
  EXPECT_THAT(Begin("request"), IsOkAndHolds(id));
  store_.SetBehind(false);
  clock_.Advance(Registry::kRecordPause);
  queue_.Run();
  EXPECT_THAT(ends_, ElementsAre(IsOk()));
  EXPECT_THAT(Begin("request"), IsOkAndHolds(id));
  EXPECT_TRUE((*registry_.Get(id))->has_end_time());
  EXPECT_THAT(begun_, ElementsAre(id));
}

}  // namespace
}  // namespace crossmesh
