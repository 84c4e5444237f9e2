#include "client/safetensors/writer.h"

#include "client/safetensors/file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <filesystem>
#include <string>
#include <vector>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

TensorSpec Spec(const std::string& name, DataType type, std::vector<int64_t> lengths) {
  return {.name = name, .type = type, .shape = Shape::Create(lengths).value()};
}

TEST(SafetensorsWriterTest, WhatIsWrittenReadsBack) {
  const TemporaryFolder folder;
  const std::string path = folder.PathOf("written.safetensors");
  const std::string first = "abcdef";
  const std::string second = "12345678";
  const std::vector<SafetensorsEntry> entries = {
      {.spec = Spec("z \"quoted\"", DataType::kBF16, {3, 1}),
       .bytes = std::as_bytes(std::span(first))},
      {.spec = Spec("none", DataType::kF32, {0}), .bytes = {}},
      {.spec = Spec("a", DataType::kF32, {2}), .bytes = std::as_bytes(std::span(second))}};
  ASSERT_OK(WriteSafetensors(path, entries));
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(path));
  ASSERT_EQ(file.header().tensors.size(), 3);
  EXPECT_EQ(file.header().data_begin % 8, 0);
  EXPECT_EQ(file.header().tensors[0].spec, entries[0].spec);
  EXPECT_EQ(file.header().tensors[2].spec, entries[2].spec);
  const std::span<const std::byte> bytes = file.Bytes(2);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), second);
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(SafetensorsWriterTest, BytesThatDoNotFitTheShapeAreRefused) {
  const std::string bytes = "abc";
  const std::vector<SafetensorsEntry> entries = {
      {.spec = Spec("a", DataType::kF32, {2}), .bytes = std::as_bytes(std::span(bytes))}};
  const TemporaryFolder folder;
  EXPECT_THAT(WriteSafetensors(folder.PathOf("refused.safetensors"), entries),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tensor \"a\": expected 8 bytes, found 3")));
}

TEST(SafetensorsWriterTest, TheNameOfMetadataIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.PathOf("refused.safetensors");
  const std::string bytes = "12345678";
  const std::vector<SafetensorsEntry> entries = {{.spec = Spec("__metadata__", DataType::kF32, {2}),
                                                  .bytes = std::as_bytes(std::span(bytes))}};
  EXPECT_THAT(WriteSafetensors(path, entries),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tensor \"__metadata__\"")));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(SafetensorsWriterTest, AFolderThatIsMissingIsNamed) {
  EXPECT_THAT(WriteSafetensors("/nonexistent/a.safetensors", {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/a.safetensors")));
}

}  // namespace
}  // namespace crossmesh
