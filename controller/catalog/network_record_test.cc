#include "controller/catalog/network_record.h"

#include "common/mesh/mesh.h"
#include "common/testing/status_matchers.h"
#include "controller/catalog/network_codec.h"
#include "controller/store/memory_store.h"
#include "planner/parallelism/measured_axes.h"

#include <memory>
#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Description = std::shared_ptr<const NetworkDescription>;

const absl::Time kNoon = absl::FromUnixSeconds(1'800'000'000);

Topology NetworkOf(int64_t rate) {
  return *Topology::Create({{"a", {{"eth0", rate, rate, 7, 8}}, {}, 99}}, {{"r", {"a"}, 5, 6}}, 77);
}

class NetworkRecordTest : public ::testing::Test {
 protected:
  absl::StatusOr<Description> Set(int64_t rate, NetworkSource source = NetworkSource::kClient) {
    return record_.Set({.topology = NetworkOf(rate), .source = source, .time = kNoon});
  }

  MemoryStore store_;
  NetworkRecord record_{store_, /*epoch=*/1};
};

TEST_F(NetworkRecordTest, BeforeTheFirstDescriptionThereIsRevisionZero) {
  ASSERT_OK_AND_ASSIGN(const Description none, record_.Get());
  EXPECT_EQ(*none, NetworkDescription());
}

TEST_F(NetworkRecordTest, ADescriptionIsReadAsItWasSetByAnotherControllerToo) {
  ASSERT_OK_AND_ASSIGN(const Description set, Set(10, NetworkSource::kMeasured));
  EXPECT_EQ(set->revision, 1);
  EXPECT_EQ(set->source, NetworkSource::kMeasured);
  EXPECT_EQ(set->time, kNoon);
  NetworkRecord later(store_, /*epoch=*/2);
  ASSERT_OK_AND_ASSIGN(const Description read, later.Get());
  EXPECT_EQ(*read, *set);
}

TEST_F(NetworkRecordTest, EveryChangeCountsAndARepeatedOneDoesNot) {
  ASSERT_OK(Set(10).status());
  EXPECT_EQ((*Set(11))->revision, 2);
  EXPECT_EQ((*Set(11))->revision, 2);
  EXPECT_EQ((*Set(11, NetworkSource::kFile))->revision, 3);
  EXPECT_EQ((*record_.Get())->revision, 3);
}

TEST_F(NetworkRecordTest, AxesAreOfTheDescriptionThatTheyWereMeasuredOn) {
  ASSERT_OK(Set(10, NetworkSource::kMeasured).status());
  const auto axes = std::make_shared<const MeasuredAxes>(*MeasuredAxes::Create(
      *ParseDevices("a.0-1"), {{.position = {1, 2}, .bytes_per_second = 5e9}}));
  const NetworkRecord::Change change = {
      .topology = NetworkOf(10), .time = kNoon, .revision = 1, .axes = axes};
  ASSERT_OK_AND_ASSIGN(const Description with, record_.Set(change));
  EXPECT_EQ(with->revision, 2);
  EXPECT_EQ(*with->axes, *axes);
  EXPECT_EQ(with->source, NetworkSource::kMeasured) << "of what is described";
  NetworkRecord later(store_, /*epoch=*/2);
  EXPECT_EQ(**later.Get(), *with);
  EXPECT_THAT(record_.Set(change).status(), StatusIs(absl::StatusCode::kAborted));
  ASSERT_OK_AND_ASSIGN(const Description other, Set(11));
  EXPECT_EQ(other->axes, nullptr);
  ASSERT_OK_AND_ASSIGN(const Description again,
                       record_.Set({.topology = NetworkOf(11), .time = kNoon, .axes = axes}));
  EXPECT_EQ(*again->axes, *axes);
  EXPECT_EQ(*(*Set(11))->axes, *axes);
  EXPECT_EQ((*Set(11, NetworkSource::kMeasured))->axes, nullptr);
}

TEST_F(NetworkRecordTest, ToMeasureTheSameAgainIsNews) {
  ASSERT_OK(Set(10, NetworkSource::kMeasured).status());
  EXPECT_EQ((*Set(10, NetworkSource::kMeasured))->revision, 2);
}

TEST_F(NetworkRecordTest, AChangeOfAnotherRevisionIsAborted) {
  ASSERT_OK(Set(10).status());
  EXPECT_THAT(record_.Set({.topology = NetworkOf(11), .time = kNoon, .revision = 0}).status(),
              StatusIs(absl::StatusCode::kAborted,
                       AllOf(HasSubstr("expected revision 0"), HasSubstr("found 1"))));
  EXPECT_OK(record_.Set({.topology = NetworkOf(11), .time = kNoon, .revision = 1}).status());
}

TEST_F(NetworkRecordTest, AChangeByAnotherControllerIsSeenAndFences) {
  ASSERT_OK(Set(10).status());
  NetworkRecord later(store_, /*epoch=*/2);
  ASSERT_OK(later.Set({.topology = NetworkOf(20), .time = kNoon}).status());
  EXPECT_EQ((*record_.Get())->topology, NetworkOf(20));
  EXPECT_THAT(Set(30).status(), StatusIs(absl::StatusCode::kAborted, HasSubstr("epoch 1")));
  EXPECT_EQ((*record_.Get())->topology, NetworkOf(20));
}

TEST_F(NetworkRecordTest, StoredBytesThatDoNotParseAreOurFault) {
  ASSERT_OK(store_.Commit({.epoch = 1, .writes = {{"network/current", "\xff"}}}).status());
  EXPECT_THAT(record_.Get().status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("network description")));
}

TEST(NetworkCodecTest, ASourceThatIsNoneIsRefused) {
  v1::Network proto = ToProto(NetworkDescription());
  proto.set_source(static_cast<v1::NetworkSource>(9));
  EXPECT_THAT(FromProto(proto).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 9")));
}

}  // namespace
}  // namespace crossmesh
