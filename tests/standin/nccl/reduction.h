#pragma once

#include "tests/standin/nccl/operation.h"

#include <cstddef>
#include <span>

#include <absl/strings/string_view.h>
#include <nccl.h>

namespace crossmesh {

// 0 for a type that NCCL does not have.
size_t BytesOf(ncclDataType_t type);
// "float32", "?"
absl::string_view NameOf(ncclDataType_t type);
absl::string_view NameOf(ncclRedOp_t operation);

// Are elements of this type ones that Reduce can reduce? Floats of 8 bits are not.
bool CanReduce(ncclDataType_t type, ncclRedOp_t operation);

// Reduces the operation's elements of all sources, in their order, so that every rank has the same
// result; floats of 16 bits by way of those of 32. Its `to` may be one of the sources.
void Reduce(const Operation& operation, std::span<const void* const> sources);

}  // namespace crossmesh
