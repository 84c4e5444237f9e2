// Operations between GPUs: their tasks run over a communicator, which comes before them.

#include "common/mesh/gpu_host.h"
#include "common/wire/communicator_codec.h"
#include "controller/dispatch/attempt_communicators.h"
#include "controller/dispatch/testing/running_operation_fixture.h"

#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class GpuOperationTest : public RunningOperationTest {
 protected:
  // Of a tensor a.0 and b.0 hold one half each, and a replica of it comes to each of c.0 and d.0:
  // all four exchange messages.
  GpuOperationTest() {
    tensors_ =
        SampleTable{.source_mesh = "shard=2 on a.0,b.0", .source_layout = "[shard, -]"}.Make();
    for (const char* host : {"a", "b", "c", "d"}) JoinGpu(host, 1);
  }

  // As the controller hears it, of a worker that is there no more.
  void Vanish(const std::string& host) {
    EndSession(host);
    LoseWorker(host);
  }

  // As the host's worker is told of them.
  TaskCommunicators CommunicatorsOf(const std::string& host) {
    TaskCommunicators communicators;
    for (const v1::ExecuteRequest::Communicator& told : At(host).start.communicators()) {
      absl::StatusOr<CommunicatorKey> key = FromProto(told.key());
      EXPECT_OK(key);
      communicators.push_back({*key, {told.devices().begin(), told.devices().end()}});
    }
    return communicators;
  }
  std::vector<std::string> Heard(const std::string& order) const {
    return communicator_gateway_.Heard(order);
  }
  // The task's GPU finds the communicator broken.
  void FailAsBroken(const std::string& host) {
    FakeTaskCall& call = At(host);
    const absl::Status status = absl::UnavailableError("an asynchronous error");
    call.Finish(status);
    call.Report(status, {}, call.part().spec().devices);
    Run();
  }
};

TEST_F(GpuOperationTest, TasksStartWhenTheirCommunicatorIsThere) {
  communicator_gateway_.Hold("at-b", "create");
  Start(Request("op-1"));
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_PREPARING);
  EXPECT_EQ(sink_.intents, 0);
  EXPECT_THAT(gateway_.calls, IsEmpty());
  communicator_gateway_.AnswerOldest();
  Run();
  ASSERT_THAT(gateway_.calls, SizeIs(4));
  ASSERT_THAT(CommunicatorsOf("c"), SizeIs(1));
  const TaskCommunicator communicator = CommunicatorsOf("c")[0];
  EXPECT_EQ(communicator.key.ToString(), "relay@7[GPU-a#1,GPU-b#1,GPU-c#1,GPU-d#1]");
  const std::vector<DeviceId>& devices = tensors_->devices();
  for (size_t rank = 0; rank < communicator.devices.size(); ++rank) {
    EXPECT_EQ(absl::StrCat("GPU-", devices[communicator.devices[rank]].host),
              communicator.key.ranks[rank].gpu);
  }
  FinishAll("op-1");
}

TEST_F(GpuOperationTest, OperationsOfOneGroupShareACommunicator) {
  Start(Request("op-1"));
  FinishAll("op-1");
  Start(Request("op-2"));
  FinishAll("op-2");
  EXPECT_THAT(Heard("create"), SizeIs(4));
  EXPECT_THAT(Heard("stop"), IsEmpty());
}

// A tensor in two shards, and two replicas of each: two broadcast groups.
class GpuBroadcastTest : public GpuOperationTest {
 protected:
  GpuBroadcastTest() {
    tensors_ = SampleTable{.source_mesh = "shard=2 on a.0,b.0",
                           .source_layout = "[shard, -]",
                           .destination_mesh = "replica=2,shard=2 on c.0,d.0,e.0,f.0",
                           .destination_layout = "[shard, -]"}
                   .Make();
    for (const char* host : {"e", "f"}) JoinGpu(host, 1);
  }
  const std::vector<std::string> receivers_ = {"c", "d", "e", "f"};
};

TEST_F(GpuBroadcastTest, EveryGroupHasACommunicatorWhichIsKept) {
  for (const char* id : {"op-1", "op-2"}) {
    Start(Request(id));
    const TaskCommunicators communicators = CommunicatorsOf("c");
    ASSERT_THAT(communicators, SizeIs(2));
    EXPECT_EQ(communicators[0].key.ToString(), "broadcast@7[GPU-a#1,GPU-c#1,GPU-e#1]");
    EXPECT_EQ(communicators[1].key.ToString(), "broadcast@7[GPU-b#1,GPU-d#1,GPU-f#1]");
    for (const auto& [key, devices] : communicators) {
      ASSERT_THAT(devices, SizeIs(3));
      for (size_t rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(absl::StrCat("GPU-", tensors_->devices()[devices[rank]].host),
                  key.ranks[rank].gpu);
      }
    }
    FinishAll(id, receivers_);
  }
  EXPECT_THAT(Heard("create"), SizeIs(6));
  EXPECT_THAT(Heard("stop"), IsEmpty());
}

TEST_F(GpuBroadcastTest, ABrokenCommunicatorLeavesTheOtherGroupsAlone) {
  Start(Request("op-1"));
  AcceptAll();
  FailAsBroken("c");
  EXPECT_THAT(Heard("stop"), SizeIs(3));
  EXPECT_THAT(Heard("stop"), Each(HasSubstr("broadcast@7[GPU-a#1,")));
  for (const char* host : {"a", "e"}) FailAsBroken(host);
  for (const char* host : {"b", "d", "f"}) Succeed(host);
  ResolveAll(receivers_);
  EXPECT_EQ(Latest("op-1").attempt(), 2);
  EXPECT_THAT(Heard("stop"), SizeIs(3));
}

TEST_F(GpuBroadcastTest, WithoutBroadcastsThereIsOneCommunicatorForAll) {
  OperationRequest request = Request("op-1");
  request.plan = [this](auto done) {
    done(PlannedReshard::Create({.tensors = tensors_, .no_broadcasts = true}, {}, clock_));
  };
  Start(std::move(request));
  ASSERT_THAT(CommunicatorsOf("c"), SizeIs(1));
  EXPECT_EQ(CommunicatorsOf("c")[0].key.purpose, "relay");
  EXPECT_THAT(CommunicatorsOf("c")[0].devices, SizeIs(6));
  FinishAll("op-1", receivers_);
}

TEST_F(GpuBroadcastTest, ACommunicatorThatFailsTakesTheOthersBack) {
  communicator_gateway_.Refuse("at-f", "create", absl::InternalError("unhandled system error"));
  Start(Request("op-1"));
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(ErrorOf(Latest("op-1")),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("rank GPU-f#1: worker w-f")));
  communicator_gateway_.Allow();
  Start(Request("op-2"));
  FinishAll("op-2", receivers_);
}

TEST_F(GpuOperationTest, OperationsOnTheSameGpusFollowEachOther) {
  Start(Request("op-1"));
  Start(Request("op-2"));
  EXPECT_THAT(gateway_.calls, SizeIs(4));
  EXPECT_EQ(Latest("op-2").state(), v1::OPERATION_STATE_PREPARING);
  FinishAll("op-1");
  EXPECT_THAT(gateway_.calls, SizeIs(8));
  FinishAll("op-2");
}

TEST_F(GpuOperationTest, OperationsBetweenHostMemoryNeedNone) {
  for (const char* host : {"a", "b", "c", "d"}) Join(host);
  Start(Request("op-1"));
  EXPECT_THAT(CommunicatorsOf("c"), IsEmpty());
  FinishAll("op-1");
  EXPECT_THAT(communicator_gateway_.heard, IsEmpty());
}

TEST_F(GpuOperationTest, OperationsBetweenGpusAndHostMemoryNeedNone) {
  Join("d");
  Start(Request("op-1"));
  for (const std::string& host : Hosts()) {
    EXPECT_THAT(CommunicatorsOf(host), IsEmpty()) << host;
  }
  FinishAll("op-1");
  EXPECT_THAT(communicator_gateway_.heard, IsEmpty());
}

// As the network describes them: a and b hold halves, c and d get all of them, and d is host
// memory.
class MixedOperationTest : public GpuOperationTest {
 protected:
  OperationRequest MixedRequest(const std::string& id) {
    OperationRequest request = Request(id);
    request.plan = [this](auto done) {
      std::vector<Host> hosts = {*GpuHost("h100x8", "a"), *GpuHost("h100x8", "b"),
                                 *GpuHost("h100x8", "c")};
      done(PlannedReshard::Create(
          {.tensors = tensors_, .topology = *Topology::Create(std::move(hosts), {})}, {}, clock_));
    };
    return request;
  }
};

TEST_F(MixedOperationTest, WhatGpusReceiveFromGpusGoesOverTheirCommunicator) {
  Join("d");
  Start(MixedRequest("op-1"));
  for (const std::string& host : Hosts()) {
    const TaskCommunicators communicators = CommunicatorsOf(host);
    ASSERT_THAT(communicators, SizeIs(1)) << host;
    EXPECT_EQ(communicators[0].key.ToString(), "relay@7[GPU-a#1,GPU-b#1,GPU-c#1]");
    EXPECT_THAT(communicators[0].devices, ElementsAre(0, 1, 2));
  }
  FinishAll("op-1");
}

TEST_F(MixedOperationTest, WhereADescribedGpuIsNoneAllGoesByHostMemory) {
  Join("b");
  Join("d");
  Start(MixedRequest("op-1"));
  for (const std::string& host : Hosts()) EXPECT_THAT(CommunicatorsOf(host), IsEmpty()) << host;
  FinishAll("op-1");
}

TEST_F(GpuOperationTest, OperationsBetweenGpusAndHostMemoryWaitForProcessesAsWell) {
  Join("d");
  JoinGpu("b", 0);
  Start(Request("op-1"));
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_PREPARING);
  JoinGpu("b", 2);
  Advance(AttemptCommunicators::kProcessPause);
  FinishAll("op-1");
}

TEST_F(GpuOperationTest, ACreationThatFailsFailsTheOperationWithRankAndWorker) {
  communicator_gateway_.Refuse("at-b", "create", absl::InternalError("unhandled system error"));
  Start(Request("op-1"));
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(
      ErrorOf(Latest("op-1")),
      StatusIs(absl::StatusCode::kInternal, "rank GPU-b#1: worker w-b: unhandled system error"));
  EXPECT_EQ(sink_.intents, 0);
}

TEST_F(GpuOperationTest, ACreationThatHangsEndsTheOperationByItsDeadlineAndTheNextWorks) {
  communicator_gateway_.Hold("at-b", "create");
  OperationRequest request = Request("op-1");
  request.deadline = absl::Seconds(3);
  Start(std::move(request));
  Advance(absl::Seconds(3));
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(ErrorOf(Latest("op-1")),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("communicator relay@7[")));
  communicator_gateway_.Allow();
  Advance(absl::Minutes(1));
  Start(Request("op-2"));
  FinishAll("op-2");
}

TEST_F(GpuOperationTest, ACancelledOperationWaitsNoLonger) {
  communicator_gateway_.Hold("at-b", "create");
  Start(Request("op-1"));
  Cancel("op-1", "not needed");
  Run();
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_CANCELLED);
  communicator_gateway_.AnswerOldest();
  Run();
  EXPECT_THAT(gateway_.calls, IsEmpty());
}

TEST_F(GpuOperationTest, AWorkerLostInTheMiddleTakesTheCommunicatorAlongAndSurvivorsGetAnother) {
  Start(Request("op-1"));
  AcceptAll();
  Vanish("d");
  EXPECT_THAT(Heard("stop"), SizeIs(3));
  EXPECT_THAT(Heard("stop"), Each(HasSubstr("rank GPU-d#1: worker w-d is lost")));
  for (const char* host : {"a", "b", "c"}) FailAsBroken(host);
  Resolve("c");
  EXPECT_EQ(Latest("op-1").attempt(), 2);
  EXPECT_EQ(CommunicatorsOf("c").at(0).key.ToString(), "relay@7[GPU-a#1,GPU-b#1,GPU-c#1]");
  EXPECT_THAT(Heard("stop"), SizeIs(3));  // what the three found was known
  AcceptAll();
  for (const std::string& host : Hosts()) Succeed(host);
  Resolve("c");
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_PARTIAL);
}

TEST_F(GpuOperationTest, ACommunicatorThatATaskFindsBrokenIsMadeAnew) {
  Start(Request("op-1"));
  AcceptAll();
  FailAsBroken("b");
  EXPECT_THAT(Heard("stop"), SizeIs(4));
  EXPECT_THAT(Heard("stop"), Each(HasSubstr("rank GPU-b#1: worker w-b: an asynchronous error")));
  for (const char* host : {"a", "c", "d"}) FailAsBroken(host);
  ResolveAll();
  EXPECT_EQ(Latest("op-1").attempt(), 2);
  EXPECT_THAT(Heard("create"), SizeIs(8));
  FinishAll("op-1");
}

TEST_F(GpuOperationTest, TheNextAttemptWaitsForAProcessThatIsReplaced) {
  Start(Request("op-1"));
  AcceptAll();
  JoinGpu("b", 0);
  for (const char* host : {"a", "b", "c", "d"}) FailAsBroken(host);
  ResolveAll();
  const size_t calls = gateway_.calls.size();
  Advance(absl::Seconds(2));
  EXPECT_THAT(gateway_.calls, SizeIs(calls));
  JoinGpu("b", 2);
  Advance(AttemptCommunicators::kProcessPause);
  ASSERT_THAT(gateway_.calls, SizeIs(calls + 4));
  EXPECT_THAT(CommunicatorsOf("c").at(0).key.ToString(), HasSubstr("GPU-b#2"));
  FinishAll("op-1");
}

TEST_F(GpuOperationTest, AProcessThatDoesNotComeFailsTheOperation) {
  JoinGpu("b", 0);
  Start(Request("op-1"));
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_PREPARING);
  while (running_.running() > 0) Advance(AttemptCommunicators::kProcessPause);
  EXPECT_THAT(ErrorOf(Latest("op-1")),
              StatusIs(absl::StatusCode::kUnavailable, "device b.0: no process drives GPU-b now"));
  EXPECT_EQ(queue_.timers(), 0);
}

TEST_F(GpuOperationTest, AWorkerLostWhileTheCommunicatorIsMadeIsTheCause) {
  communicator_gateway_.Hold("at-b", "create");
  Start(Request("op-1"));
  Vanish("b");
  Advance(AttemptCommunicators::kProcessPause);
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(ErrorOf(Latest("op-1")), StatusIs(absl::StatusCode::kUnavailable,
                                                HasSubstr("rank GPU-b#1: worker w-b is lost")));
}

TEST_F(GpuOperationTest, ACommunicatorThatATaskMayStillUseIsNotGivenToOthers) {
  OperationRequest request = Request("op-1");
  request.deadline = absl::Seconds(3);
  Start(std::move(request));
  AcceptAll();
  Advance(absl::Seconds(3));
  for (const char* host : {"a", "c", "d"}) {
    At(host).Report(absl::CancelledError("cancelled"));
    Run();
  }
  Advance(RunningOperation::kEndingGrace);
  ResolveAll();
  EXPECT_EQ(running_.running(), 0);
  EXPECT_THAT(Heard("stop"), SizeIs(4));
  EXPECT_THAT(Heard("stop"), Each(HasSubstr("worker w-b: a task of operation op-1 may still")));
}

}  // namespace
}  // namespace crossmesh
