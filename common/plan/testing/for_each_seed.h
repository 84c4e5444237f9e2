#pragma once

#include "common/plan/testing/random_source.h"

#include <concepts>
#include <cstdint>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {

// Calls `test(random)`, or `test(random, seed)`, with the choices of each seed from 0 to below
// `seeds`. Failures name the seed; the first fatal one ends it.
template <typename Test>
void ForEachSeed(uint64_t seeds, Test test) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    if constexpr (std::invocable<Test, RandomSource&, uint64_t>) {
      test(random, seed);
    } else {
      test(random);
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace crossmesh
