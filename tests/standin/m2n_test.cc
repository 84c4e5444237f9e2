// The rules of the stand-in for NCCL M2N that no test of the product breaks, with one rank, which
// copies to itself.

#include "tests/standin/stand_in_fixture.h"
#include "worker/gpu/libraries/m2n_api.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// A tensor of 4 x 6 bytes on the only rank, and what its description points to.
struct Described {
  explicit Described(std::span<std::byte> memory) {
    mesh.ndims = 1;
    mesh.dims = dims.data();
    tensor.dataPtr = memory.data();
    tensor.localShape = shape.data();
    tensor.ndims = 2;
    tensor.dtype = ncclUint8;
    tensor.mesh = &mesh;
    tensor.placements = placements.data();
  }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;

  std::vector<int> dims = {1, 1};
  std::vector<int> placements = {0, -1};
  std::vector<size_t> shape = {4, 6, 1, 1};
  ncclMesh_t mesh;
  ncclDistTensor_t tensor;
};

class M2nTest : public StandInTest {
 protected:
  void SetUp() override {
    StandInTest::SetUp();
    ASSERT_OK_AND_ASSIGN(m2n_, M2nApi::Load(nccl(), {.library = StandInM2nPath()}));
    ncclUniqueId id = {};
    ASSERT_OK(Check(nccl().ncclGetUniqueId(&id)));
    ASSERT_OK_AND_ASSIGN(communicator_, gpu_->MakeCommunicator(1, id, 0));
    ASSERT_OK_AND_ASSIGN(from_, gpu_->Allocate(4096));
    ASSERT_OK_AND_ASSIGN(to_, gpu_->Allocate(4096));
    const ncclM2nConfig_t config;
    ASSERT_EQ(m2n_->ncclM2nInit(&handle_, &config), ncclSuccess);
  }
  void TearDown() override {
    if (handle_ != nullptr) {
      EXPECT_EQ(m2n_->ncclM2nFinalize(handle_), ncclSuccess);
    }
    EXPECT_OK(gpu_->FinalizeAndDestroy(communicator_));
    StandInTest::TearDown();
  }

  ncclResult_t Reshard(const Described& source, const Described& destination) const {
    return m2n_->ncclReshard(handle_, communicator_, &source.tensor, &destination.tensor,
                             gpu_->stream());
  }
  void ExpectRefused(ncclResult_t result, const std::string& text) {
    EXPECT_NE(result, ncclSuccess);
    EXPECT_THAT(m2n_->ncclM2nGetLastError(), HasSubstr(text));
    EXPECT_THAT(TakeViolations(), ::testing::ElementsAre(HasSubstr(text)));
  }

  std::unique_ptr<const M2nApi> m2n_;
  ncclM2nHandle_t handle_ = nullptr;
  ncclComm_t communicator_ = nullptr;
  std::span<std::byte> from_;
  std::span<std::byte> to_;
};

TEST_F(M2nTest, AGroupIsMovedWhenItEnds) {
  std::ranges::fill(from_, std::byte{7});
  std::ranges::fill(to_, std::byte{0});
  const Described source(from_), destination(to_);
  ASSERT_EQ(m2n_->ncclM2nGroupStart(), ncclSuccess);
  ASSERT_EQ(Reshard(source, destination), ncclSuccess);
  ASSERT_OK(gpu_->Synchronize());
  EXPECT_EQ(to_[0], std::byte{0});
  ASSERT_EQ(m2n_->ncclM2nGroupEnd(), ncclSuccess);
  ASSERT_OK(gpu_->Synchronize());
  EXPECT_EQ(std::ranges::count(to_, std::byte{7}), 24);
}

TEST_F(M2nTest, AnAbortedGroupIsForgotten) {
  std::ranges::fill(from_, std::byte{7});
  std::ranges::fill(to_, std::byte{0});
  const Described source(from_), destination(to_);
  ASSERT_EQ(m2n_->ncclM2nGroupStart(), ncclSuccess);
  ASSERT_EQ(Reshard(source, destination), ncclSuccess);
  ASSERT_EQ(m2n_->ncclM2nGroupAbort(), ncclSuccess);
  ExpectRefused(m2n_->ncclM2nGroupEnd(), "ncclM2nGroupEnd: without ncclM2nGroupStart");
  EXPECT_EQ(to_[0], std::byte{0});
}

TEST_F(M2nTest, DescriptionsThatTheLibraryRefusesAreNamed) {
  struct Mistake {
    std::string text;
    std::function<void(Described&)> make;
  };
  const std::vector<Mistake> mistakes = {
      {"source: no tensor, or one of another version", [](Described& d) { d.tensor.version = 1; }},
      {"source: no mesh, or one of another version", [](Described& d) { d.mesh.size = 40; }},
      {"source: a mesh of 3 axes", [](Described& d) { d.mesh.ndims = 3; }},
      {"source: an axis without ranks", [](Described& d) { d.dims[0] = 0; }},
      {"source: ranks [1, 2) of 1", [](Described& d) { d.mesh.startRank = 1; }},
      {"source: ranks [0, 2) of 1", [](Described& d) { d.dims[0] = 2; }},
      {"source: a tensor of 4 dimensions", [](Described& d) { d.tensor.ndims = 4; }},
      {"source: placement 2 of 2 dimensions", [](Described& d) { d.placements[0] = 2; }},
      {"source: more than one axis that cuts",
       [](Described& d) { d.mesh.ndims = 2, d.placements[1] = 1; }},
      {"source: type 15", [](Described& d) { d.tensor.dtype = static_cast<ncclDataType_t>(15); }},
      {"source: a tile of 0 bytes", [](Described& d) { d.shape[1] = 0; }},
      {"source: a tile of 24 bytes that is not all device memory",
       [](Described& d) { d.tensor.dataPtr = nullptr; }},
      {"dimension 1 has length 5 and 4", [](Described& d) { d.shape[0] = 5; }},
      {"sides of other types", [](Described& d) { d.tensor.dtype = ncclInt8; }},
  };
  for (const Mistake& mistake : mistakes) {
    SCOPED_TRACE(mistake.text);
    Described source(from_);
    const Described destination(to_);
    mistake.make(source);
    ExpectRefused(Reshard(source, destination), "ncclReshard: " + mistake.text);
  }
}

TEST_F(M2nTest, HandlesAreOfInitAndGoOnce) {
  const Described source(from_), destination(to_);
  ncclM2nHandle_t other = nullptr;
  ASSERT_EQ(m2n_->ncclM2nInit(&other, nullptr), ncclSuccess);
  ASSERT_EQ(m2n_->ncclM2nFinalize(other), ncclSuccess);
  ExpectRefused(m2n_->ncclM2nFinalize(other), "or a finalized one");
  ExpectRefused(
      m2n_->ncclReshard(other, communicator_, &source.tensor, &destination.tensor, gpu_->stream()),
      "or a finalized one");
  ncclM2nConfig_t config;
  config.version = 1;
  ExpectRefused(m2n_->ncclM2nInit(&other, &config), "a config of another version");
  ASSERT_EQ(m2n_->ncclM2nGroupStart(), ncclSuccess);
  ExpectRefused(m2n_->ncclM2nFinalize(handle_), "in a group");
  ASSERT_EQ(m2n_->ncclM2nGroupEnd(), ncclSuccess);
}

TEST_F(M2nTest, ACommunicatorIsNotDestroyedBeforeTheHandleThatUsedIt) {
  const Described source(from_), destination(to_);
  ASSERT_EQ(Reshard(source, destination), ncclSuccess);
  ASSERT_OK(gpu_->Synchronize());
  ASSERT_OK(Check(nccl().ncclCommFinalize(communicator_)));
  ASSERT_OK(gpu_->Poll(communicator_));
  EXPECT_VIOLATION(nccl().ncclCommDestroy(communicator_), "with 1 buffers still registered");
  ASSERT_EQ(m2n_->ncclM2nFinalize(handle_), ncclSuccess);
  handle_ = nullptr;
  ASSERT_OK(Check(nccl().ncclCommDestroy(communicator_)));
  ncclUniqueId id = {};
  ASSERT_OK(Check(nccl().ncclGetUniqueId(&id)));
  ASSERT_OK_AND_ASSIGN(communicator_, gpu_->MakeCommunicator(1, id, 0));
}

}  // namespace
}  // namespace crossmesh
