#include "worker/gpu/libraries/shared_library.h"

#include "common/testing/status_matchers.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SharedLibraryTest, ALibraryThatIsNotThereIsNamed) {
  EXPECT_THAT(SharedLibrary::Load("libnothing.so.9"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("library libnothing.so.9 cannot be loaded"),
                             HasSubstr("No such file"))));
}

TEST(SharedLibraryTest, SymbolsAreResolvedByNameAndNullWithoutOne) {
  ASSERT_OK_AND_ASSIGN(const SharedLibrary library, SharedLibrary::Load("libm.so.6"));
  double (*power)(double, double) = nullptr;
  ASSERT_TRUE(library.Resolve("pow", power));
  EXPECT_EQ(power(2, 10), 1024);
  EXPECT_FALSE(library.Resolve("crossmesh_has_no_such_symbol", power));
  EXPECT_EQ(power, nullptr);
}

TEST(SharedLibraryTest, ADescriptionHasTheFileThatWasFound) {
  ASSERT_OK_AND_ASSIGN(const SharedLibrary library, SharedLibrary::Load("libm.so.6"));
  EXPECT_THAT(library.path(), HasSubstr("/libm.so.6"));
  EXPECT_EQ(library.stand_in_name(), "");
  EXPECT_EQ(library.Describe("Maths 1.0"), "Maths 1.0, " + library.path());
}

}  // namespace
}  // namespace crossmesh
