#include "worker/gpu/process/device_file.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DeviceFileTest : public testing::Test {
 protected:
  // As the kernel module writes it.
  void Describe(const std::string& lines) {
    std::filesystem::create_directories(root_.PathOf("dev"));
    const std::string folder = root_.PathOf("proc/driver/nvidia/gpus/0000:4b:00.0");
    std::filesystem::create_directories(folder);
    std::ofstream(absl::StrCat(folder, "/information")) << lines;
  }

  const TemporaryFolder root_;
};

TEST_F(DeviceFileTest, IsThatOfTheMinorNumberAtThePciAddress) {
  Describe(
      "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-????\nDevice Minor: \t 3\nGPU Excluded:\t No\n");
  std::ofstream(root_.PathOf("dev/nvidia3")) << "";
  EXPECT_OK(OpenDeviceFile(root_.path(), "0000:4b:00.0"));
}

TEST_F(DeviceFileTest, AGpuThatIsNotShownIsToldByThePathThatLacks) {
  EXPECT_THAT(
      OpenDeviceFile(root_.path(), "0000:4b:00.0"),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(HasSubstr("gpus/0000:4b:00.0/information"), HasSubstr("Device Minor"))));
  Describe("Device Minor: \t none\n");
  EXPECT_THAT(OpenDeviceFile(root_.path(), "0000:4b:00.0"), StatusIs(absl::StatusCode::kNotFound));
  Describe("Device Minor: \t 3\n");
  EXPECT_THAT(OpenDeviceFile(root_.path(), "0000:4b:00.0"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("dev/nvidia3")));
}

}  // namespace
}  // namespace crossmesh
