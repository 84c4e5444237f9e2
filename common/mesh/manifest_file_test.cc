#include "common/mesh/manifest_file.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(ManifestFileTest, ReadsTensorsInOrder) {
  ASSERT_OK_AND_ASSIGN(const ManifestFile file, ParseManifestFile(R"({
      "model": "GPT-2", "source": "s", "total_bytes": 30,
      "tensors": [{"name": "b", "shape": [7], "dtype": "F32"},
                  {"name": "a", "shape": [], "dtype": "BF16"}]})"));
  EXPECT_EQ(file.model, "GPT-2");
  EXPECT_EQ(file.source, "s");
  ASSERT_EQ(file.manifest.tensors().size(), 2U);
  EXPECT_EQ(file.manifest.tensors()[1].type, DataType::kBF16);
  EXPECT_EQ(ToString(file.manifest.tensors()[0].shape), "[7]");
}

TEST(ManifestFileTest, OnlyTheTensorsAreRequired) {
  EXPECT_OK(ParseManifestFile(R"({"tensors": []})"));
  EXPECT_THAT(ParseManifestFile("{}"), IsRefused("\"tensors\" to be an array"));
}

TEST(ManifestFileTest, ErrorsNameTheTensor) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"(5)", "tensors[0]: expected an object, found number"},
      {R"({"name": "w", "shape": [1]})", "tensors[0] \"w\": expected \"dtype\" to be a string"},
      {R"({"shape": [1], "dtype": "F32"})", "tensors[0]: expected \"name\""},
      {R"({"name": "w", "shape": [1], "dtype": "F31"})", "\"w\": data type \"F31\""},
      {R"({"name": "w", "shape": [-1], "dtype": "F32"})", "\"w\": shape [-1]"},
      {R"({"name": "w", "shape": [1.5], "dtype": "F32"})", "\"w\": expected \"shape\"[0]"},
      {R"({"name": "w", "shape": [18446744073709551615], "dtype": "F32"})", "below 2^63"},
      {R"({"name": "w", "shape": [99999999999999999999], "dtype": "F32"})", "below 2^63"},
      {R"({"name": "w", "shape": 3, "dtype": "F32"})", "\"w\": expected \"shape\" to be an array"},
      {R"({"name": "w", "shape": [1], "dtype": "F32", "x": 1})", "\"w\": unknown key \"x\""},
      {R"({"name": "w", "name": "v", "shape": [1], "dtype": "F32"})", "\"name\" is given twice"},
      {R"({"name": "", "shape": [1], "dtype": "F32"})", "found 0"}};
  for (const auto& [tensor, message] : cases) {
    EXPECT_THAT(ParseManifestFile("{\"tensors\": [" + tensor + "]}"), IsRefused(message)) << tensor;
  }
}

TEST(ManifestFileTest, RefusesAWrongTotal) {
  EXPECT_THAT(ParseManifestFile(R"({"total_bytes": 5, "tensors": []})"),
              IsRefused("the sum of its tensors, 0, found 5"));
}

}  // namespace
}  // namespace crossmesh
