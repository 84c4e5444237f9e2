#include "controller/controller.h"

#include "common/testing/status_matchers.h"
#include "controller/testing/controller_fixture.h"

#include <filesystem>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class ControllerTest : public ControllerFixture {
 protected:
  void SetUp() override { StartController(); }
};

TEST_F(ControllerTest, MeshesAreRegisteredReadListedAndDeleted) {
  using Meshes = v1::MeshService::Stub;
  ASSERT_OK_AND_ASSIGN(const int64_t revision, CreateMesh("m1", "x=2", "a.0-1"));
  EXPECT_THAT(CreateMesh("m1", "x=2", "a.0-1"), IsOkAndHolds(revision));
  EXPECT_THAT(CreateMesh("m1", "x=2", "a.2-3"),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("mesh m1")));
  EXPECT_THAT(CreateMesh("M 1", "x=2", "a.0-1"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(CreateMesh("m2", "x=2", "a.0,a.0"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a.0")));
  for (const char* name : {"m2", "m3"}) ASSERT_OK(CreateMesh(name, "x=1", "a.0"));

  v1::ListMeshesRequest list;
  list.set_page_size(2);
  std::vector<std::string> names;
  do {
    ASSERT_OK_AND_ASSIGN(const auto page, Call(*meshes_, &Meshes::ListMeshes, list));
    for (const v1::Mesh& mesh : page.meshes()) names.push_back(mesh.name());
    list.set_page_token(page.next_page_token());
  } while (!list.page_token().empty());
  EXPECT_THAT(names, ElementsAre("m1", "m2", "m3"));

  v1::DeleteMeshRequest erase;
  erase.set_name("m2");
  EXPECT_OK(Call(*meshes_, &Meshes::DeleteMesh, erase));
  EXPECT_THAT(Call(*meshes_, &Meshes::DeleteMesh, erase),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("m2")));
}

TEST_F(ControllerTest, AManifestOfThousandsOfTensorsTravelsInPieces) {
  std::vector<std::string> tensors;
  for (int i = 0; i < 9500; ++i) tensors.push_back(absl::StrCat("layers.", i, ".weight"));
  ASSERT_OK_AND_ASSIGN(const v1::PutManifestResponse put, PutManifest("big", tensors));
  EXPECT_EQ(put.tensors(), 9500);
  EXPECT_EQ(put.size_bytes(), int64_t{9500} * 64 * 8 * 4);

  v1::GetManifestRequest get;
  get.set_name("big");
  StreamReader<v1::GetManifestResponse> reader(
      [&](auto* context) { return manifests_->GetManifest(context, get); });
  std::vector<std::string> read;
  absl::StatusOr<v1::GetManifestResponse> piece = reader.Next();
  for (; piece.ok(); piece = reader.Next()) {
    for (const v1::TensorSpec& tensor : piece->tensors()) read.push_back(tensor.name());
  }
  EXPECT_TRUE(reader.ended()) << piece.status();
  EXPECT_EQ(read, tensors);

  tensors.push_back(tensors.front());
  EXPECT_THAT(PutManifest("twice", tensors),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("layers.0.weight")));
  tensors.back() = "other";
  EXPECT_THAT(PutManifest("big", tensors), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(ControllerTest, ASecondSessionOfAWorkerSupersedesTheFirst) {
  FakeWorker& first = AddWorker("a");
  const std::string elsewhere = folder_.PathOf("elsewhere");
  std::filesystem::create_directory(elsewhere);
  const FakeWorker second(
      {.folder = elsewhere, .name = "w-a", .devices = "a.0", .controller = address_});
  EXPECT_THAT(first.ReadSession(), StatusIs(absl::StatusCode::kAborted, HasSubstr("superseded")));
  EXPECT_THAT(ListWorkers(), SizeIs(1));
}

TEST_F(ControllerTest, AnAddressInUseIsAFailedPrecondition) {
  EXPECT_THAT(Controller::Create({.listen = {address_}, .metrics_listen = ""}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("controller.sock")));
  EXPECT_THAT(Controller::Create({.listen = {"0.0.0.0:0"}, .metrics_listen = ""}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ControllerTest, MetricsAreServedWhenAskedFor) {
  EXPECT_EQ(controller_->metrics_address(), "");
  controller_.reset();
  ASSERT_OK_AND_ASSIGN(controller_, Controller::Create({.listen = {address_}}));
  EXPECT_THAT(controller_->metrics_address(), HasSubstr("127.0.0.1:"));
}

TEST_F(ControllerTest, TheEpochGrowsFromStartToStart) {
  const uint64_t before = controller_->epoch();
  controller_.reset();
  StartController();
  EXPECT_GT(controller_->epoch(), before);
}

}  // namespace
}  // namespace crossmesh
