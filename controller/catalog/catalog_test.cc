#include "controller/catalog/catalog.h"

#include "common/testing/status_matchers.h"
#include "controller/store/forwarding_store.h"
#include "controller/store/memory_store.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

class CatalogTest : public testing::Test {
 protected:
  static Mesh MeshOf(const std::string& text) { return *ParseMesh(text); }
  static Manifest ManifestOf(int tensors) {
    std::vector<TensorSpec> specs;
    for (int i = 0; i < tensors; ++i) {
      specs.push_back({"layer." + std::to_string(i), DataType::kBF16, *ParseShape("[8, 4]")});
    }
    return *Manifest::Create(std::move(specs));
  }

  MemoryStore store_;
  Catalog catalog_{store_, /*epoch=*/1};
};

TEST_F(CatalogTest, AnObjectIsReadAsItWasRegistered) {
  const Mesh mesh = MeshOf("data=2,model=2 on a.0-1,b.0-1");
  ASSERT_OK_AND_ASSIGN(const int64_t revision, catalog_.meshes.Put("trainer", mesh));
  ASSERT_OK_AND_ASSIGN(const Registered<Mesh> registered, catalog_.meshes.Get("trainer"));
  EXPECT_EQ(*registered.value, mesh);
  EXPECT_EQ(registered.revision, revision);
}

TEST_F(CatalogTest, AnotherCatalogOverTheSameStoreReadsTheSameObjects) {
  ASSERT_OK(catalog_.meshes.Put("trainer", MeshOf("data=2 on a.0,b.0")).status());
  ASSERT_OK(catalog_.manifests.Put("gpt", ManifestOf(3)).status());
  Catalog other(store_, /*epoch=*/2);
  EXPECT_EQ(*other.meshes.Get("trainer")->value, MeshOf("data=2 on a.0,b.0"));
  EXPECT_EQ(*other.manifests.Get("gpt")->value, ManifestOf(3));
}

TEST_F(CatalogTest, TheSameContentAgainChangesNothingAndOtherContentIsRefused) {
  ASSERT_OK_AND_ASSIGN(const int64_t first, catalog_.manifests.Put("gpt", ManifestOf(3)));
  EXPECT_THAT(catalog_.manifests.Put("gpt", ManifestOf(3)), IsOkAndHolds(first));
  EXPECT_THAT(catalog_.manifests.Put("gpt", ManifestOf(4)),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("manifest gpt")));
}

TEST_F(CatalogTest, APipelineIsReadAsItWasRegistered) {
  PipelineRecord pipeline;
  pipeline.spec.set_name("u-net");
  pipeline.spec.add_ranks()->set_mesh("trainer");
  ASSERT_OK(catalog_.pipelines.Put("u-net", pipeline).status());
  Catalog other(store_, /*epoch=*/2);
  EXPECT_EQ(*other.pipelines.Get("u-net")->value, pipeline);
  pipeline.spec.add_stages();
  EXPECT_THAT(catalog_.pipelines.Put("u-net", pipeline),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("pipeline u-net")));
}

TEST_F(CatalogTest, AnUnknownObjectIsNotFoundAndNamed) {
  EXPECT_THAT(catalog_.meshes.Get("x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("mesh \"x\"")));
}

TEST_F(CatalogTest, NamesOutsideTheRuleAreRefused) {
  for (const std::string& name : {std::string(""), std::string("A"), std::string("a/b"),
                                  std::string(64, 'a'), std::string("a\0", 2)}) {
    EXPECT_THAT(catalog_.meshes.Put(name, MeshOf("data=1 on a.0")),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mesh name")));
  }
}

TEST_F(CatalogTest, ListsPageByPageInTheOrderOfNames) {
  for (const char* name : {"c", "a", "b"}) {
    ASSERT_OK(catalog_.meshes.Put(name, MeshOf("data=1 on a.0")).status());
  }
  ASSERT_OK_AND_ASSIGN(const auto first, catalog_.meshes.List("", 2));
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].name, "a");
  ASSERT_OK_AND_ASSIGN(const auto rest, catalog_.meshes.List(first[1].name, 2));
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].name, "c");
}

TEST_F(CatalogTest, DeletesOnlyTheRevisionThatWasMeant) {
  ASSERT_OK_AND_ASSIGN(const int64_t revision, catalog_.meshes.Put("a", MeshOf("data=1 on a.0")));
  EXPECT_THAT(catalog_.meshes.Delete("a", revision + 1), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(catalog_.meshes.Delete("a", revision), IsOkAndHolds(revision));
  EXPECT_THAT(catalog_.meshes.Delete("a", 0), StatusIs(absl::StatusCode::kNotFound));
}

// After whose next read of an object something happens, before anybody has what was read.
class InterruptedStore final : public ForwardingStore {
 public:
  explicit InterruptedStore(MetadataStore& store) : ForwardingStore(store) {}

  void AfterNextGet(std::function<void()> interruption) { interruption_ = std::move(interruption); }

  absl::StatusOr<StoredObject> Get(absl::string_view key) const override {
    absl::StatusOr<StoredObject> object = store().Get(key);
    if (const auto interruption = std::exchange(interruption_, nullptr)) interruption();
    return object;
  }

 private:
  mutable std::function<void()> interruption_;
};

TEST_F(CatalogTest, AnObjectThatIsDeletedWhileItIsReadTakesNoMemory) {
  ASSERT_OK(catalog_.meshes.Put("a", MeshOf("data=1 on a.0")).status());
  InterruptedStore store(store_);
  Catalog other(store, /*epoch=*/1);
  ASSERT_OK(other.Load());
  EXPECT_EQ(other.meshes.size(), 1);
  store.AfterNextGet([&] { EXPECT_OK(other.meshes.Delete("a", 0).status()); });
  EXPECT_OK(other.meshes.Get("a").status());
  EXPECT_EQ(other.meshes.size(), 0);
}

// A table of strings, of which three may be kept, in 200 bytes: each takes twice its length.
class BoundedTableTest : public testing::Test {
 protected:
  MemoryStore store_;
  RecordTable<std::string> table_{
      {.name = "word",
       .encode = [](const std::string& word) { return word; },
       .decode = [](const std::string& bytes) -> absl::StatusOr<std::string> { return bytes; },
       .heap_bytes = [](const std::string& word) { return static_cast<int64_t>(word.size()); },
       .objects_max = 3,
       .bytes_max = 200},
      store_,
      /*epoch=*/1};
};

TEST_F(BoundedTableTest, ObjectsThatTakeTooMuchMemoryTogetherAreRefusedWithFigures) {
  ASSERT_OK(table_.Put("a", std::string(70, 'a')).status());
  EXPECT_THAT(
      table_.Put("b", std::string(31, 'b')),
      StatusIs(absl::StatusCode::kResourceExhausted,
               HasSubstr("word \"b\": expected at most 3 of them in 200 bytes of memory, found "
                         "1 in 140, and it takes 62 more")));
  EXPECT_OK(table_.Put("b", std::string(30, 'b')).status());
  EXPECT_THAT(table_.Put("c", "c"), StatusIs(absl::StatusCode::kResourceExhausted));
  // What is there already takes nothing.
  EXPECT_OK(table_.Put("a", std::string(70, 'a')).status());
  EXPECT_THAT(table_.Put("a", "other"), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(BoundedTableTest, TooManyObjectsAreRefusedUntilOneIsDeleted) {
  for (const char* name : {"a", "b", "c"}) ASSERT_OK(table_.Put(name, name).status());
  EXPECT_THAT(table_.Put("d", "d"), StatusIs(absl::StatusCode::kResourceExhausted));
  ASSERT_OK(table_.Delete("b", 0).status());
  EXPECT_OK(table_.Put("d", "d").status());
  EXPECT_THAT(table_.Put("b", "b"), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(BoundedTableTest, WhatCouldNotBeStoredTakesNoPlace) {
  RecordTable<std::string> later(
      {.name = "word",
       .encode = [](const std::string& word) { return word; },
       .heap_bytes = [](const std::string& /*word*/) -> int64_t { return 0; }},
      store_, /*epoch=*/2);
  ASSERT_OK(later.Put("x", "x").status());  // fences the first one
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(table_.Put("a", "a"), StatusIs(absl::StatusCode::kAborted));
  }
}

TEST_F(CatalogTest, AFencedControllerRegistersNothing) {
  Catalog later(store_, /*epoch=*/2);
  ASSERT_OK(later.meshes.Put("a", MeshOf("data=1 on a.0")).status());
  EXPECT_THAT(catalog_.meshes.Put("b", MeshOf("data=1 on a.0")),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("epoch 1")));
}

TEST_F(CatalogTest, StoredBytesThatDoNotParseAreOurFaultAndNameTheObject) {
  ASSERT_OK(store_.Commit({.epoch = 1, .writes = {{"mesh/a", "data=="}}}).status());
  EXPECT_THAT(catalog_.meshes.Get("a"), StatusIs(absl::StatusCode::kInternal, HasSubstr("mesh a")));
}

}  // namespace
}  // namespace crossmesh
