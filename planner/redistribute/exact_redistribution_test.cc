#include "planner/redistribute/testing/exact_redistribution.h"

#include "common/testing/status_matchers.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/missing_estimate.h"
#include "planner/redistribute/overlap.h"
#include "planner/redistribute/path_estimate.h"
#include "planner/redistribute/redistribution_search.h"
#include "planner/redistribute/search_space.h"
#include "planner/redistribute/testing/redistribution_study.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

AtomSizes Primes(const StudiedMesh& mesh) {
  AtomSizes primes;
  for (const Axis& axis : mesh.axes) primes.push_back(PrimeFactors(axis.size));
  return primes;
}

// Steps dear and cheap beside messages and bytes, with slower links for the first axis; and cheap
// ones with rings whose passes cost less than messages.
std::vector<CollectiveCost> Costs(const std::vector<Axis>& axes) {
  std::vector<CollectiveCost> costs = {{.seconds_per_step = 6.6e-6}, {.seconds_per_step = 1e-7}};
  RingCost rings{.seconds_per_step = 1e-7,
                 .seconds_per_pass = 1e-8,
                 .seconds_between_hosts = 2e-8,
                 .bytes_per_second_max = 1e8,
                 .bytes_per_second_inside = 1e7,
                 .bytes_per_second_between_hosts = 1e6,
                 .hashed_bytes_per_second = 1e9,
                 .adds = true};
  for (int32_t axis = 0; axis < static_cast<int32_t>(axes.size()); ++axis) {
    const SubAxis part{axis, 1, axes[axis].size};
    const bool slow = axis == 0;
    costs[0].links.push_back({part, slow ? 2.7e-6 : 0.6e-6, slow ? 20e9 : 94e9});
    costs[1].links.push_back({part, slow ? 5e-8 : 2e-8, slow ? 1e6 : 1e7});
    if (!slow) rings.inside.push_back(part);
  }
  costs.push_back(costs[1]);
  costs.back().rings = rings;
  return costs;
}

// By bytes, or by seconds where there is a cost.
void ExpectEstimatesAtMostTheLeast(const SearchSpace& space, const ExactRedistribution& exact,
                                   const std::optional<CollectiveCost>& cost) {
  const TypeSpace& types = space.types();
  const StepPrices prices(types, cost.value_or(CollectiveCost{}));
  PathEstimate estimate(space, prices,
                        cost.has_value() ? PathObjective::kSeconds : PathObjective::kBytes);
  std::vector<double> least;
  if (cost.has_value()) {
    least = exact.LeastSeconds(types.destination(), prices);
  } else {
    const std::vector<int64_t> bytes = exact.LeastBytes(types.destination(), INT64_MAX);
    least.assign(bytes.begin(), bytes.end());
  }
  for (size_t i = 0; i < least.size(); ++i) {
    if (least[i] < 0) continue;
    ASSERT_LE(estimate.Of(space.Pack(exact.types()[i])).objective, least[i] * (1 + 1e-12))
        << types.Text(exact.types()[i]) << " to " << types.Text(types.destination());
  }
}

// What is tried out of a mesh, which takes long and is the same for all tests of it.
struct Study {
  explicit Study(const StudiedMesh& studied)
      : mesh(studied), primes(Primes(mesh)), space(mesh.Request(0, 0), primes), exact(space) {}

  static const Study& Of(const StudiedMesh& mesh) {
    static std::map<std::string, Study> studies;
    return studies.try_emplace(mesh.name, mesh).first->second;
  }

  const StudiedMesh mesh;
  const AtomSizes primes;
  const TypeSpace space;
  const ExactRedistribution exact;
};

class StudyTest : public testing::TestWithParam<StudiedMesh> {
 protected:
  const Study& study_ = Study::Of(GetParam());
  const StudiedMesh& mesh_ = study_.mesh;
  const AtomSizes& primes_ = study_.primes;
  const ExactRedistribution& exact_ = study_.exact;
};

// Of bytes to the bound, where there is one.
struct Ratios {
  double logarithms = 0;
  double most = 0;
  double count = 0;

  void Add(const Derivation& derivation) {
    if (derivation.bound_bytes() == 0) return;
    const double ratio =
        static_cast<double>(derivation.bytes()) / static_cast<double>(derivation.bound_bytes());
    logarithms += std::log(ratio);
    most = std::max(most, ratio);
    ++count;
  }
};

// Nothing is lost by looking only at steps that lead somewhere.
TEST_P(StudyTest, EveryPairTakesTheLeastBytesOfAllSequencesOfSteps) {
  Ratios ratios;
  for (size_t destination = 0; destination < mesh_.layouts.size(); ++destination) {
    std::map<int64_t, std::vector<int64_t>> least;  // by the limit
    for (size_t source = 0; source < mesh_.layouts.size(); ++source) {
      if (source == destination) continue;
      const RedistributionRequest request = mesh_.Request(source, destination);
      const TypeSpace space(request, primes_);
      const int64_t limit =
          std::max(space.LocalBytes(space.source()), space.LocalBytes(space.destination()));
      if (!least.contains(limit)) least[limit] = exact_.LeastBytes(space.destination(), limit);
      ASSERT_OK_AND_ASSIGN(
          const RedistributionResult result,
          SearchRedistribution(request, {.objective = RedistributionObjective::kBytes,
                                         .local_bytes_max = limit,
                                         .relay = false}));
      ASSERT_EQ(result.derivation.bytes(), least[limit][exact_.IndexOf(space.source())])
          << result.derivation.Text();
      ratios.Add(result.derivation);
    }
  }
  // What a brute-force planner found, apart from this one.
  const std::map<std::string, std::pair<double, double>> found = {
      {"2x2, 2 dimensions", {1.000, 1.00}},   {"2x3, 2 dimensions", {1.054, 1.83}},
      {"2x2, 3 dimensions", {1.000, 1.00}},   {"4x2, 2 dimensions", {1.038, 1.50}},
      {"2x2x2, 2 dimensions", {1.038, 1.50}}, {"2x2x3, 2 dimensions", {1.106, 2.25}}};
  EXPECT_NEAR(std::exp(ratios.logarithms / ratios.count), found.at(mesh_.name).first, 0.0005);
  EXPECT_NEAR(ratios.most, found.at(mesh_.name).second, 0.005);
}

// From every type, strided ones among them, to every layout: so A* finds what is best.
TEST_P(StudyTest, EstimatesAreNeverMoreThanTheLeastBytes) {
  for (size_t destination = 0; destination < mesh_.layouts.size(); ++destination) {
    const TypeSpace types(mesh_.Request(0, destination), primes_);
    const std::optional<SearchSpace> space = SearchSpace::Create(types);
    ASSERT_TRUE(space.has_value());
    MissingEstimate missing(*space);
    ExpectEstimatesAtMostTheLeast(*space, exact_, {});
    for (const LocalType& type : exact_.types()) {
      EXPECT_LE(missing.Elements(space->Pack(type)),
                FindNeediestDevice(types, type, types.destination()).missing_elements)
          << types.Text(type) << " to " << types.Text(types.destination());
    }
  }
}

// From every type, to every third destination of the larger meshes.
TEST_P(StudyTest, EstimatesAreNeverMoreThanTheLeastSeconds) {
  const size_t stride = mesh_.layouts.size() > 20 ? 3 : 1;
  for (const CollectiveCost& cost : Costs(mesh_.axes)) {
    for (size_t destination = 0; destination < mesh_.layouts.size(); destination += stride) {
      const TypeSpace types(mesh_.Request(0, destination), primes_);
      const std::optional<SearchSpace> space = SearchSpace::Create(types);
      ASSERT_TRUE(space.has_value());
      ExpectEstimatesAtMostTheLeast(*space, exact_, cost);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StudyTest, testing::ValuesIn(StudiedMeshes()),
                         [](const auto& mesh) { return absl::StrCat("Mesh", mesh.index); });

// The same with partial sums; of the largest mesh, every seventh pair, and by seconds every seventh
// destination.
TEST(StudyWithSumsTest, EveryPairTakesTheLeastBytesAndEstimatesAreNeverMore) {
  for (const StudiedMesh& mesh : StudiedMeshesWithSums()) {
    const AtomSizes primes = Primes(mesh);
    const TypeSpace whole(mesh.Request(0, 0), primes);
    const ExactRedistribution exact(whole, true);
    const size_t stride = mesh.axes.size() > 2 ? 7 : 1;
    int64_t compared = 0;
    for (size_t destination = 0; destination < mesh.layouts.size(); ++destination) {
      std::map<int64_t, std::vector<int64_t>> least;
      const TypeSpace types(mesh.Request(0, destination), primes);
      const std::optional<SearchSpace> searchable = SearchSpace::Create(types);
      ASSERT_TRUE(searchable.has_value());
      ExpectEstimatesAtMostTheLeast(*searchable, exact, {});
      if (destination % stride == 0) {
        for (const CollectiveCost& cost : Costs(mesh.axes)) {
          ExpectEstimatesAtMostTheLeast(*searchable, exact, cost);
        }
      }
      for (size_t source = destination % stride; source < mesh.layouts.size(); source += stride) {
        const RedistributionRequest request = mesh.Request(source, destination);
        if (!Validate(request).ok()) continue;  // sums that the source has not
        const TypeSpace space(request, primes);
        const int64_t limit =
            std::max(space.LocalBytes(space.source()), space.LocalBytes(space.destination()));
        if (!least.contains(limit)) least[limit] = exact.LeastBytes(space.destination(), limit);
        ASSERT_OK_AND_ASSIGN(
            const RedistributionResult result,
            SearchRedistribution(request, {.objective = RedistributionObjective::kBytes,
                                           .local_bytes_max = limit,
                                           .relay = false}));
        ++compared;
        EXPECT_EQ(result.derivation.bytes(), least[limit][exact.IndexOf(space.source())])
            << space.Text(space.source()) << "\n"
            << result.derivation.Text();
      }
    }
    EXPECT_GT(compared, 200) << mesh.name;
  }
}

}  // namespace
}  // namespace crossmesh
