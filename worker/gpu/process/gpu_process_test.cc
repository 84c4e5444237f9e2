#include "worker/gpu/process/gpu_process.h"

#include "common/base/log.h"
#include "common/base/process_end.h"
#include "common/base/unique_fd.h"
#include "common/testing/send_signal.h"
#include "worker/gpu/process/child_environment.h"
#include "worker/gpu/process/testing/gpu_process_fixture.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

// The bytes of an arena, as another process of the host that has its descriptor finds them.
std::string Read(const UniqueFd& arena, size_t bytes) {
  std::string text(bytes, '?');
  EXPECT_EQ(pread(arena.get(), text.data(), bytes, 0), static_cast<ssize_t>(bytes));
  return text;
}
void Write(const UniqueFd& arena, const std::string& text) {
  EXPECT_EQ(pwrite(arena.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
}

TEST_F(GpuProcessTest, ItSaysWhatItHasOnceItIsUp) {
  const Child& child = StartUp(OptionsOf(3, {{"NCCL_DEBUG", "WARN"}}));
  const PreflightReport& report = child.told.ups.at(0);
  EXPECT_EQ(report.rank.gpu, StandInUuid(3));
  EXPECT_THAT(report.nccl_library, HasSubstr("stand-in"));
  EXPECT_THAT(report.environment, Contains(std::pair("NCCL_DEBUG", "WARN")));
  EXPECT_GT(report.free_bytes, 0);
  EXPECT_TRUE(child.process->is_up());
}

TEST_F(GpuProcessTest, ItSaysWhatItHasAgainWhenItIsAsked) {
  Child& child = StartUp(OptionsOf(0));
  ASSERT_OK(MakeArena(child, 64 << 20));
  v1::GpuRequest request;
  request.mutable_get_preflight();
  const auto asked = Begin(child, std::move(request));
  Await(*asked);
  ASSERT_OK(asked->status());
  EXPECT_LE((*asked->reply)->answer.preflight().report().free_bytes(),
            child.told.ups.at(0).free_bytes - (64 << 20));
}

// The stand-in takes some of them for mistakes.
TEST_F(GpuProcessTest, ItDoesNotInheritWhatChangesTheMeaningOfCalls) {
  for (const ChildVariable& variable : ChildVariables()) {
    setenv(std::string(variable.name).c_str(), "1", 1);
  }
  const Child& child = StartUp(OptionsOf(0));
  for (const ChildVariable& variable : ChildVariables()) {
    unsetenv(std::string(variable.name).c_str());
  }
  const std::map<std::string, std::string>& environment = child.told.ups.at(0).environment;
  EXPECT_THAT(environment, Contains(Pair("NCCL_COMM_BLOCKING", "0")));
  EXPECT_THAT(environment, Not(Contains(Pair("NCCL_COMM_ID", testing::_))));
  EXPECT_THAT(environment, Contains(Pair("CUDA_VISIBLE_DEVICES", StandInUuid(0))));
}

TEST_F(GpuProcessTest, ALimitOfThreadBlocksCountsMoreThanTheDefaultOfChannels) {
  GpuProcessOptions limited = OptionsOf(0);
  limited.ctas_max = 8;
  const Child& child = StartUp(std::move(limited));
  EXPECT_THAT(child.told.ups.at(0).environment, Contains(Pair("NCCL_MIN_P2P_NCHANNELS", "1")));
  const Child& other = StartUp(OptionsOf(1));
  EXPECT_THAT(other.told.ups.at(0).environment, Contains(Pair("NCCL_MIN_P2P_NCHANNELS", "64")));
}

TEST_F(GpuProcessTest, ItEndsWhenItsWorkerStopsIt) {
  Child& child = StartUp(OptionsOf(0));
  ASSERT_OK_AND_ASSIGN(const UniqueFd process, OpenProcess(child.process->pid()));
  child.process->Stop();
  EXPECT_TRUE(AwaitEnd(process, absl::ZeroDuration()));
  EXPECT_THAT(child.told.downs, IsEmpty());
}

TEST_F(GpuProcessTest, AProcessThatSigkillDoesNotEndIsGivenUpAndLogged) {
  std::vector<std::string> logged;
  const ScopedLogSink sink([&](const LogRecord& record) {
    if (record.event == "gpu_process_does_not_end") logged.push_back(record.ToText());
  });
  GpuProcessOptions options = OptionsOf(0);
  options.kill_signal = 0;
  options.stop_limit = absl::Milliseconds(10);
  options.kill_limit = absl::Milliseconds(10);
  Child& child = StartUp(options);
  const int pid = child.process->pid();
  SendSignal(pid, SIGSTOP);
  child.process->Stop();
  EXPECT_EQ(child.process->pid(), -1);
  EXPECT_THAT(logged, ElementsAre(HasSubstr(absl::StrCat(pid))));
  SendSignal(pid, SIGKILL);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
}

TEST_F(GpuProcessTest, AGpuWhoseProcessDoesNotEndSaysSoAndComesBackWhenItDoes) {
  GpuProcessOptions options = OptionsOf(0);
  options.kill_signal = 0;
  Child& child = StartUp(options);
  const int pid = child.process->pid();
  SendSignal(pid, SIGSTOP);
  const auto call = Begin(child, MintCommunicatorIdRequest());
  clock_.Advance(options.answer_limit + absl::Seconds(1));
  RunUntil([&] { return child.told.downs.size() == 1; });
  clock_.Advance(options.kill_limit + absl::Seconds(1));
  RunUntil([&] { return child.told.downs.size() == 2; });
  EXPECT_THAT(child.told.downs[1],
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("goes on 5s after SIGKILL"), HasSubstr("did not answer"))));
  EXPECT_THAT(MakeArena(child, 1),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("goes on 5s after SIGKILL")));
  SendSignal(pid, SIGKILL);
  AwaitReplacement(child);
}

// The worker of another process of this test, which is killed, and cannot stop anything.
TEST_F(GpuProcessTest, ItEndsWhenItsWorkerIsKilled) {
  int ends[2] = {};
  ASSERT_EQ(pipe(ends), 0);
  const pid_t worker = fork();
  if (worker == 0) {
    const Child& child = StartUp(OptionsOf(0));
    const int pid = child.process->pid();
    if (write(ends[1], &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
    while (true) pause();
  }
  int pid = -1;
  ASSERT_EQ(read(ends[0], &pid, sizeof(pid)), static_cast<ssize_t>(sizeof(pid)));
  ASSERT_OK_AND_ASSIGN(const UniqueFd process, OpenProcess(pid));
  SendSignal(worker, SIGKILL);
  EXPECT_EQ(waitpid(worker, nullptr, 0), worker);
  EXPECT_TRUE(AwaitEnd(process, absl::Minutes(1)));
  close(ends[0]);
  close(ends[1]);
}

TEST_F(GpuProcessTest, ArenasKeepTheirBytesWhenTheProcessIsKilled) {
  Child& child = StartUp(OptionsOf(0));
  ASSERT_OK_AND_ASSIGN(const ArenaId first, MakeArena(child, 1000));
  ASSERT_OK_AND_ASSIGN(const ArenaId second, MakeArena(child, 5 << 20));
  ASSERT_OK_AND_ASSIGN(const UniqueFd memory, child.process->ExportArena(second));
  EXPECT_EQ(Read(memory, 4), std::string(4, '\0'));
  Write(memory, "weights");

  SendSignal(child.process->pid(), SIGKILL);
  AwaitReplacement(child);
  EXPECT_THAT(child.told.downs, SizeIs(1));
  EXPECT_GT(child.told.ups.at(1).rank.incarnation, child.told.ups.at(0).rank.incarnation);
  ASSERT_OK_AND_ASSIGN(const UniqueFd again, child.process->ExportArena(second));
  EXPECT_EQ(Read(again, 7), "weights");

  child.process->ReleaseArena(first);
  EXPECT_THAT(child.process->ExportArena(first), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK_AND_ASSIGN(const ArenaId third, MakeArena(child, 1000));
  EXPECT_NE(third, first);
}

// GPUs of a system that keeps their memory only while they are in use.
class GpuWithoutPersistenceTest : public GpuProcessTest {
 protected:
  GpuProcessOptions OptionsWith(const std::string& faults = "") {
    GpuProcessOptions options = OptionsOf(0, {{"CROSSMESH_STANDIN_NO_PERSISTENCE", folder_.path()},
                                              {"CROSSMESH_STANDIN_FAULTS", faults}});
    options.system_root = folder_.path();
    const std::string gpu = folder_.PathOf("proc/driver/nvidia/gpus/0000:00:00.0");
    std::filesystem::create_directories(gpu);
    std::ofstream(absl::StrCat(gpu, "/information")) << "Device Minor: \t 0\n";
    return options;
  }
  bool IsDeviceOpen() const {
    const std::string device = folder_.PathOf("dev/nvidia0");
    return UniqueFd(open(device.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)).valid();
  }
  // As `nvidia-smi --gpu-reset` does, or the driver after an error of the hardware.
  void Reset() { std::ofstream(folder_.PathOf("lives0"), std::ios::app) << '.'; }
};

TEST_F(GpuWithoutPersistenceTest, TheWorkerKeepsTheMemoryWhileThereIsNoProcess) {
  Child& child = StartUp(OptionsWith());
  ASSERT_OK_AND_ASSIGN(const ArenaId arena, MakeArena(child, 1000));
  SendSignal(child.process->pid(), SIGKILL);
  AwaitReplacement(child);
  EXPECT_THAT(child.told.lost, IsEmpty());
  EXPECT_OK(child.process->ExportArena(arena));
}

// So that it can be reset.
TEST_F(GpuWithoutPersistenceTest, AGpuWithoutArenasIsFreeOnceItsProcessHasEnded) {
  Child& child = StartUp(OptionsWith());
  ASSERT_OK_AND_ASSIGN(const ArenaId arena, MakeArena(child, 1000));
  child.process->ReleaseArena(arena);
  SendSignal(child.process->pid(), SIGKILL);
  RunUntil([&] { return child.process->pid() < 0; });
  EXPECT_FALSE(IsDeviceOpen());
}

TEST_F(GpuWithoutPersistenceTest, AGpuThatWasResetComesUpWithoutItsArenas) {
  Child& child = StartUp(OptionsWith());
  ASSERT_OK_AND_ASSIGN(const ArenaId first, MakeArena(child, 1000));
  ASSERT_OK_AND_ASSIGN(const ArenaId second, MakeArena(child, 1000));
  SendSignal(child.process->pid(), SIGKILL);
  Reset();
  AwaitReplacement(child);
  const auto is_gone = StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr(StandInUuid(0)), HasSubstr("was reset")));
  EXPECT_THAT(child.told.lost, ElementsAre(Pair(first, is_gone), Pair(second, is_gone)));
  EXPECT_THAT(child.process->ExportArena(first), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_OK(MakeArena(child, 1000));
}

// 999 ends a context elsewhere.
TEST_F(GpuWithoutPersistenceTest, AnImportThatFailsWithoutAReasonCostsItsArenaAlone) {
  Child& child = StartUp(OptionsWith("import_result=999"));
  ASSERT_OK_AND_ASSIGN(const ArenaId arena, MakeArena(child, 1000));
  SendSignal(child.process->pid(), SIGKILL);
  Reset();
  AwaitReplacement(child);
  EXPECT_THAT(child.told.lost, ElementsAre(Pair(arena, testing::_)));
  EXPECT_OK(MakeArena(child, 1000));
}

TEST_F(GpuWithoutPersistenceTest, AnImportThatOnlyPassesForALackOfMemoryIsTriedThreeTimes) {
  Child& child = StartUp(OptionsWith("import_result=2"));
  ASSERT_OK_AND_ASSIGN(const ArenaId arena, MakeArena(child, 1000));
  SendSignal(child.process->pid(), SIGKILL);
  Reset();
  for (size_t tries = 1; tries <= 3; ++tries) {
    EXPECT_THAT(child.told.lost, IsEmpty());
    RunUntil([&] { return child.process->pid() < 0; });
    clock_.Advance(absl::Seconds(30));
    RunUntil([&] { return child.told.downs.size() == tries + 1; });
  }
  AwaitReplacement(child);
  EXPECT_THAT(child.told.lost,
              ElementsAre(Pair(arena, StatusIs(absl::StatusCode::kResourceExhausted))));
}

TEST_F(GpuProcessTest, AProcessThatDoesNotAnswerInTimeIsReplaced) {
  Child& child = StartUp(OptionsOf(0));
  SendSignal(child.process->pid(), SIGSTOP);
  const auto call = Begin(child, MintCommunicatorIdRequest());
  clock_.Advance(absl::Seconds(31));
  Await(*call);
  EXPECT_THAT(call->status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("did not answer mint_communicator_id within 30s")));
  EXPECT_THAT(child.told.downs, ElementsAre(StatusIs(absl::StatusCode::kDeadlineExceeded)));
  AwaitReplacement(child);
  EXPECT_EQ(MintIdAt(child).size(), 128U);
}

// As NCCL does.
TEST_F(GpuProcessTest, WarningsThatAProcessPrintedAreLoggedWithItsEnd) {
  std::string logged;
  const ScopedLogSink sink([&](const LogRecord& record) {
    if (record.event == "gpu_process_ended") logged = record.ToText();
  });
  GpuProcessOptions options = OptionsOf(0);
  options.program = folder_.PathOf("crossmesh-gpu");
  std::ofstream(options.program) << "#!/bin/sh\necho \"NCCL $NCCL_DEBUG no room\"\nexit 70\n";
  std::filesystem::permissions(options.program, std::filesystem::perms::owner_all);
  const Child& child = Start(options);
  RunUntil([&] { return !child.told.downs.empty() && child.process->pid() < 0; });
  EXPECT_THAT(logged, AllOf(HasSubstr("exit status 70"), HasSubstr("NCCL WARN no room")));
}

TEST_F(GpuProcessTest, WithoutADriverThereIsNoGpuWhichIsLoggedOnce) {
  std::vector<std::string> logged;
  const ScopedLogSink sink([&](const LogRecord& record) {
    if (record.event == "gpu_unavailable") logged.push_back(record.ToText());
  });
  GpuProcessOptions options = OptionsOf(0);
  options.driver_library = folder_.PathOf("libcuda.so.1");
  Child& child = Start(options);
  RunUntil([&] { return !child.told.given_up.empty(); });
  EXPECT_THAT(child.told.given_up, ElementsAre(StatusIs(absl::StatusCode::kFailedPrecondition,
                                                        HasSubstr("libcuda.so.1"))));
  EXPECT_THAT(logged, ElementsAre(HasSubstr(StandInUuid(0))));
  EXPECT_THAT(MakeArena(child, 1), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(GpuProcessTest, AProgramThatIsNotThereIsTold) {
  GpuProcessOptions options = OptionsOf(0);
  options.program = folder_.PathOf("crossmesh-gpu");
  Child& child = Start(options);
  RunUntil([&] { return !child.told.given_up.empty(); });
  EXPECT_THAT(child.told.given_up,
              ElementsAre(StatusIs(absl::StatusCode::kNotFound, HasSubstr("cannot run "))));
}

// A package that is being replaced has no program for a moment, and then half of one.
TEST_F(GpuProcessTest, AProgramThatCannotBeStartedForAWhileIsTriedAgain) {
  int tries = 0;
  const ScopedLogSink sink(
      [&](const LogRecord& record) { tries += record.event == "gpu_process_not_started"; });
  GpuProcessOptions options = OptionsOf(0);
  const std::string program = std::exchange(options.program, folder_.PathOf("crossmesh-gpu"));
  std::ofstream(options.program) << "half";
  std::filesystem::permissions(options.program, std::filesystem::perms::owner_all);
  Child& child = Start(options);
  const auto await_try = [&](int number) {
    RunUntil([&] { return tries == number || !child.told.given_up.empty(); });
    ASSERT_THAT(child.told.given_up, IsEmpty());
  };
  await_try(1);
  std::filesystem::remove(options.program);
  std::filesystem::create_symlink(program, options.program);
  clock_.Advance(options.backoff.max);
  AwaitUps(child, 1);

  std::filesystem::remove(options.program);
  SendSignal(child.process->pid(), SIGKILL);
  RunUntil([&] { return child.process->pid() < 0; });
  clock_.Advance(options.backoff.max);
  await_try(2);
  EXPECT_THAT(MakeArena(child, 1),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(options.program)));
  std::filesystem::create_symlink(program, options.program);
  clock_.Advance(options.backoff.max);
  AwaitUps(child, 2);
}

TEST_F(GpuProcessTest, ProcessesMakeACommunicatorAndDestroyIt) {
  Child& a = StartUp(OptionsOf(0));
  Child& b = StartUp(OptionsOf(1));
  EXPECT_THAT(CreateCommunicator({&a, &b}), Each(IsOk()));
  EXPECT_THAT(DestroyCommunicator({&a, &b}), Each(IsOk()));
  EXPECT_THAT(CreateCommunicator({&a, &b}), Each(IsOk()));
  EXPECT_THAT(DestroyCommunicator({&a, &b}), Each(IsOk()));
}

TEST_F(GpuProcessTest, TheCommunicatorsOfAProcessThatIsKilledEndAtTheOthers) {
  Child& a = StartUp(OptionsOf(0));
  Child& b = StartUp(OptionsOf(1));
  ASSERT_THAT(CreateCommunicator({&a, &b}), Each(IsOk()));
  const CommunicatorKey key = KeyOf({&a, &b});
  SendSignal(b.process->pid(), SIGKILL);
  AwaitReplacement(b);
  const auto stop = Begin(a, StopCommunicatorRequest(key, "a peer is gone"));
  Await(*stop);
  EXPECT_OK(stop->status());
  b.tickets = 0;
  EXPECT_THAT(CreateCommunicator({&a, &b}), Each(IsOk()));
  EXPECT_THAT(DestroyCommunicator({&a, &b}), Each(IsOk()));
}

TEST_F(GpuProcessTest, ACommunicatorThatIsNotMadeInItsTimeIsGone) {
  Child& child = StartUp(OptionsOf(0, {{"CROSSMESH_STANDIN_FAULTS", "init_never_ends=1"}}));
  const auto create = Begin(
      child, CreateCommunicatorRequest({.key = KeyOf({&child}), .timeout = absl::Milliseconds(1)},
                                       MintIdAt(child)));
  Await(*create);
  EXPECT_THAT(create->status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("was not made in its time")));
  EXPECT_TRUE(child.process->is_up());
}

TEST_F(GpuProcessTest, AnAbortThatHangsIsToldAndTheProcessReplaced) {
  GpuProcessOptions options =
      OptionsOf(0, {{"CROSSMESH_STANDIN_FAULTS", "init_never_ends=1,abort_hangs=1"}});
  options.communicator_end_limit = absl::Milliseconds(10);
  Child& child = StartUp(options);
  const auto create = Begin(
      child, CreateCommunicatorRequest({.key = KeyOf({&child}), .timeout = absl::Milliseconds(1)},
                                       MintIdAt(child)));
  Await(*create);
  EXPECT_THAT(create->status(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("is HUNG")));
  EXPECT_THAT(child.told.downs,
              ElementsAre(StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("is HUNG"))));
  AwaitReplacement(child);
}

}  // namespace
}  // namespace crossmesh
