#include "planner/redistribute/testing/exact_redistribution.h"

#include "common/testing/status_matchers.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/redistribution_search.h"
#include "planner/redistribute/testing/redistribution_study.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

class StudyTest : public testing::TestWithParam<StudiedMesh> {};

// Nothing is lost by looking only at steps that lead somewhere.
TEST_P(StudyTest, EveryPairTakesTheLeastBytesOfAllSequencesOfSteps) {
  const StudiedMesh& mesh = GetParam();
  RedistributionRequest whole = mesh.Request(0, 0);
  AtomSizes primes;
  for (const Axis& axis : mesh.axes) primes.push_back(PrimeFactors(axis.size));
  const TypeSpace all(whole, primes);
  const ExactRedistribution exact(all);
  int different = 0;
  double strided = 0;
  for (size_t destination = 0; destination < mesh.layouts.size(); ++destination) {
    std::map<int64_t, std::vector<int64_t>> least;  // by the limit
    for (size_t source = 0; source < mesh.layouts.size(); ++source) {
      if (source == destination) continue;
      const RedistributionRequest request = mesh.Request(source, destination);
      const TypeSpace space(request, primes);
      const int64_t limit =
          std::max(space.LocalBytes(space.source()), space.LocalBytes(space.destination()));
      if (!least.contains(limit)) least[limit] = exact.LeastBytes(space.destination(), limit);
      ASSERT_OK_AND_ASSIGN(
          const RedistributionResult result,
          SearchRedistribution(request, {.objective = RedistributionObjective::kBytes,
                                         .local_bytes_max = limit,
                                         .relay = false}));
      const int64_t bytes = result.derivation.bytes();
      const int64_t optimum = least[limit][exact.IndexOf(space.source())];
      if (bytes != optimum && ++different < 5) {
        ADD_FAILURE() << "expected " << optimum << " bytes, found\n" << result.derivation.Text();
      }
      if (bytes > 0) {
        strided += std::log(static_cast<double>(bytes) /
                            static_cast<double>(result.derivation.bound_bytes()));
      }
    }
  }
  EXPECT_EQ(different, 0);
  printf("%s: %.4f types %zu\n", mesh.name.c_str(),
         std::exp(strided / static_cast<double>(mesh.pairs())), exact.types().size());
}

INSTANTIATE_TEST_SUITE_P(All, StudyTest, testing::ValuesIn(StudiedMeshes()));

}  // namespace
}  // namespace crossmesh
