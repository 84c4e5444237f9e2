#include "tests/standin/nccl/reduction.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace crossmesh {
namespace {

template <typename Number>
Number Combine(ncclRedOp_t operation, Number a, Number b) {
  switch (static_cast<int>(operation)) {
    case ncclProd:
      return static_cast<Number>(a * b);
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:  // ncclSum, ncclAvg
      return static_cast<Number>(a + b);
  }
}

// Elements are kept as Stored and reduced as Number.
template <typename Stored, typename Number>
void ReduceAs(const Operation& operation, std::span<const void* const> sources) {
  const auto element = [](const void* from, size_t i) {
    Stored stored;
    std::memcpy(&stored, static_cast<const Stored*>(from) + i, sizeof(stored));
    return static_cast<Number>(stored);
  };
  for (size_t i = 0; i < operation.count; ++i) {
    Number result = element(sources[0], i);
    for (const void* source : sources.subspan(1)) {
      result = Combine(operation.reduction, result, element(source, i));
    }
    if (operation.reduction == ncclAvg)
      result = static_cast<Number>(result / Number(sources.size()));
    const Stored stored = static_cast<Stored>(result);
    std::memcpy(static_cast<Stored*>(operation.to) + i, &stored, sizeof(stored));
  }
}

struct Type {
  absl::string_view name;
  size_t bytes;
};
// In the order of ncclDataType_t.
constexpr Type kTypes[] = {{"int8", 1},    {"uint8", 1},    {"int32", 4},      {"uint32", 4},
                           {"int64", 8},   {"uint64", 8},   {"float16", 2},    {"float32", 4},
                           {"float64", 8}, {"bfloat16", 2}, {"float8e4m3", 1}, {"float8e5m2", 1}};
static_assert(std::size(kTypes) == ncclNumTypes);

}  // namespace

size_t BytesOf(ncclDataType_t type) {
  return type < 0 || type >= ncclNumTypes ? 0 : kTypes[type].bytes;
}

absl::string_view NameOf(ncclDataType_t type) {
  return BytesOf(type) == 0 ? "?" : kTypes[type].name;
}

absl::string_view NameOf(ncclRedOp_t operation) {
  constexpr absl::string_view kNames[] = {"sum", "prod", "max", "min", "avg"};
  return operation < 0 || operation >= ncclNumOps ? "?" : kNames[operation];
}

bool CanReduce(ncclDataType_t type, ncclRedOp_t operation) {
  return BytesOf(type) > 0 && type != ncclFloat8e4m3 && type != ncclFloat8e5m2 && operation >= 0 &&
         operation < ncclNumOps;
}

void Reduce(const Operation& operation, std::span<const void* const> sources) {
  switch (static_cast<int>(operation.type)) {
    case ncclInt8:
      return ReduceAs<int8_t, int8_t>(operation, sources);
    case ncclUint8:
      return ReduceAs<uint8_t, uint8_t>(operation, sources);
    case ncclInt32:
      return ReduceAs<int32_t, int32_t>(operation, sources);
    case ncclUint32:
      return ReduceAs<uint32_t, uint32_t>(operation, sources);
    case ncclInt64:
      return ReduceAs<int64_t, int64_t>(operation, sources);
    case ncclUint64:
      return ReduceAs<uint64_t, uint64_t>(operation, sources);
    case ncclFloat16:
      return ReduceAs<__half, float>(operation, sources);
    case ncclFloat32:
      return ReduceAs<float, float>(operation, sources);
    case ncclFloat64:
      return ReduceAs<double, double>(operation, sources);
    case ncclBfloat16:
      return ReduceAs<__nv_bfloat16, float>(operation, sources);
    default:
      return;  // CanReduce has said no
  }
}

}  // namespace crossmesh
