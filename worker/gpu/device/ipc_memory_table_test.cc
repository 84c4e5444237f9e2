#include "worker/gpu/device/ipc_memory_table.h"

#include "common/testing/status_matchers.h"
#include "worker/gpu/device/testing/stand_in_process.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kBytes = 1000;

// Memory that a process has, and its handle.
absl::StatusOr<CUdeviceptr> Allocate(const StandInProcess& process, IpcHandle& handle) {
  const DriverApi& driver = process.driver();
  CUdeviceptr address = 0;
  CUipcMemHandle made = {};
  RETURN_IF_ERROR(process.gpu->Check(driver.cuMemAlloc(&address, kBytes), "cuMemAlloc"));
  RETURN_IF_ERROR(
      process.gpu->Check(driver.cuIpcGetMemHandle(&made, address), "cuIpcGetMemHandle"));
  std::memcpy(handle.data(), &made, sizeof(made));
  return address;
}

// The first process has the memory. It frees it once the second has done what it does before.
absl::Status RunOwner(Meeting& meeting) {
  ASSIGN_OR_RETURN(StandInProcess process, StandInProcess::Create());
  IpcHandle handle = {};
  ASSIGN_OR_RETURN(const CUdeviceptr address, Allocate(process, handle));
  std::memset(reinterpret_cast<void*>(address), 7, kBytes);
  std::memcpy(meeting.bytes, handle.data(), handle.size());
  meeting.Wait();
  meeting.Wait();
  RETURN_IF_ERROR(process.gpu->Check(process.driver().cuMemFree(address), "cuMemFree"));
  meeting.Wait();
  return process.End();
}

using Use = std::function<absl::Status(StandInProcess& process, const IpcHandle& handle)>;

absl::Status EndProcess(StandInProcess& process, const IpcHandle& /*handle*/) {
  return process.End();
}

// What the second process does with the handle, before the memory is freed and after.
struct User {
  Use before;
  Use after = EndProcess;
};

absl::Status RunUser(const User& user, Meeting& meeting) {
  ASSIGN_OR_RETURN(StandInProcess process, StandInProcess::Create());
  meeting.Wait();
  IpcHandle handle = {};
  std::memcpy(handle.data(), meeting.bytes, handle.size());
  const absl::Status before = user.before(process, handle);
  meeting.Wait();
  meeting.Wait();
  RETURN_IF_ERROR(before);
  return user.after(process, handle);
}

std::vector<std::string> RunOwnerAnd(const User& user) {
  return RunRanks(2, [&](int rank, Meeting& meeting) {
    return rank == 0 ? RunOwner(meeting) : RunUser(user, meeting);
  });
}

int64_t CallsOf(const StandInProcess& process, absl::string_view name) {
  return std::ranges::count_if(process.stand_in->Calls(),
                               [name](const StandInCall& call) { return call.name == name; });
}

absl::Status OpenTwice(StandInProcess& process, const IpcHandle& handle) {
  IpcMemoryTable table(*process.gpu);
  ASSIGN_OR_RETURN(auto first, table.Open(handle, 1));
  ASSIGN_OR_RETURN(auto second, table.Open(handle, 1));
  RETURN_IF_ERROR(Expect(first == second, "the same memory"));
  RETURN_IF_ERROR(Expect(first->bytes() == ByteCount(kBytes), "the whole allocation"));
  const auto* last = reinterpret_cast<const char*>(first->address() + kBytes - 1);
  RETURN_IF_ERROR(Expect(*last == 7, "the owner's bytes"));
  first.reset();
  RETURN_IF_ERROR(Expect(CallsOf(process, "cuIpcCloseMemHandle") == 0, "it stays for the second"));
  second.reset();
  RETURN_IF_ERROR(Expect(CallsOf(process, "cuIpcOpenMemHandle") == 1, "it was opened once"));
  RETURN_IF_ERROR(Expect(CallsOf(process, "cuIpcCloseMemHandle") == 1, "the last user closes it"));
  return table.Open(handle, 1).status();
}

TEST(IpcMemoryTableTest, MemoryIsOpenedOnceAndClosedByItsLastUser) {
  EXPECT_THAT(RunOwnerAnd({.before = OpenTwice}), ElementsAre(IsEmpty(), IsEmpty()));
}

absl::Status OpenNewerGeneration(StandInProcess& process, const IpcHandle& handle) {
  IpcMemoryTable table(*process.gpu);
  ASSIGN_OR_RETURN(auto old, table.Open(handle, 4));
  const absl::Status early = table.Open(handle, 5).status();
  const absl::Status stale = table.Open(handle, 4).status();
  old.reset();
  RETURN_IF_ERROR(table.Open(handle, 5).status());
  return absl::UnknownError(absl::StrCat(early.ToString(), "; ", stale.ToString()));
}

TEST(IpcMemoryTableTest, ANewerGenerationWaitsForTheUsersOfTheOlderWhichNobodyGetsAnyMore) {
  EXPECT_THAT(
      RunOwnerAnd({.before = OpenNewerGeneration}),
      ElementsAre(
          IsEmpty(),
          AllOf(HasSubstr("FAILED_PRECONDITION: memory of another process, handle "),
                HasSubstr("generation 5: generation 4 is still in use here; FAILED_PRECONDITION"),
                HasSubstr("generation 4: stale, expected 5 or later"))));
}

absl::Status OpenAgainAfterForgetting(StandInProcess& process, const IpcHandle& handle) {
  IpcMemoryTable table(*process.gpu);
  RETURN_IF_ERROR(table.Open(handle, 4).status());
  table.Forget(handle);
  return table.Open(handle, 1).status();
}

TEST(IpcMemoryTableTest, GenerationsOfAnOwnerThatHasEndedAreForgotten) {
  EXPECT_THAT(RunOwnerAnd({.before = OpenAgainAfterForgetting}), ElementsAre(IsEmpty(), IsEmpty()));
}

absl::Status OpenFreedMemory(StandInProcess& process, const IpcHandle& handle) {
  IpcMemoryTable table(*process.gpu);
  return table.Open(handle, 1).status();
}

TEST(IpcMemoryTableTest, MemoryThatItsOwnerHasFreedCannotBeOpened) {
  const auto nothing = [](StandInProcess&, const IpcHandle&) { return absl::OkStatus(); };
  EXPECT_THAT(RunOwnerAnd({.before = nothing, .after = OpenFreedMemory}),
              ElementsAre(IsEmpty(), AllOf(HasSubstr("cuIpcOpenMemHandle"),
                                           HasSubstr("CUDA_ERROR_INVALID_HANDLE"))));
}

absl::Status OpenOwnMemory() {
  ASSIGN_OR_RETURN(StandInProcess process, StandInProcess::Create());
  IpcHandle handle = {};
  ASSIGN_OR_RETURN(const CUdeviceptr address, Allocate(process, handle));
  IpcMemoryTable table(*process.gpu);
  const absl::Status status = table.Open(handle, 1).status();
  RETURN_IF_ERROR(process.gpu->Check(process.driver().cuMemFree(address), "cuMemFree"));
  return status;
}

TEST(IpcMemoryTableTest, AHandleOfThisVeryProcessIsRefusedByTheDriver) {
  EXPECT_THAT(RunRanks(1, [](int, Meeting&) { return OpenOwnMemory(); }),
              ElementsAre(HasSubstr("cuIpcOpenMemHandle: CUDA_ERROR_INVALID_CONTEXT")));
}

}  // namespace
}  // namespace crossmesh
