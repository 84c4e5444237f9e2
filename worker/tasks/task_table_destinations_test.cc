// Destinations that are made for a task, and what becomes of them.

#include "common/testing/status_matchers.h"
#include "worker/tasks/testing/task_fixture.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

class MadeDestinationTest : public TaskFixture {};

TEST_F(MadeDestinationTest, AreMadeWhenAskedAndNoneIsLeftWhenATaskCannotBegin) {
  DeleteAllStorages();
  MakeStorage("old", "a.0");
  v1::ExecuteRequest start = StartOf(Key(1));
  start.mutable_start()->set_create_destination(true);
  ASSERT_OK(storages_.Create({"new", {"b", 1}}, 128));  // of another size
  MakeStorage("old", "a.1");
  const auto refused = StartWith(start);
  EXPECT_THAT(refused->caller->end,
              Optional(StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("b.1"))));
  EXPECT_THAT(storages_.Status({"new", {"b", 0}}), StatusIs(absl::StatusCode::kNotFound));

  ASSERT_OK(storages_.Delete({"new", {"b", 1}}));
  start.mutable_start()->set_operation(2);
  const auto accepted = StartWith(start);
  EXPECT_THAT(accepted->caller->said, ElementsAre("accepted"));
  EXPECT_EQ(StatusOf("new", "b.1").bytes, kStorageBytes);
}

TEST_F(MadeDestinationTest, GoAgainUnlessTheyAreCommitted) {
  for (const char* device : {"b.0", "b.1"}) {
    ASSERT_OK(storages_.Delete({"new", *ParseDevice(device)}));
  }
  v1::ExecuteRequest start = StartOf(Key(1));
  start.mutable_start()->set_create_destination(true);
  const auto failed = StartWith(start);
  Finish(Key(1), absl::CancelledError("no longer wanted"));
  Send(*failed, ResolveOf({2, 3}, /*commit=*/false));
  EXPECT_EQ(storages_.List().size(), 2U) << "those that it read";

  start.mutable_start()->set_operation(2);
  const auto partial = StartWith(start);
  Finish(Key(2));
  Send(*partial, ResolveOf({2}, /*commit=*/true));
  Send(*partial, ResolveOf({3}, /*commit=*/false));
  EXPECT_EQ(StatusOf("new", "b.0").generation, 2U);
  EXPECT_THAT(storages_.Status({"new", {"b", 1}}), StatusIs(absl::StatusCode::kNotFound));

  start.mutable_start()->set_operation(3);
  const auto later = StartWith(start);
  Finish(Key(3), absl::CancelledError("no longer wanted"));
  Send(*later, ResolveOf({2, 3}, /*commit=*/false));
  EXPECT_EQ(StatusOf("new", "b.0").generation, 2U) << "it was there before";
}

// As when the worker was away, so that its controller has lost it.
TEST_F(MadeDestinationTest, GoWithWhatIsGivenUp) {
  v1::ExecuteRequest start = StartOf(Key(1));
  start.mutable_start()->set_destination_storage("made");
  start.mutable_start()->set_create_destination(true);
  StartWith(start)->call.OnGone();
  EXPECT_EQ(StatusOf("made", "b.0").generation, 1U);
  Finish(Key(1));
  table_.GiveUp(std::vector<std::string>{"op-1"}, 1);
  EXPECT_THAT(storages_.Status({"made", {"b", 0}}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(storages_.Status({"made", {"b", 1}}), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace crossmesh
