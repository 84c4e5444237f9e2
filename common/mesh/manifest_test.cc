#include "common/mesh/manifest.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TensorSpec Tensor(std::string name, DataType type, const std::vector<int64_t>& lengths) {
  return {.name = std::move(name), .type = type, .shape = *Shape::Create(lengths)};
}

TEST(ManifestTest, FindsTensorsAndSumsBytes) {
  ASSERT_OK_AND_ASSIGN(
      const Manifest manifest,
      Manifest::Create({Tensor("a", DataType::kBF16, {3, 5}), Tensor("b", DataType::kF64, {}),
                        Tensor("c", DataType::kU8, {0})}));
  EXPECT_EQ(manifest.bytes(), 38);
  EXPECT_EQ(manifest.Find("b"), 1);
  EXPECT_EQ(manifest.Find("d"), std::nullopt);
  EXPECT_EQ(manifest.tensors()[0].bytes(), 30);
}

TEST(ManifestTest, DigestTellsListsApart) {
  const TensorSpec a = Tensor("a", DataType::kF32, {2, 3});
  const TensorSpec b = Tensor("b", DataType::kF32, {2, 3});
  const std::vector<std::vector<TensorSpec>> lists = {{},
                                                      {a},
                                                      {b},
                                                      {a, b},
                                                      {b, a},
                                                      {Tensor("a", DataType::kI32, {2, 3})},
                                                      {Tensor("a", DataType::kF32, {3, 2})},
                                                      {Tensor("a", DataType::kF32, {6})}};
  for (size_t i = 0; i < lists.size(); ++i) {
    for (size_t j = 0; j < lists.size(); ++j) {
      EXPECT_EQ(Manifest::Create(lists[i])->digest() == Manifest::Create(lists[j])->digest(),
                i == j);
    }
  }
  EXPECT_EQ(Manifest().digest(), Manifest::Create({})->digest());
}

TEST(ManifestTest, RefusesBadNames) {
  const auto create = [](std::string name) {
    return Manifest::Create({Tensor(std::move(name), DataType::kU8, {})});
  };
  EXPECT_OK(create(std::string(256, 'x')));
  EXPECT_THAT(create(""), IsRefused("1 to 256 bytes, found 0"));
  EXPECT_THAT(create(std::string(257, 'x')), IsRefused("found 257"));
  EXPECT_THAT(create("a\xff"), IsRefused("not valid UTF-8"));
  EXPECT_THAT(Manifest::Create({Tensor("a", DataType::kU8, {}), Tensor("a", DataType::kU8, {})}),
              IsRefused("\"a\" is named twice, at 0 and 1"));
}

TEST(ManifestTest, RefusesTooManyTensorsAndBytes) {
  EXPECT_THAT(Manifest::Create(std::vector<TensorSpec>(Manifest::kTensorsMax + 1)),
              IsRefused("at most 1000000 tensors"));
  std::vector<TensorSpec> tensors;
  for (const char* name : {"a", "b", "c", "d"}) {
    tensors.push_back(Tensor(name, DataType::kF64, {Shape::kDimensionMax, 256}));
  }
  EXPECT_OK(Manifest::Create(tensors));
  tensors.push_back(Tensor("e", DataType::kU8, {}));
  EXPECT_THAT(Manifest::Create(tensors), IsRefused("up to tensor \"e\""));
}

}  // namespace
}  // namespace crossmesh
