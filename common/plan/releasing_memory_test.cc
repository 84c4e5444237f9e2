#include "common/plan/releasing_memory.h"

#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"

#include <cstdint>
#include <set>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// Page by page.
struct Pages {
  explicit Pages(const PageRows& rows) {
    for (int64_t row = 0; row < rows.rows; ++row) {
      const int64_t begin = rows.begin + row * rows.pitch;
      const int64_t end = begin + rows.row_bytes;
      for (int64_t page = begin / kPageBytes; page * kPageBytes < end; ++page) {
        touched.insert(page);
        inside += begin <= page * kPageBytes && (page + 1) * kPageBytes <= end ? 1 : 0;
      }
    }
  }

  std::set<int64_t> touched;
  int64_t inside = 0;
};

TEST(PageRows, BoundWhatLiesInPagesAndWhatTouchesThem) {
  RandomSource random(FromEnvironment("CROSSMESH_SEED", 1));
  for (int i = 0; i < 500; ++i) {
    PageRows rows{.begin = random.Between(0, 3 * kPageBytes),
                  .row_bytes = random.Between(1, 3 * kPageBytes),
                  .rows = random.OneIn(8) ? random.Between(65, 90) : random.Between(1, 6)};
    if (random.OneIn(3)) rows.begin = rows.begin / kPageBytes * kPageBytes;
    if (random.OneIn(3)) rows.row_bytes = (rows.row_bytes / kPageBytes + 1) * kPageBytes;
    rows.pitch = rows.row_bytes * random.Between(1, 4);
    SCOPED_TRACE(absl::StrCat("begin ", rows.begin, ", ", rows.rows, " rows of ", rows.row_bytes,
                              " at ", rows.pitch));
    const Pages exact(rows);
    EXPECT_LE(rows.inside(), exact.inside * kPageBytes);
    EXPECT_GE(rows.touched(), std::ssize(exact.touched) * kPageBytes);
    if (rows.rows <= 64) EXPECT_EQ(rows.inside(), exact.inside * kPageBytes);
  }
  EXPECT_EQ(PageRows().touched(), 0);
  EXPECT_EQ(PageRows().inside(), 0);
}

TEST(ProveReleasing, ASourceThatIsToStayIsNotReleased) {
  struct Move {
    const TensorTable& tensors() const { return *table; }
    const TensorTable* table = nullptr;
  };
  const Course<Move> stays;
  const Course<Move> releases{.releases_source = true};
  const std::vector<CourseTables> all = {CourseTables(releases), CourseTables(releases)};
  EXPECT_OK(ProveReleasing(all, BindingMode::kInPlace, false));
  EXPECT_THAT(ProveReleasing(all, BindingMode::kShadow, false),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found binding shadow")));
  EXPECT_THAT(ProveReleasing(all, BindingMode::kInPlace, true),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("one storage")));
  const std::vector<CourseTables> some = {CourseTables(releases), CourseTables(stays)};
  EXPECT_THAT(ProveReleasing(some, BindingMode::kInPlace, false),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("or none")));
  const std::vector<CourseTables> no = {CourseTables(stays)};
  EXPECT_OK(ProveReleasing(no, BindingMode::kShadow, true));
}

}  // namespace
}  // namespace crossmesh
