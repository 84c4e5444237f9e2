#include "examples/pipeline_training/checkpoint_files.h"

#include "client/safetensors/writer.h"
#include "common/mesh/shape.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "examples/pipeline_training/checkpoints.h"

#include <filesystem>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh::training {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kTensorRows = 6;
constexpr int64_t kTensorColumns = 10;

// No two elements are alike.
std::vector<float> ElementsOf(const Box& box) {
  std::vector<float> values;
  for (int64_t row = box[0].begin; row < box[0].end; ++row) {
    for (int64_t column = box[1].begin; column < box[1].end; ++column) {
      values.push_back(static_cast<float>(row * kTensorColumns + column));
    }
  }
  return values;
}

// Such that each element is in one of the boxes.
std::vector<Box> RandomCut(RandomSource& random) {
  const int64_t row = random.Between(1, kTensorRows - 1);
  const int64_t above = random.Between(1, kTensorColumns - 1);
  const int64_t below = random.Between(1, kTensorColumns - 1);
  return {Box({{0, row}, {0, above}}), Box({{0, row}, {above, kTensorColumns}}),
          Box({{row, kTensorRows}, {0, below}}),
          Box({{row, kTensorRows}, {below, kTensorColumns}})};
}

class CheckpointFilesTest : public testing::Test {
 protected:
  // A file for each box.
  std::vector<std::string> Write(const std::vector<Box>& boxes, int64_t steps = 7) {
    std::vector<std::string> paths;
    for (const Box& box : boxes) {
      const std::vector<float> values = ElementsOf(box);
      paths.push_back(folder_.PathOf(absl::StrCat("file-", written_++)));
      const CheckpointBox one = {.tensor = "layer3.qkv", .box = box, .values = values};
      EXPECT_OK(WriteCheckpoint(paths.back(), steps, {&one, 1}));
    }
    return paths;
  }
  // A file that has a tensor of one element.
  std::string WriteOther(const std::string& name, DataType type) {
    const std::string path = folder_.PathOf(absl::StrCat("file-", written_++));
    const std::vector<std::byte> bytes(ItemBytes(type));
    const SafetensorsEntry entry = {
        .spec = {.name = name, .type = type, .shape = Shape::Create({{1, 1}}).value()},
        .bytes = bytes};
    EXPECT_OK(WriteSafetensors(path, {&entry, 1}));
    return path;
  }
  static absl::Status Opened(const std::vector<std::string>& paths) {
    return CheckpointFiles::Open(paths).status();
  }

  const TemporaryFolder folder_;
  int written_ = 0;
};

TEST_F(CheckpointFilesTest, AnyBoxIsReadHoweverTheTensorWasCut) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    std::vector<Box> boxes = RandomCut(random);
    // Copies, and others that overlap.
    for (const Box& more : RandomCut(random)) {
      if (random.OneIn(2)) boxes.push_back(more);
    }
    ASSERT_OK_AND_ASSIGN(const CheckpointFiles checkpoint, CheckpointFiles::Open(Write(boxes)));
    EXPECT_EQ(checkpoint.steps(), 7);
    for (const Box& box : RandomCut(random)) {
      std::vector<float> values(box.volume());
      ASSERT_OK(checkpoint.Read("layer3.qkv", box, values));
      EXPECT_EQ(values, ElementsOf(box)) << box;
    }
  }
}

TEST_F(CheckpointFilesTest, AnElementThatNoFileHasIsNamed) {
  ASSERT_OK_AND_ASSIGN(
      const CheckpointFiles checkpoint,
      CheckpointFiles::Open(Write({Box({{0, 2}, {0, 10}}), Box({{2, 4}, {0, 6}})})));
  std::vector<float> values(9);
  EXPECT_THAT(checkpoint.Read("layer3.qkv", Box({{1, 4}, {4, 7}}), values),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("expected element (2, 6) of layer3.qkv in one of 2 files")));
  EXPECT_THAT(checkpoint.Read("layer4.qkv", Box({{1, 4}, {4, 7}}), values),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("element (1, 4) of layer4.qkv")));
}

TEST_F(CheckpointFilesTest, OtherFilesAreRefusedByName) {
  EXPECT_THAT(Opened({}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found none")));
  EXPECT_THAT(Opened({folder_.PathOf("nothing")}), StatusIs(absl::StatusCode::kNotFound));
  std::vector<std::string> paths = Write({Box({{0, 2}, {0, 10}})});
  paths.push_back(Write({Box({{2, 4}, {0, 6}})}, 8).front());
  EXPECT_THAT(Opened(paths), StatusIs(absl::StatusCode::kInvalidArgument,
                                      AllOf(HasSubstr(paths[1]), HasSubstr("expected 7 steps"),
                                            HasSubstr(paths[0]), HasSubstr("found 8"))));
  for (const char* name : {"layer3.qkv", "layer3.qkv [0:1]", "layer3.qkv [0:2, 0:1]",
                           "layer3.qkv [0:1, 0:4611686018427387904]", "steps"}) {
    EXPECT_THAT(Opened({WriteOther(name, DataType::kF32)}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("tensor \"", name, "\": expected a box"))));
  }
  EXPECT_THAT(Opened({WriteOther("layer3.qkv [0:1, 0:1]", DataType::kI32)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected a box of F32")));
  EXPECT_THAT(Opened({WriteOther("layer3.qkv [0:1, 0:1]", DataType::kF32)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected a tensor \"steps")));
}

// A process may have written one more than another one.
TEST_F(CheckpointFilesTest, TheNewestIterationOfAllProcessesIsOpened) {
  const std::vector<Box> boxes = {Box({{0, 3}, {0, 10}}), Box({{3, 6}, {0, 10}})};
  EXPECT_THAT(Checkpoints::OpenNewest(folder_.path(), 0), StatusIs(absl::StatusCode::kNotFound));
  for (int64_t process = 0; process < 2; ++process) {
    const std::string own = folder_.PathOf(absl::StrCat("process-", process));
    std::filesystem::create_directory(own);
    const std::vector<float> values = ElementsOf(boxes[process]);
    const CheckpointBox box = {.tensor = "logits", .box = boxes[process], .values = values};
    for (int64_t iteration = 2; iteration < 5 + process; ++iteration) {
      ASSERT_OK(Checkpoints(own).Write(0, iteration, iteration + 1, {&box, 1}));
    }
  }
  ASSERT_OK_AND_ASSIGN(const CheckpointFiles checkpoint,
                       Checkpoints::OpenNewest(folder_.path(), 0));
  EXPECT_EQ(checkpoint.steps(), 5);
  const Box all({{0, kTensorRows}, {0, kTensorColumns}});
  std::vector<float> values(all.volume());
  ASSERT_OK(checkpoint.Read("logits", all, values));
  EXPECT_EQ(values, ElementsOf(all));
  std::filesystem::create_directory(folder_.PathOf("process-2"));
  EXPECT_THAT(Checkpoints::OpenNewest(folder_.path(), 0),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder_.path())));
}

}  // namespace
}  // namespace crossmesh::training
