// What needs a process of its own: the environment, memory of another process, hangs.

#include "common/base/unique_fd.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "tests/standin/rank.h"
#include "worker/gpu/kernels/kernel.h"
#include "worker/gpu/kernels/kernel_arguments.h"
#include "worker/gpu/kernels/kernel_image.h"

#include <csignal>
#include <cstring>
#include <fstream>
#include <new>
#include <sstream>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/time.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kBytes = 2 << 20;

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string RunOne(absl::FunctionRef<absl::Status()> body) {
  return RunRanks(1, [&](int, Meeting&) { return body(); })[0];
}

TEST(ProcessTest, NothingIsCalledBeforeInit) {
  EXPECT_THAT(RunOne([]() -> absl::Status {
                ASSIGN_OR_RETURN(const auto stand_in, StandIn::Load());
                int count = 0;
                return stand_in->Check(stand_in->driver().cuDeviceGetCount(&count), "");
              }),
              HasSubstr("cuDeviceGetCount: cuInit has not been called"));
}

TEST(ProcessTest, AMachineMayHaveNoDevice) {
  EXPECT_THAT(RunOne([]() -> absl::Status {
                setenv("CROSSMESH_STANDIN_DEVICES", "0", 1);
                ASSIGN_OR_RETURN(const auto stand_in, StandIn::Load());
                return stand_in->Check(stand_in->driver().cuInit(0), "cuInit");
              }),
              AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("CUDA_ERROR_NO_DEVICE")));
}

TEST(ProcessTest, AnOldNcclIsNotLoaded) {
  EXPECT_THAT(RunOne([]() -> absl::Status {
                setenv("CROSSMESH_STANDIN_NCCL_VERSION", "2.27.7", 1);
                return StandIn::Load().status();
              }),
              AllOf(HasSubstr("NCCL 2.27.7"), HasSubstr("expected version 2.28.9 or later")));
}

TEST(ProcessTest, TheReportHasWhatWasDoneWrongAndTheLogWhatWasCalled) {
  const TemporaryFolder folder;
  const std::string report = folder.PathOf("report");
  const std::string log = folder.PathOf("log");
  EXPECT_THAT(RunOne([&]() -> absl::Status {
                setenv("CROSSMESH_STANDIN_REPORT", report.c_str(), 1);
                setenv("CROSSMESH_STANDIN_LOG", log.c_str(), 1);
                ASSIGN_OR_RETURN(const auto stand_in, StandIn::Load());
                ASSIGN_OR_RETURN(const auto gpu, StandInGpu::Create(*stand_in));
                stand_in->driver().cuStreamSynchronize(nullptr);
                return absl::OkStatus();
              }),
              IsEmpty());
  EXPECT_THAT(ReadFile(report), AllOf(HasSubstr("Crossmesh stand-in, process "),
                                      HasSubstr("cuStreamSynchronize: a default stream")));
  EXPECT_THAT(ReadFile(log), AllOf(HasSubstr("\tcuInit\t"), HasSubstr("\tcuStreamSynchronize\t"),
                                   HasSubstr("\tcuDevicePrimaryCtxRelease")));
}

TEST(ProcessTest, FaultsComeFromTheEnvironment) {
  EXPECT_THAT(RunOne([]() -> absl::Status {
                setenv("CROSSMESH_STANDIN_FAULTS", "out_of_memory_at=1", 1);
                ASSIGN_OR_RETURN(const auto stand_in, StandIn::Load());
                ASSIGN_OR_RETURN(const auto gpu, StandInGpu::Create(*stand_in));
                return gpu->Allocate(100).status();
              }),
              HasSubstr("injected fault out_of_memory_at"));
}

// Three rows of 100 bytes at a distance of 256, by the kernel that packs.
absl::Status PackRows(const DriverApi& driver, CUmodule module, StandInGpu& gpu) {
  ASSIGN_OR_RETURN(const auto memory, gpu.Allocate(4096));
  auto* const box = new (memory.data()) KernelBox;
  *box = {.address = reinterpret_cast<uint64_t>(memory.data()) + 1024,
          .rows = 3,
          .row_bytes = 100,
          .pitch_bytes = 256};
  for (int row = 0; row < 3; ++row) std::memset(memory.data() + 1024 + row * 256, row + 1, 100);
  PackArguments arguments = {
      .boxes = box, .box_count = 1, .begin = 0, .end = 300, .packed = memory.data() + 2048};
  CUfunction pack = nullptr;
  RETURN_IF_ERROR(driver.Check(driver.cuModuleGetFunction(&pack, module, "crossmesh_pack"), ""));
  void* pointers[] = {&arguments};
  RETURN_IF_ERROR(driver.Check(driver.cuLaunchKernel(pack, 1, 1, 1, Kernels()[0].threads, 1, 1, 0,
                                                     gpu.stream(), pointers, nullptr),
                               ""));
  RETURN_IF_ERROR(gpu.Synchronize());
  const std::byte* packed = memory.data() + 2048;
  const bool is_packed = packed[0] == std::byte{1} && packed[99] == std::byte{1} &&
                         packed[100] == std::byte{2} && packed[299] == std::byte{3} &&
                         packed[300] == std::byte{0};
  return is_packed ? absl::OkStatus() : absl::DataLossError("other bytes than the rows");
}

TEST(ProcessTest, TheProductsKernelsRunAsHostFunctions) {
  EXPECT_THAT(
      RunOne([]() -> absl::Status {
        setenv("CROSSMESH_STANDIN_KERNELS", StandInKernelsPath().c_str(), 1);
        ASSIGN_OR_RETURN(const auto stand_in, StandIn::Load());
        ASSIGN_OR_RETURN(const auto gpu, StandInGpu::Create(*stand_in));
        const DriverApi& driver = stand_in->driver();
        CUmodule module = nullptr;
        RETURN_IF_ERROR(driver.Check(driver.cuModuleLoadData(&module, KernelImage().data()), ""));
        for (const Kernel& kernel : Kernels()) {
          CUfunction function = nullptr;
          RETURN_IF_ERROR(
              driver.Check(driver.cuModuleGetFunction(&function, module, kernel.name.data()), ""));
        }
        return PackRows(driver, module, *gpu);
      }),
      IsEmpty());
}

TEST(ProcessTest, AfterAnIllegalAddressNothingOfTheDeviceWorks) {
  EXPECT_THAT(
      RunOne([]() -> absl::Status {
        setenv("CROSSMESH_STANDIN_KERNELS", StandInKernelsPath().c_str(), 1);
        ASSIGN_OR_RETURN(const auto stand_in, StandIn::Load());
        ASSIGN_OR_RETURN(const auto gpu, StandInGpu::Create(*stand_in));
        const DriverApi& driver = stand_in->driver();
        CUmodule module = nullptr;
        RETURN_IF_ERROR(driver.Check(driver.cuModuleLoadData(&module, KernelImage().data()), ""));
        RETURN_IF_ERROR(stand_in->SetFaults("illegal_address_at=2"));
        RETURN_IF_ERROR(PackRows(driver, module, *gpu));
        const absl::Status launch = PackRows(driver, module, *gpu);
        const absl::Status after = gpu->FreeBytes().status();
        return absl::UnknownError(absl::StrCat(launch.message(), "; ", after.message()));
      }),
      AllOf(HasSubstr("cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
            HasSubstr("cuMemGetInfo: CUDA_ERROR_ILLEGAL_ADDRESS (700)")));
}

TEST(ProcessTest, AnAbortHangs) {
  EXPECT_EQ(RunRanks(1,
                     [](int number, Meeting& meeting) -> absl::Status {
                       ASSIGN_OR_RETURN(Rank rank, Rank::Create(1, number, meeting));
                       RETURN_IF_ERROR(rank.stand_in->SetFaults("abort_hangs=1"));
                       // Long enough for an abort that does not hang.
                       const itimerval timer = {.it_value = {.tv_usec = 300'000}};
                       setitimer(ITIMER_REAL, &timer, nullptr);
                       return rank.Check(rank.nccl().ncclCommAbort(rank.communicator));
                     })[0],
            "killed by signal 14");
}

// Memory of another process.

absl::StatusOr<CUdeviceptr> MapShared(const Rank& rank, CUmemGenericAllocationHandle handle) {
  const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr address = 0;
  RETURN_IF_ERROR(rank.Check(rank.driver().cuMemAddressReserve(&address, kBytes, 0, 0, 0)));
  RETURN_IF_ERROR(rank.Check(rank.driver().cuMemMap(address, kBytes, 0, handle, 0)));
  RETURN_IF_ERROR(rank.Check(rank.driver().cuMemSetAccess(address, kBytes, &access, 1)));
  return address;
}

TEST(ProcessTest, ADescriptorCarriesMemoryToAnotherProcessAndOutlivesTheFirst) {
  const auto body = [](int number, Meeting& meeting) -> absl::Status {
    setenv("CROSSMESH_STANDIN_FIRST_DEVICE", "0", 1);
    ASSIGN_OR_RETURN(Rank rank, Rank::Create(2, number, meeting, false));
    CUmemGenericAllocationHandle handle = 0;
    UniqueFd fd;
    if (number == 0) {
      const CUmemAllocationProp properties = {
          .type = CU_MEM_ALLOCATION_TYPE_PINNED,
          .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
      RETURN_IF_ERROR(rank.Check(rank.driver().cuMemCreate(&handle, kBytes, &properties, 0)));
      RETURN_IF_ERROR(rank.Check(rank.driver().cuMemExportToShareableHandle(
          &meeting.fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)));
      ASSIGN_OR_RETURN(const CUdeviceptr address, MapShared(rank, handle));
      std::strcpy(reinterpret_cast<char*>(address), "of the first");
      meeting.process = getpid();
      meeting.Wait();
      meeting.Wait();
      kill(getpid(), SIGKILL);
    }
    meeting.Wait();
    // In place of a message with the descriptor.
    fd.Reset(open(absl::StrCat("/proc/", meeting.process, "/fd/", meeting.fd).c_str(), O_RDWR));
    meeting.Wait();
    RETURN_IF_ERROR(rank.Check(rank.driver().cuMemImportFromShareableHandle(
        &handle, reinterpret_cast<void*>(intptr_t{fd.get()}),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)));
    ASSIGN_OR_RETURN(const CUdeviceptr address, MapShared(rank, handle));
    return absl::UnknownError(reinterpret_cast<const char*>(address));  // for the test to see
  };
  EXPECT_THAT(RunRanks(2, body), ElementsAre("killed by signal 9", HasSubstr("of the first")));
}

// The first rank allocates, the second opens its handle; both take turns.
TEST(ProcessTest, AHandleOpensPlainMemoryUntilItIsFreed) {
  const auto owner = [](const Rank& rank, Meeting& meeting) -> absl::Status {
    CUdeviceptr address = 0;
    CUipcMemHandle handle = {};
    RETURN_IF_ERROR(rank.Check(rank.driver().cuMemAlloc(&address, 1000)));
    RETURN_IF_ERROR(rank.Check(rank.driver().cuIpcGetMemHandle(&handle, address)));
    std::memcpy(meeting.bytes, &handle, sizeof(handle));
    *reinterpret_cast<char*>(address + 999) = 'x';
    CUdeviceptr own = 0;
    if (rank.driver().cuIpcOpenMemHandle(&own, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
        CUDA_SUCCESS) {
      return absl::InternalError("a handle opens in its own process");
    }
    meeting.Wait();
    meeting.Wait();  // it was opened
    RETURN_IF_ERROR(rank.Check(rank.driver().cuMemFree(address)));
    meeting.Wait();
    return absl::OkStatus();
  };
  const auto user = [](const Rank& rank, Meeting& meeting) -> absl::Status {
    const auto open = [&](CUdeviceptr& address) {
      CUipcMemHandle handle = {};
      std::memcpy(&handle, meeting.bytes, sizeof(handle));
      return rank.Check(
          rank.driver().cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    };
    meeting.Wait();
    CUdeviceptr address = 0;
    CUdeviceptr again = 0;
    RETURN_IF_ERROR(open(address));
    RETURN_IF_ERROR(open(again));
    if (again != address) return absl::InternalError("another address the second time");
    if (*reinterpret_cast<char*>(address + 999) != 'x') return absl::DataLossError("other bytes");
    const auto fill = [&](size_t bytes) {
      return rank.driver().cuMemsetD8Async(address, 1, bytes, rank.gpu->stream());
    };
    RETURN_IF_ERROR(rank.Check(fill(1000)));
    RETURN_IF_ERROR(rank.gpu->Synchronize());
    meeting.Wait();
    meeting.Wait();  // it was freed
    const absl::Status use = rank.Check(fill(1000));
    RETURN_IF_ERROR(rank.Check(rank.driver().cuIpcCloseMemHandle(address)));
    RETURN_IF_ERROR(rank.Check(rank.driver().cuIpcCloseMemHandle(address)));
    const absl::Status stale = open(address);
    return absl::UnknownError(absl::StrCat(use.message(), "; ", stale.message()));
  };
  const auto results = RunRanks(2, [&](int number, Meeting& meeting) -> absl::Status {
    setenv("CROSSMESH_STANDIN_FIRST_DEVICE", "0", 1);
    ASSIGN_OR_RETURN(const Rank rank, Rank::Create(2, number, meeting, false));
    return number == 0 ? owner(rank, meeting) : user(rank, meeting);
  });
  EXPECT_THAT(results, ElementsAre(IsEmpty(), AllOf(HasSubstr("was freed by the exporting process"),
                                                    HasSubstr("stale: the exporter freed"))));
}

TEST(ProcessTest, AHandleOpensOnItsOwnDeviceOnly) {
  const auto results = RunRanks(2, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const Rank rank, Rank::Create(2, number, meeting, false));
    CUdeviceptr address = 0;
    CUipcMemHandle handle = {};
    if (number == 0) {
      RETURN_IF_ERROR(rank.Check(rank.driver().cuMemAlloc(&address, 1000)));
      RETURN_IF_ERROR(rank.Check(rank.driver().cuIpcGetMemHandle(&handle, address)));
      std::memcpy(meeting.bytes, &handle, sizeof(handle));
      meeting.Wait();
      meeting.Wait();
      return rank.Check(rank.driver().cuMemFree(address));
    }
    meeting.Wait();
    std::memcpy(&handle, meeting.bytes, sizeof(handle));
    const absl::Status told = rank.Check(
        rank.driver().cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    meeting.Wait();
    return told;
  });
  EXPECT_THAT(results, ElementsAre(IsEmpty(), HasSubstr("of another device than the context")));
}

}  // namespace
}  // namespace crossmesh
