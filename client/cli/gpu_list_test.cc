#include "client/cli/gpu_list.h"

#include "common/testing/temporary_folder.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(GpuListTest, AreThoseThatTheDriverTells) {
  const TemporaryFolder folder;
  const auto add = [&](const std::string& place, const std::string& information) {
    std::filesystem::create_directory(folder.PathOf(place));
    std::ofstream(folder.PathOf(place + "/information")) << information;
  };
  add("0000:b1:00.0",
      "Model: \t\t NVIDIA H200\nIRQ:   \t\t 55\nGPU UUID: \t GPU-b\nVideo BIOS: 96\n");
  add("0000:0a:00.0", "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-a\n");
  add("0000:ff:00.0", "Model: \t\t Unknown\n");
  EXPECT_THAT(ListGpus(folder.path()), ElementsAre("GPU-a", "GPU-b"));
}

TEST(GpuListTest, AreNoneWithoutADriver) { EXPECT_THAT(ListGpus("/nonexistent"), IsEmpty()); }

}  // namespace
}  // namespace crossmesh
