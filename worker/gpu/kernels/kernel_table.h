// All kernels by name: their functions in the image, and, for tests, their bodies on the host.

#pragma once

#include "common/numbers/number_formats.h"
#include "common/numbers/reduction_rules.h"
#include "worker/gpu/kernels/copy_kernel.h"
#include "worker/gpu/kernels/pack_kernel.h"
#include "worker/gpu/kernels/pieces_in_memory.h"
#include "worker/gpu/kernels/reduce_kernel.h"
#include "worker/gpu/kernels/scale_kernel.h"

// KERNEL(name, body) for each. A kernel's one parameter is its body's Arguments.
#define CROSSMESH_KERNELS(KERNEL)                                                 \
  KERNEL(crossmesh_copy, CopyKernel)                                              \
  KERNEL(crossmesh_copy_bf16_as_f16, ConvertKernel<ConvertedElements<Bf16, F16>>) \
  KERNEL(crossmesh_copy_bf16_as_f32, ConvertKernel<ConvertedElements<Bf16, F32>>) \
  KERNEL(crossmesh_copy_bf16_as_f8_e4m3, ConvertKernel<QuantizedElements>)        \
  KERNEL(crossmesh_copy_f16_as_bf16, ConvertKernel<ConvertedElements<F16, Bf16>>) \
  KERNEL(crossmesh_copy_f16_as_f32, ConvertKernel<ConvertedElements<F16, F32>>)   \
  KERNEL(crossmesh_copy_f32_as_bf16, ConvertKernel<ConvertedElements<F32, Bf16>>) \
  KERNEL(crossmesh_copy_f32_as_f16, ConvertKernel<ConvertedElements<F32, F16>>)   \
  KERNEL(crossmesh_pack, PackKernel<CopiedBytes>)                                 \
  KERNEL(crossmesh_pack_bf16_as_f16, PackKernel<ConvertedElements<Bf16, F16>>)    \
  KERNEL(crossmesh_pack_bf16_as_f32, PackKernel<ConvertedElements<Bf16, F32>>)    \
  KERNEL(crossmesh_pack_bf16_as_f8_e4m3, PackKernel<QuantizedElements>)           \
  KERNEL(crossmesh_pack_f16_as_bf16, PackKernel<ConvertedElements<F16, Bf16>>)    \
  KERNEL(crossmesh_pack_f16_as_f32, PackKernel<ConvertedElements<F16, F32>>)      \
  KERNEL(crossmesh_pack_f32_as_bf16, PackKernel<ConvertedElements<F32, Bf16>>)    \
  KERNEL(crossmesh_pack_f32_as_f16, PackKernel<ConvertedElements<F32, F16>>)      \
  KERNEL(crossmesh_reduce_bf16, ReduceKernel<RulesOfBf16>)                        \
  KERNEL(crossmesh_reduce_f16, ReduceKernel<RulesOfF16>)                          \
  KERNEL(crossmesh_reduce_f32, ReduceKernel<RulesOfF32>)                          \
  KERNEL(crossmesh_reduce_f64, ReduceKernel<RulesOfF64>)                          \
  KERNEL(crossmesh_reduce_i16, ReduceKernel<RulesOfIntegers<int16_t>>)            \
  KERNEL(crossmesh_reduce_i32, ReduceKernel<RulesOfIntegers<int32_t>>)            \
  KERNEL(crossmesh_reduce_i64, ReduceKernel<RulesOfIntegers<int64_t>>)            \
  KERNEL(crossmesh_reduce_i8, ReduceKernel<RulesOfIntegers<int8_t>>)              \
  KERNEL(crossmesh_reduce_u16, ReduceKernel<RulesOfIntegers<uint16_t>>)           \
  KERNEL(crossmesh_reduce_u32, ReduceKernel<RulesOfIntegers<uint32_t>>)           \
  KERNEL(crossmesh_reduce_u64, ReduceKernel<RulesOfIntegers<uint64_t>>)           \
  KERNEL(crossmesh_reduce_u8, ReduceKernel<RulesOfIntegers<uint8_t>>)             \
  KERNEL(crossmesh_scale, ScaleKernel)                                            \
  KERNEL(crossmesh_unpack, UnpackKernel)
