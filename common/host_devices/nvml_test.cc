#include "common/host_devices/nvml.h"

#include "common/testing/status_matchers.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kLibrary[] = CROSSMESH_STANDIN_FOLDER "/libnvidia-ml.so.1";

void Manage(const char* gpus) {
  setenv("CROSSMESH_STANDIN_NVML", gpus, 1);  // NOLINT(concurrency-mt-unsafe)
}

TEST(NvmlTest, TellsWhatTheLibraryKnows) {
  Manage("GPU-a 100 18 1 0;GPU-b 200 0 - -;");
  const std::vector<std::string> uuids = {"GPU-b", "GPU-a", "GPU-c"};
  ASSERT_OK_AND_ASSIGN(const auto gpus, ReadNvml(kLibrary, uuids));
  EXPECT_THAT(
      gpus,
      ElementsAre(NvmlGpu{.memory_bytes = 200},
                  NvmlGpu{.memory_bytes = 100, .nvlinks = 18, .persistence = true, .mig = false},
                  std::nullopt));
  EXPECT_OK(ReadNvml(kLibrary, uuids)) << "it is begun anew";
}

TEST(NvmlTest, ALibraryThatIsNotThereOrDoesNotStartIsNamed) {
  const std::vector<std::string> uuids = {"GPU-a"};
  EXPECT_THAT(ReadNvml("/nowhere/libnvidia-ml.so.1", uuids),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/libnvidia-ml.so.1")));
  EXPECT_THAT(ReadNvml("libm.so.6", uuids),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("libm.so.6: no nvmlInit_v2")));
  Manage("nonsense");
  EXPECT_THAT(ReadNvml(kLibrary, uuids),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("nvmlInit_v2 said 999")));
}

}  // namespace
}  // namespace crossmesh
