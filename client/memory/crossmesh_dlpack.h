// A storage as a tensor of DLPack, which torch, CuPy, JAX and NumPy take without a copy. C99, also
// C++; needs nothing else of Crossmesh, and no library.

#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// NOLINTBEGIN(modernize-use-nullptr, modernize-use-using): C has neither.

#ifdef __cplusplus
extern "C" {
#endif

// DLDeviceType and DLDataTypeCode, as far as tensors here have them.
enum { CROSSMESH_DL_CPU = 1, CROSSMESH_DL_CUDA = 2 };
enum {
  CROSSMESH_DL_INT = 0,
  CROSSMESH_DL_UINT = 1,
  CROSSMESH_DL_FLOAT = 2,
  CROSSMESH_DL_BFLOAT = 4,
  CROSSMESH_DL_BOOL = 6,
  CROSSMESH_DL_FLOAT8_E4M3 = 10  // e4m3fn, from DLPack 1.1 on
};
enum { CROSSMESH_DL_DIMENSIONS_MAX = 64 };

// DLManagedTensor of dlpack.h, byte for byte: a pointer to one may be cast to the other. It is what
// a capsule named "dltensor" holds.
typedef struct CrossmeshDlTensor {
  struct {
    void* data;
    struct {
      int32_t device_type;
      int32_t device_id;
    } device;
    int32_t ndim;
    struct {
      uint8_t code;
      uint8_t bits;
      uint16_t lanes;
    } dtype;
    int64_t* shape;
    int64_t* strides;  // none: rows lie one after the other
    uint64_t byte_offset;
  } dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct CrossmeshDlTensor* self);
} CrossmeshDlTensor;

// Where a tensor lies: for a storage, its address and the offset by its layout.
typedef struct CrossmeshTensorPlace {
  void* data;
  int32_t device_type;
  int32_t device_id;  // of CUDA in this process
  uint8_t type_code;
  uint8_t type_bits;
  int32_t ndim;
  const int64_t* shape;  // ndim of them; copied
  // Called once, when nothing uses the tensor any more: the memory may be unmapped. May be null.
  void (*release)(void* owner);
  void* owner;
} CrossmeshTensorPlace;

typedef struct CrossmeshDlBlock {
  CrossmeshDlTensor tensor;  // first: the deleter gets its address
  void (*release)(void* owner);
  int64_t shape[CROSSMESH_DL_DIMENSIONS_MAX];
} CrossmeshDlBlock;

static inline void crossmesh_dl_delete(CrossmeshDlTensor* self) {
  CrossmeshDlBlock* block = (CrossmeshDlBlock*)self;
  if (block->release != NULL) block->release(self->manager_ctx);
  free(block);
}

// A tensor that whoever takes it ends by its deleter. Null, without a call of release, when memory
// lacks, or for a number of dimensions that is negative or above 64.
static inline CrossmeshDlTensor* crossmesh_dl_tensor(const CrossmeshTensorPlace* place) {
  CrossmeshDlBlock* block;
  if (place->ndim < 0 || place->ndim > CROSSMESH_DL_DIMENSIONS_MAX) return NULL;
  block = (CrossmeshDlBlock*)calloc(1, sizeof(CrossmeshDlBlock));
  if (block == NULL) return NULL;
  if (place->ndim > 0) memcpy(block->shape, place->shape, (size_t)place->ndim * sizeof(int64_t));
  block->release = place->release;
  block->tensor.dl_tensor.data = place->data;
  block->tensor.dl_tensor.device.device_type = place->device_type;
  block->tensor.dl_tensor.device.device_id = place->device_id;
  block->tensor.dl_tensor.ndim = place->ndim;
  block->tensor.dl_tensor.dtype.code = place->type_code;
  block->tensor.dl_tensor.dtype.bits = place->type_bits;
  block->tensor.dl_tensor.dtype.lanes = 1;
  block->tensor.dl_tensor.shape = block->shape;
  block->tensor.manager_ctx = place->owner;
  block->tensor.deleter = crossmesh_dl_delete;
  return &block->tensor;
}

#ifdef __cplusplus
}
#endif

// NOLINTEND(modernize-use-nullptr, modernize-use-using)
