#include "controller/store/etcd/cluster_watermark.h"

#include "common/base/mutex.h"
#include "common/testing/paths.h"
#include "common/testing/patience.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ClusterWatermarkTest : public testing::Test {
 protected:
  void Write(const std::string& text) const { std::ofstream(path_) << text; }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.PathOf("watermark");
};

TEST_F(ClusterWatermarkTest, WhatWasSeenLastIsThereAgain) {
  const EtcdCluster seen{.identity = "c0ffee", .revision = 7, .epoch = 42};
  {
    ASSERT_OK_AND_ASSIGN(const auto watermark, ClusterWatermark::Open(path_));
    EXPECT_EQ(watermark->known(), std::nullopt);
    watermark->Follow([&seen] { return seen; });
  }
  ASSERT_OK_AND_ASSIGN(const auto again, ClusterWatermark::Open(path_));
  EXPECT_EQ(again->known(), seen);
}

TEST_F(ClusterWatermarkTest, WhatComesIsWrittenWhileItIsFollowed) {
  Mutex mutex;
  EtcdCluster now{.identity = "c0ffee", .revision = 7, .epoch = 42};
  ASSERT_OK_AND_ASSIGN(const auto watermark, ClusterWatermark::Open(path_));
  watermark->Follow([&] {
    const MutexLock lock(mutex);
    return now;
  });
  {
    const MutexLock lock(mutex);
    now.revision = 8;
  }
  for (const Patience patience; ReadTextFile(path_) != "c0ffee 8 42\n";) patience.Check();
}

TEST_F(ClusterWatermarkTest, AFileThatIsNoneIsRefusedWithWhatToDo) {
  for (const char* text : {"", "\n", "c0ffee 7\n", "c0ffee 7 42", "c0ffee 7 42 1\n", " 7 42\n",
                           "c0ffee seven 42\n", "c0ffee 7 -1\n", "c0ffee 7 42\nc0ffee 7 42\n"}) {
    Write(text);
    EXPECT_THAT(ClusterWatermark::Open(path_),
                StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(path_), HasSubstr("remove"))))
        << text;
  }
}

TEST_F(ClusterWatermarkTest, AFileThatCannotBeWrittenIsRefusedAtOnce) {
  const std::string nowhere = folder_.PathOf("none/watermark");
  EXPECT_THAT(ClusterWatermark::Open(nowhere),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none/")));
  Write("c0ffee 7 42\n");
  ASSERT_EQ(std::system(absl::StrCat("mkdir ", path_, ".next").c_str()), 0);
  EXPECT_FALSE(ClusterWatermark::Open(path_).ok());
}

}  // namespace
}  // namespace crossmesh
