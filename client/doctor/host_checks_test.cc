#include "client/doctor/host_checks.h"

#include "common/base/unique_fd.h"
#include "common/testing/temporary_folder.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using State = HostCheck::State;
namespace fs = std::filesystem;

// A host made of files.
class HostChecksTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const fs::path file = fs::path(folder_.path()) / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  HostCheck Find(const std::string& name) {
    options_.root = absl::StrCat(folder_.path(), "/");
    for (const HostCheck& check : CheckHost(options_)) {
      if (check.name == name) return check;
    }
    ADD_FAILURE() << "no check " << name;
    return {};
  }

  TemporaryFolder folder_;
  HostCheckOptions options_;
};

TEST_F(HostChecksTest, NamesProgramsThatLack) {
  options_.programs = folder_.path();
  Write("crossmesh-worker", "");
  fs::permissions(fs::path(folder_.path()) / "crossmesh-worker", fs::perms::owner_all);
  const HostCheck check = Find("programs");
  EXPECT_EQ(check.state, State::kProblem);
  EXPECT_THAT(check.found, HasSubstr("no crossmesh-controller in"));
  EXPECT_THAT(check.found, testing::Not(HasSubstr("no crossmesh-worker")));
}

TEST_F(HostChecksTest, ComparesMemoryWithWhatIsToBeStored) {
  Write("proc/meminfo",
        "MemTotal: 2097152 kB\nMemAvailable:    1048576 kB\nHugePages_Free:  3\n"
        "Hugepagesize: 2048 kB\n");
  options_.memory_bytes = int64_t{1} << 30;
  EXPECT_EQ(Find("memory").state, State::kGood);
  EXPECT_THAT(Find("huge pages").found, HasSubstr("3 of 2.1 MB"));
  options_.memory_bytes += 1;
  EXPECT_EQ(Find("memory").state, State::kProblem);
}

TEST_F(HostChecksTest, AHostWithoutFilesIsAnsweredAsWell) {
  EXPECT_EQ(Find("memory").found, "unknown");
  EXPECT_EQ(Find("huge pages").found, "none reserved");
  EXPECT_EQ(Find("interfaces").state, State::kProblem);
  EXPECT_EQ(Find("NUMA nodes").found, "1");
}

TEST_F(HostChecksTest, AdvisesToGiveStoragesHugePages) {
  const std::string path = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
  EXPECT_EQ(Find("pages of storages").found, "huge ones: unknown");
  Write(path, "always within_size advise [never] deny force\n");
  const HostCheck check = Find("pages of storages");
  EXPECT_EQ(check.state, State::kNote);
  EXPECT_EQ(check.found, "huge ones: never");
  EXPECT_THAT(check.advice, HasSubstr("echo advise > /sys/kernel/mm"));
  Write(path, "always within_size advise never [deny] force\n");
  EXPECT_EQ(Find("pages of storages").state, State::kNote);
  Write(path, "always within_size [advise] never deny force\n");
  EXPECT_EQ(Find("pages of storages").state, State::kGood);
  EXPECT_EQ(Find("pages of storages").advice, "");
}

TEST_F(HostChecksTest, ComparesSharedMemoryWithWhatNcclTakesForTheGpus) {
  options_.shared_memory_bytes = int64_t{64} << 20;  // that of a container
  EXPECT_EQ(Find("shared memory").state, State::kGood) << "without GPUs";
  Write("proc/driver/nvidia/gpus/0000:1b:00.0/information", "");
  EXPECT_EQ(Find("shared memory").state, State::kNote);
  Write("proc/driver/nvidia/gpus/0000:5c:00.0/information", "");
  const HostCheck check = Find("shared memory");
  EXPECT_EQ(check.state, State::kProblem);
  EXPECT_THAT(check.found, HasSubstr("expected 68.4 MB free for a communicator with 2 ranks"));
  EXPECT_THAT(check.advice, HasSubstr("--shm-size"));
  options_.shared_memory_bytes = int64_t{1} << 30;
  EXPECT_EQ(Find("shared memory").state, State::kGood);
}

TEST_F(HostChecksTest, TellsOfTheLibrariesWhereThereAreGpus) {
  options_.nccl = CROSSMESH_STANDIN_FOLDER "/libnccl.so.2";
  options_.m2n = "/nowhere/libnccl_m2n.so";
  EXPECT_EQ(Find("NCCL").found, "not needed: no GPUs");
  Write("proc/driver/nvidia/gpus/0000:1b:00.0/information", "");
  EXPECT_THAT(Find("NCCL").found, StartsWith("2."));
  EXPECT_THAT(Find("NCCL M2N").found, HasSubstr("no strategy m2n: /nowhere/libnccl_m2n.so"));
  options_.m2n = CROSSMESH_STANDIN_FOLDER "/libnccl_m2n.so.0";
  EXPECT_EQ(Find("NCCL M2N").found, "there");
  options_.nccl = "/nowhere/libnccl.so.2";
  const HostCheck check = Find("NCCL");
  EXPECT_EQ(check.state, State::kNote);
  EXPECT_THAT(check.advice, HasSubstr("--nccl-library"));
}

TEST_F(HostChecksTest, ListsInterfacesAndDevices) {
  Write("sys/class/net/eth0/operstate", "up\n");
  Write("sys/class/net/eth0/speed", "25000\n");
  Write("sys/class/net/eth1/operstate", "down\n");
  Write("sys/class/net/eth1/speed", "-1\n");
  Write("sys/class/infiniband/mlx5_0/ports", "");
  Write("sys/devices/system/node/node0/cpulist", "0");
  Write("sys/devices/system/node/node1/cpulist", "1");
  EXPECT_EQ(Find("interfaces").found, "eth0 up 25000 Mbit/s, eth1 down");
  EXPECT_EQ(Find("RDMA devices").found, "mlx5_0");
  EXPECT_EQ(Find("NUMA nodes").state, State::kNote);
}

TEST_F(HostChecksTest, AdvisesAgainstBbr) {
  Write("proc/sys/net/ipv4/tcp_congestion_control", "bbr\n");
  EXPECT_EQ(Find("TCP").state, State::kNote);
  Write("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n");
  EXPECT_EQ(Find("TCP").state, State::kGood);
}

TEST_F(HostChecksTest, SaysWhenAnAddressIsTaken) {
  EXPECT_EQ(Find("listening").state, State::kGood);
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd.get(), 1), 0);
  ASSERT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  options_.listen = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  EXPECT_EQ(Find("listening").state, State::kProblem);
  options_.listen = "nowhere";
  EXPECT_THAT(Find("listening").found, HasSubstr("expected HOST:PORT"));
}

}  // namespace
}  // namespace crossmesh
