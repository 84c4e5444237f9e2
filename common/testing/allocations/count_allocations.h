#pragma once

#include <cstdint>

#include <absl/functional/function_ref.h>

namespace crossmesh {

// How often this thread calls operator new in `work`, but for the calls in which `is_ignored` is
// true; that may allocate what it likes. Not to be nested.
int64_t CountAllocations(absl::FunctionRef<void()> work, bool (*is_ignored)() = nullptr);

// How often any thread of this process does so in `work`. Not to be nested.
int64_t CountAllocationsOfAllThreads(absl::FunctionRef<void()> work);

// By how many bytes of malloc, its own words included, this thread has more at the end of `work`:
// what it took from operator new there, but for what it gave back. Not to be nested, not with the
// other either.
int64_t CountKeptBytes(absl::FunctionRef<void()> work);

}  // namespace crossmesh
