#include "client/cli/worker_report.h"

#include "common/testing/status_matchers.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// With one GPU, of which its process and its host tell.
v1::Worker WorkerOf(const std::string& name, int device) {
  v1::Worker worker;
  worker.set_name(name);
  worker.set_m2n(true);
  v1::Gpu& gpu = *worker.add_gpus();
  gpu.set_device("node-a." + std::to_string(device));
  gpu.mutable_process()->set_gpu("GPU-" + std::to_string(device));
  gpu.mutable_hardware()->set_memory_bytes(85'520'809'984);
  gpu.mutable_hardware()->set_nvlinks(18);
  gpu.mutable_hardware()->set_mig(false);
  v1::Host& host = *worker.mutable_described_host();
  host.set_name("node-a");
  for (const char* name_of_nic : {"ib0", "ib1"}) {
    v1::Nic& nic = *host.add_nics();
    nic.set_name(name_of_nic);
    nic.set_out_bytes_per_second(50'000'000'000);
    nic.set_in_bytes_per_second(50'000'000'000);
  }
  v1::HostGpu& described = *host.add_gpus();
  described.set_device(device);
  described.set_nic("ib" + std::to_string(device));
  described.set_link_out_bytes_per_second(450'000'000'000);
  described.set_link_in_bytes_per_second(450'000'000'000);
  described.set_copy_bytes_per_second(1'300'000'000'000);
  return worker;
}

TEST(WorkerReportTest, EachGpuHasARowOfWhatIsKnown) {
  std::vector<v1::Worker> workers = {WorkerOf("w0", 0), WorkerOf("w1", 1)};
  workers[1].clear_described_host();
  workers[1].mutable_gpus(0)->clear_hardware();
  workers[1].set_m2n(false);
  EXPECT_EQ(
      GpusText(workers),
      "DEVICE    WORKER  GPU     MEMORY  NVLINKS  MIG  PERSISTENCE  NIC           LINKS  NCCL M2N\n"
      "--------  ------  -----  -------  -------  ---  -----------  -------  ----------  --------\n"
      "node-a.0  w0      GPU-0  85.5 GB       18  off  -            ib0      450.0 GB/s  yes\n"
      "node-a.1  w1      GPU-1  unknown  unknown  -    -            unknown     unknown  no\n");
}

TEST(WorkerReportTest, WorkersOfAHostDescribeItTogether) {
  ASSERT_OK_AND_ASSIGN(const Topology topology,
                       DescribedNetwork(std::vector{WorkerOf("w0", 0), WorkerOf("w1", 1)}));
  ASSERT_EQ(topology.hosts().size(), 1u);
  EXPECT_EQ(topology.hosts()[0].nics.size(), 2u);
  ASSERT_EQ(topology.hosts()[0].gpus.size(), 2u);
  EXPECT_EQ(topology.FindGpu({"node-a", 1})->nic, "ib1");
}

TEST(WorkerReportTest, WithoutADescriptionItIsSaid) {
  v1::Worker worker = WorkerOf("w0", 0);
  worker.clear_described_host();
  EXPECT_THAT(DescribedNetwork(std::vector{worker}).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none of 1 workers describes")));
}

}  // namespace
}  // namespace crossmesh
