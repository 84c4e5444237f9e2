#include "client/memory/crossmesh_dlpack.h"

#include <array>
#include <cstddef>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Of dlpack.h 0.8 to 1.1, on machines of 64 bits.
TEST(CrossmeshDlpackTest, ATensorLiesInMemoryAsDlpackSays) {
  using Tensor = decltype(CrossmeshDlTensor::dl_tensor);
  EXPECT_EQ(offsetof(Tensor, device), 8U);
  EXPECT_EQ(offsetof(Tensor, ndim), 16U);
  EXPECT_EQ(offsetof(Tensor, dtype), 20U);
  EXPECT_EQ(offsetof(Tensor, shape), 24U);
  EXPECT_EQ(offsetof(Tensor, strides), 32U);
  EXPECT_EQ(offsetof(Tensor, byte_offset), 40U);
  EXPECT_EQ(offsetof(CrossmeshDlTensor, manager_ctx), 48U);
  EXPECT_EQ(offsetof(CrossmeshDlTensor, deleter), 56U);
  EXPECT_EQ(sizeof(CrossmeshDlTensor), 64U);
}

TEST(CrossmeshDlpackTest, ATensorIsWhereItWasPutAndIsReleasedByItsDeleterOnce) {
  int released = 0;
  char memory = 0;
  std::array<int64_t, 2> shape = {3, 5};
  const CrossmeshTensorPlace place = {.data = &memory,
                                      .device_type = CROSSMESH_DL_CUDA,
                                      .device_id = 4,
                                      .type_code = CROSSMESH_DL_BFLOAT,
                                      .type_bits = 16,
                                      .ndim = 2,
                                      .shape = shape.data(),
                                      .release = [](void* count) { ++*static_cast<int*>(count); },
                                      .owner = &released};
  CrossmeshDlTensor* const tensor = crossmesh_dl_tensor(&place);
  ASSERT_NE(tensor, nullptr);
  shape = {};
  EXPECT_EQ(tensor->dl_tensor.data, &memory);
  EXPECT_EQ(tensor->dl_tensor.device.device_type, 2);
  EXPECT_EQ(tensor->dl_tensor.device.device_id, 4);
  EXPECT_EQ(tensor->dl_tensor.dtype.code, 4);
  EXPECT_EQ(tensor->dl_tensor.dtype.bits, 16);
  EXPECT_EQ(tensor->dl_tensor.dtype.lanes, 1);
  EXPECT_EQ(tensor->dl_tensor.ndim, 2);
  EXPECT_EQ(tensor->dl_tensor.shape[0], 3);
  EXPECT_EQ(tensor->dl_tensor.shape[1], 5);
  EXPECT_EQ(tensor->dl_tensor.strides, nullptr);
  EXPECT_EQ(tensor->dl_tensor.byte_offset, 0U);
  EXPECT_EQ(released, 0);
  tensor->deleter(tensor);
  EXPECT_EQ(released, 1);
}

TEST(CrossmeshDlpackTest, AScalarNeedsNeitherShapeNorRelease) {
  CrossmeshTensorPlace place = {};
  CrossmeshDlTensor* const tensor = crossmesh_dl_tensor(&place);
  ASSERT_NE(tensor, nullptr);
  tensor->deleter(tensor);
}

TEST(CrossmeshDlpackTest, ANumberOfDimensionsThatIsNoneIsRefused) {
  for (const int32_t ndim : {-1, 65}) {
    CrossmeshTensorPlace place = {};
    place.ndim = ndim;
    EXPECT_EQ(crossmesh_dl_tensor(&place), nullptr);
  }
}

}  // namespace
}  // namespace crossmesh
