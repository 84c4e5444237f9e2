// What is wrong with a cluster, one thing at a time, and what an operator is told to do.

#include "client/cli/cluster_problems.h"

#include "client/cli/status_report.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr int64_t kStatusTime = 1'800'000'000;
constexpr int64_t kMebibyte = 1 << 20;

class ClusterProblemsTest : public testing::Test {
 protected:
  ClusterProblemsTest() {
    v1::Controller& controller = view_.controller;
    controller.mutable_time()->set_seconds(kStatusTime);
    controller.mutable_start_time()->set_seconds(kStatusTime - 100);
    store().set_kind("sqlite");
    store().set_free_bytes(1000 * kMebibyte);
    store().set_free_bytes_min(64 * kMebibyte);
    for (const char* name : {"a", "b"}) {
      v1::Worker& worker = view_.workers.emplace_back();
      worker.set_name(name);
      worker.set_state(v1::WORKER_STATE_READY);
      worker.mutable_last_heartbeat_time()->set_seconds(kStatusTime - 7);
    }
  }
  v1::ControllerStore& store() { return *view_.controller.mutable_store(); }
  v1::Worker& worker() { return view_.workers.back(); }

  // There is this one and no other.
  void ExpectOnly(const std::string& what, const std::string& remedy) const {
    EXPECT_THAT(ProblemsOf(view_),
                UnorderedElementsAre(AllOf(Field(&ClusterProblem::what, HasSubstr(what)),
                                           Field(&ClusterProblem::remedy, HasSubstr(remedy)))));
  }

  ClusterView view_;
};

TEST_F(ClusterProblemsTest, AClusterThatDoesWellHasNone) {
  worker().set_state(v1::WORKER_STATE_DRAINING);
  EXPECT_THAT(ProblemsOf(view_), IsEmpty());
  EXPECT_THAT(StatusText(view_), Not(HasSubstr("PROBLEMS")));
  EXPECT_THAT(StatusDocument(view_)["problems"], IsEmpty());
}

TEST_F(ClusterProblemsTest, ASuspectWorkerIsNamedWithItsSilence) {
  worker().set_state(v1::WORKER_STATE_SUSPECT);
  ExpectOnly("worker b is SUSPECT: silent for 7.00 s", "network");
}

TEST_F(ClusterProblemsTest, ALostWorkerIsToBeStartedOrForgotten) {
  worker().set_state(v1::WORKER_STATE_LOST);
  worker().add_gpus()->set_device("b.0");
  ExpectOnly("worker b is LOST", "crossmesh worker forget b");
}

TEST_F(ClusterProblemsTest, ANameInQuarantineIsToldAsItIs) {
  worker().set_problem("worker b: two processes\x1b take turns");
  ExpectOnly("worker b: two processes\\x1b take turns", "stop one");
}

TEST_F(ClusterProblemsTest, AGpuWithoutAProcessIsNamed) {
  v1::Gpu& gpu = *worker().add_gpus();
  gpu.set_device("b.3");
  gpu.mutable_process()->set_gpu("GPU-7");
  ExpectOnly("GPU GPU-7 (b.3) of worker b", "crossmesh doctor");
  gpu.mutable_process()->set_incarnation(1);
  EXPECT_THAT(ProblemsOf(view_), IsEmpty());
}

TEST_F(ClusterProblemsTest, EachDirtyStorageIsNamed) {
  worker().add_dirty_storages("serving on b.0");
  ExpectOnly("storage serving on b.0 of worker b is DIRTY", "reshard into it again");
}

TEST_F(ClusterProblemsTest, ALinkThatHasFailedIsNamedOnce) {
  v1::FailedLink& link = *view_.workers[0].add_failed_links();
  link.set_peer("b");
  link.set_reason("worker b is lost: no bytes");
  link.mutable_time()->set_seconds(kStatusTime - 5);
  *worker().add_failed_links() = link;
  worker().mutable_failed_links(0)->set_peer("a");
  ExpectOnly("the link between workers a and b has failed: worker b is lost: no bytes", "network");
}

TEST_F(ClusterProblemsTest, AStoreIsNearItsFloorBeforeItIsFull) {
  store().set_free_bytes(256 * kMebibyte);
  EXPECT_THAT(ProblemsOf(view_), IsEmpty());
  store().set_free_bytes(256 * kMebibyte - 1);
  ExpectOnly("of room left", "make room");
  store().set_is_full(true);
  ExpectOnly("the store is full", "crossmesh release-reserve");
  // Of an older controller, and of a store that is in no folder.
  store().set_is_full(false);
  store().set_free_bytes_min(0);
  EXPECT_THAT(ProblemsOf(view_), IsEmpty());
}

TEST_F(ClusterProblemsTest, AStoreThatIsNotWrittenAnyMoreIsToBeRestored) {
  store().set_is_read_only(true);
  store().set_disk_failures(3);
  ExpectOnly("read-only", "crossmesh-controller restore");
}

TEST_F(ClusterProblemsTest, FailuresOfDiskAndBackupsAreCounted) {
  store().set_disk_failures(1);
  ExpectOnly("failed 1 time ", "verify-store");
  store().set_disk_failures(0);
  store().set_backup_failures(2);
  ExpectOnly("backups of the store fail: 2", "--backup-dir");
}

TEST_F(ClusterProblemsTest, AStoreWithoutACopyOfADayIsForgotten) {
  view_.controller.mutable_start_time()->set_seconds(kStatusTime - 24 * 3600 - 1);
  ExpectOnly("was not copied for", "--backup-dir FOLDER");
  store().mutable_backup_time()->set_seconds(kStatusTime - 60);
  EXPECT_THAT(ProblemsOf(view_), IsEmpty());
  store().clear_backup_time();
  store().set_kind("memory");
  EXPECT_THAT(ProblemsOf(view_), IsEmpty());
}

TEST_F(ClusterProblemsTest, AControllerWithoutAnotherOneIsAlone) {
  store().set_kind("etcd");
  ExpectOnly("no other controller stands by", "--etcd");
  view_.controller.mutable_start_time()->set_seconds(kStatusTime - 10);
  EXPECT_THAT(ProblemsOf(view_), IsEmpty());
  view_.controller.mutable_start_time()->set_seconds(kStatusTime - 1000);
  view_.controller.add_standbys()->set_address("192.0.2.2:7400");
  EXPECT_THAT(ProblemsOf(view_), IsEmpty());
  EXPECT_THAT(StatusText(view_), HasSubstr("192.0.2.2:7400"));
}

TEST_F(ClusterProblemsTest, ARunThatIsHeldSaysWhatHoldsIt) {
  v1::PipelineRun& run = view_.runs.emplace_back();
  run.set_id("pr-1");
  run.set_state(v1::PIPELINE_RUN_STATE_PREPARING);
  run.set_obstacle("the store is full");
  ExpectOnly("run pr-1 is held: the store is full", "crossmesh pipeline stop pr-1");
  run.set_state(v1::PIPELINE_RUN_STATE_STOPPED);
  EXPECT_THAT(ProblemsOf(view_), IsEmpty());
}

TEST_F(ClusterProblemsTest, ManyAreCountedOnTheScreenAndAllInTheDocument) {
  for (int i = 0; i < 14; ++i) worker().add_dirty_storages(absl::StrCat("s", i, " on b.0"));
  EXPECT_THAT(StatusText(view_), AllOf(HasSubstr("storage s9 "), Not(HasSubstr("storage s10 ")),
                                       HasSubstr("and 4 more")));
  EXPECT_EQ(StatusDocument(view_)["problems"].size(), 14);
}

}  // namespace
}  // namespace crossmesh
