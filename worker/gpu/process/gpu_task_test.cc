// Tasks of three GPUs, each in its process: a part of a plan and two arenas in, a report out.

#include "common/plan/storage_layout.h"
#include "common/plan/worker_part.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/time_codec.h"
#include "common/wire/worker_part_codec.h"
#include "worker/gpu/compiler/testing/small_plans.h"
#include "worker/gpu/process/testing/gpu_process_fixture.h"

#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kBytes = 300'000;
constexpr int kGpus = 3;

std::string Pattern() {
  std::string bytes(kBytes, '\0');
  for (int64_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  return bytes;
}

// The bytes of GPU 0 go to GPU 1, and on to GPU 2.
class GpuTaskTest : public GpuProcessTest {
 protected:
  // `faults` of GPU 1.
  void StartAll(const std::string& faults = "") {
    for (int number = 0; number < kGpus; ++number) {
      gpus_.push_back(
          &Start(OptionsOf(number, {{"CROSSMESH_STANDIN_FAULTS", number == 1 ? faults : ""}})));
    }
    for (Child* gpu : gpus_) AwaitUps(*gpu, 1);
    std::vector<std::vector<DeviceId>> each_alone;
    const Plan plan = Made(ThroughTwoHops(kBytes));
    for (const DeviceId& device : plan.tensors().devices()) each_alone.push_back({device});
    ASSERT_OK_AND_ASSIGN(parts_, CutParts(plan, each_alone));
    for (Child* gpu : gpus_) {
      ASSERT_OK_AND_ASSIGN(arenas_.emplace_back(), MakeArena(*gpu, kBytes));
    }
    ASSERT_OK_AND_ASSIGN(const UniqueFd memory, gpus_[0]->process->ExportArena(arenas_[0]));
    ASSERT_EQ(pwrite(memory.get(), Pattern().data(), kBytes, 0), kBytes);
  }

  // Parts are gone with a process, and so are prepared again.
  void PrepareAll() {
    for (int number = 0; number < kGpus; ++number) {
      v1::GpuRequest request;
      request.mutable_prepare_part()->set_digest(parts_[number].digest().ToString());
      request.mutable_prepare_part()->set_part(ToProto(parts_[number]).SerializeAsString());
      const auto prepare = Begin(*gpus_[number], std::move(request));
      Await(*prepare);
      ASSERT_OK(prepare->status());
    }
  }

  v1::GpuRequest TaskOf(int number, uint32_t instance) {
    v1::GpuRequest request;
    v1::GpuRequest::RunTask& task = *request.mutable_run_task();
    *task.mutable_key() =
        ToProto(TaskKey{.operation = 1, .epoch = 1, .plan = 1, .instance = instance});
    task.set_part_digest(parts_[number].digest().ToString());
    task.set_checksums(true);
    *(number == 0 ? task.mutable_sources() : task.mutable_destinations()) =
        ToProto(std::vector<TilePlace>{{.arena = arenas_[number], .offset = 0}});
    *task.mutable_communicator() = ToProto(KeyOf(gpus_));
    for (int device = 0; device < kGpus; ++device) task.add_devices(device);
    *task.mutable_deadline() = ToProto(absl::Seconds(60));
    *task.mutable_stall_limit() = ToProto(stall_limit_);
    return request;
  }
  // What the task comes to at each GPU.
  std::vector<absl::Status> RunAll(uint32_t instance) {
    std::vector<std::shared_ptr<Result>> results;
    for (int number = 0; number < kGpus; ++number) {
      results.push_back(Begin(*gpus_[number], TaskOf(number, instance)));
    }
    std::vector<absl::Status> statuses = StatusesOf(results);
    reports_.assign(kGpus, {});
    for (int number = 0; number < kGpus; ++number) {
      if (!statuses[number].ok()) continue;
      const v1::GpuNotice::Answer& answer = (*results[number]->reply)->answer;
      reports_[number] = ReportFromProto(answer.report()).value_or(TaskReport());
      statuses[number] = reports_[number].status;
      for (const DeviceReport& device : reports_[number].devices) {
        statuses[number].Update(device.status);
      }
    }
    return statuses;
  }
  void ExpectBytesMoved() {
    for (int number = 1; number < kGpus; ++number) {
      ASSERT_OK_AND_ASSIGN(const UniqueFd memory,
                           gpus_[number]->process->ExportArena(arenas_[number]));
      std::string found(kBytes, '\0');
      ASSERT_EQ(pread(memory.get(), found.data(), kBytes, 0), kBytes);
      EXPECT_TRUE(found == Pattern()) << "GPU " << number;
    }
  }

  absl::Duration stall_limit_ = absl::Seconds(30);
  std::vector<Child*> gpus_;
  std::vector<WorkerPart> parts_;
  std::vector<ArenaId> arenas_;
  std::vector<TaskReport> reports_;  // of the last RunAll
};

TEST_F(GpuTaskTest, BytesMoveFromProcessToProcessAsOftenAsIsWanted) {
  StartAll();
  PrepareAll();
  ASSERT_THAT(CreateCommunicator(gpus_), Each(IsOk()));
  for (uint32_t instance = 0; instance < 3; ++instance) {
    EXPECT_THAT(RunAll(instance), Each(IsOk()));
  }
  ExpectBytesMoved();
  EXPECT_THAT(reports_[0].devices, IsEmpty());
  EXPECT_THAT(reports_[1].devices, ElementsAre(Field(&DeviceReport::bytes, kBytes)));
  EXPECT_THAT(DestroyCommunicator(gpus_), Each(IsOk()));
}

TEST_F(GpuTaskTest, TheProcessInThePlaceOfOneThatWasKilledHasItsBytes) {
  StartAll();
  kill(gpus_[0]->process->pid(), SIGKILL);
  AwaitReplacement(*gpus_[0]);
  PrepareAll();
  ASSERT_THAT(CreateCommunicator(gpus_), Each(IsOk()));
  EXPECT_THAT(RunAll(0), Each(IsOk()));
  ExpectBytesMoved();
  EXPECT_THAT(DestroyCommunicator(gpus_), Each(IsOk()));
}

TEST_F(GpuTaskTest, AfterAStallTheCommunicatorIsGoneAndTheNextTaskWorks) {
  stall_limit_ = absl::Milliseconds(300);
  StartAll("stall_at=2");
  PrepareAll();
  ASSERT_THAT(CreateCommunicator(gpus_), Each(IsOk()));
  const CommunicatorKey key = KeyOf(gpus_);
  EXPECT_THAT(RunAll(0), Contains(testing::Not(IsOk())));
  for (Child* gpu : gpus_) {
    const auto stop = Begin(*gpu, StopCommunicatorRequest(key, absl::CancelledError("")));
    Await(*stop);
    EXPECT_THAT(stop->status(), AnyOf(IsOk(), StatusIs(absl::StatusCode::kNotFound)));
  }
  ASSERT_THAT(CreateCommunicator(gpus_), Each(IsOk()));
  stall_limit_ = absl::Seconds(30);
  EXPECT_THAT(RunAll(1), Each(IsOk()));
  ExpectBytesMoved();
  EXPECT_THAT(DestroyCommunicator(gpus_), Each(IsOk()));
}

TEST_F(GpuTaskTest, AProcessThatLosesItsGpuIsReplaced) {
  stall_limit_ = absl::Seconds(2);
  StartAll("illegal_address_at=1");
  PrepareAll();
  ASSERT_THAT(CreateCommunicator(gpus_), Each(IsOk()));
  EXPECT_THAT(RunAll(0), Contains(testing::Not(IsOk())));
  RunUntil([&] { return !gpus_[1]->told.downs.empty(); });
  EXPECT_THAT(gpus_[1]->told.downs[0].message(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  AwaitReplacement(*gpus_[1]);
}

TEST_F(GpuTaskTest, ATaskThatCannotBeIsRefused) {
  StartAll();
  PrepareAll();
  ASSERT_THAT(CreateCommunicator(gpus_), Each(IsOk()));
  const auto refusal = [&](const v1::GpuRequest& request) {
    const auto result = Begin(*gpus_[1], request);
    Await(*result);
    return result->status();
  };
  v1::GpuRequest request = TaskOf(1, 0);
  request.mutable_run_task()->mutable_destinations()->set_offset_bytes(0, 64);
  EXPECT_THAT(refusal(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("expected 300000 bytes from 64 on in arena")));
  request = TaskOf(1, 0);
  request.mutable_run_task()->mutable_devices()->RemoveLast();
  EXPECT_THAT(refusal(request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("run_task.devices of a GPU message: expected 3, as of the "
                                 "communicator, found 2")));
  EXPECT_THAT(DestroyCommunicator(gpus_), Each(IsOk()));
}

}  // namespace
}  // namespace crossmesh
