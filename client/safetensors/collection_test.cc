#include "client/safetensors/collection.h"

#include "client/safetensors/writer.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <fstream>
#include <string>
#include <vector>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

class SafetensorsCollectionTest : public testing::Test {
 protected:
  // One byte per tensor: the first of its name.
  void WriteFile(const std::string& name, const std::vector<std::string>& tensors) {
    std::vector<SafetensorsEntry> entries;
    for (const std::string& tensor : tensors) {
      entries.push_back(
          {.spec = {.name = tensor, .type = DataType::kU8, .shape = Shape::Create({{1}}).value()},
           .bytes = std::as_bytes(std::span(tensor)).first(1)});
    }
    ASSERT_OK(WriteSafetensors(folder_.PathOf(name), entries));
  }
  void WriteIndex(const std::string& text) {
    std::ofstream(folder_.PathOf(SafetensorsCollection::kIndexName)) << text;
  }
  absl::StatusOr<SafetensorsCollection> Open() {
    return SafetensorsCollection::Open(folder_.path());
  }

  const TemporaryFolder folder_;
};

TEST_F(SafetensorsCollectionTest, TakesAllFilesOfAFolderInOrderOfName) {
  WriteFile("b.safetensors", {"q"});
  WriteFile("a.safetensors", {"z", "y"});
  std::ofstream(folder_.PathOf("README.md")) << "not a tensor";
  ASSERT_OK_AND_ASSIGN(const SafetensorsCollection collection, Open());
  ASSERT_EQ(collection.manifest().tensors().size(), 3);
  EXPECT_EQ(collection.manifest().tensors()[0].name, "z");
  EXPECT_EQ(collection.manifest().tensors()[2].name, "q");
  EXPECT_EQ(static_cast<char>(collection.Bytes(2)[0]), 'q');
}

TEST_F(SafetensorsCollectionTest, TakesOneFile) {
  WriteFile("a.safetensors", {"z"});
  ASSERT_OK_AND_ASSIGN(const SafetensorsCollection collection,
                       SafetensorsCollection::Open(folder_.PathOf("a.safetensors")));
  EXPECT_EQ(collection.manifest().tensors().size(), 1);
}

TEST_F(SafetensorsCollectionTest, NamesTheFileOfATensorThatNoManifestMayHave) {
  const std::string header = R"({")" + std::string(300, 'n') +
                             R"(": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size() & 0xff);
  length[1] = static_cast<char>(header.size() >> 8);
  std::ofstream(folder_.PathOf("a.safetensors")) << length << header;
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr(folder_.PathOf("a.safetensors: "))));
}

TEST_F(SafetensorsCollectionTest, RefusesATensorInTwoFiles) {
  WriteFile("a.safetensors", {"z"});
  WriteFile("b.safetensors", {"z"});
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("tensor \"z\": expected it in one file")));
}

TEST_F(SafetensorsCollectionTest, SaysThatAFolderHasNoFiles) {
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("found none")));
  EXPECT_THAT(SafetensorsCollection::Open(folder_.PathOf("missing")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("missing")));
}

TEST_F(SafetensorsCollectionTest, AnIndexSaysWhichFilesCount) {
  WriteFile("a.safetensors", {"z"});
  WriteFile("other.safetensors", {"z"});
  WriteIndex(R"({"metadata":{"total_size":1},"weight_map":{"z":"a.safetensors"}})");
  ASSERT_OK_AND_ASSIGN(const SafetensorsCollection collection, Open());
  EXPECT_EQ(collection.manifest().tensors().size(), 1);
}

TEST_F(SafetensorsCollectionTest, RefusesAnIndexThatLies) {
  WriteFile("a.safetensors", {"z", "y"});
  WriteFile("b.safetensors", {"q"});
  const std::vector<std::pair<std::string, std::string>> table = {
      {"[]", "weight_map"},
      {"{", "strict JSON"},
      {R"({"weight_map":{"z":"a.safetensors"}})", "tensor \"y\""},
      {R"({"weight_map":{"z":"a.safetensors","y":"b.safetensors","q":"b.safetensors"}})",
       "tensor \"y\": expected it in a.safetensors, which has it, found b.safetensors"},
      {R"({"weight_map":{"z":"a.safetensors","y":"a.safetensors","x":"a.safetensors"}})",
       "tensor \"x\": expected it in a.safetensors, which does not have it"},
      {R"({"weight_map":{"z":"../a.safetensors"}})", "same folder"},
      {R"({"weight_map":{"z":7}})", "same folder"},
      {R"({"weight_map":{"z":"missing.safetensors"}})", "missing.safetensors"},
      {R"({"weight_map":{"z":"a.safetensors","z":"a.safetensors"}})", "given twice"},
  };
  for (const auto& [text, message] : table) {
    WriteIndex(text);
    const absl::StatusOr<SafetensorsCollection> opened = Open();
    ASSERT_FALSE(opened.ok()) << text;
    EXPECT_THAT(std::string(opened.status().message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace crossmesh
