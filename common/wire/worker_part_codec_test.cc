#include "common/wire/worker_part_codec.h"

#include "common/base/check.h"
#include "common/plan/broadcast_groups.h"
#include "common/plan/testing/random_source.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "common/wire/plan_codec.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

Plan MakePlan(RandomSource& random) {
  auto tensors = std::make_shared<const TensorTable>(RandomTensorTable(random));
  absl::StatusOr<Slicing> slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  Plan::Spec spec =
      RandomPlan(random, tensors, std::make_shared<const Slicing>(*std::move(slicing)));
  spec.m2n = random.OneIn(4);
  for (DeviceRank device = 0; device < std::ssize(tensors->devices()); ++device) {
    if (!spec.m2n && random.OneIn(3)) spec.over_gpus.push_back(device);
  }
  absl::StatusOr<Plan> plan = Plan::Create(std::move(spec));
  CHECK_OK(plan);
  return *std::move(plan);
}

// The parts of one to four workers that share the plan's devices at random.
std::vector<WorkerPart> MakeParts(RandomSource& random) {
  const Plan plan = MakePlan(random);
  std::vector<std::vector<DeviceId>> devices(random.Between(1, 4));
  for (const DeviceId& device : plan.tensors().devices()) {
    devices[random.Below(static_cast<int64_t>(devices.size()))].push_back(device);
  }
  absl::StatusOr<std::vector<WorkerPart>> parts = CutParts(plan, devices);
  CHECK_OK(parts);
  return *std::move(parts);
}

class WorkerPartCodecTest : public testing::TestWithParam<uint64_t> {
 protected:
  WorkerPartCodecTest() { RecordProperty("seed", std::to_string(GetParam())); }
  RandomSource random_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Seeds, WorkerPartCodecTest, testing::Range<uint64_t>(1, 101));

TEST_P(WorkerPartCodecTest, PartsSurviveBothWays) {
  for (const WorkerPart& part : MakeParts(random_)) {
    std::string bytes;
    ASSERT_TRUE(ToProto(part).SerializeToString(&bytes));
    v1::WorkerPart proto;
    ASSERT_TRUE(proto.ParseFromString(bytes));
    ASSERT_OK_AND_ASSIGN(const WorkerPart read, FromProto(proto));
    EXPECT_EQ(read.digest(), part.digest());
    EXPECT_EQ(read.spec().m2n, part.spec().m2n);
    EXPECT_EQ(read.spec().over_gpus, part.spec().over_gpus);
    EXPECT_EQ(read.spec().tensors->spec().group_of_tensor,
              part.spec().tensors->spec().group_of_tensor);
    EXPECT_EQ(ToProto(read).SerializeAsString(), bytes);
  }
}

TEST_P(WorkerPartCodecTest, HalvesSurviveBothWays) {
  for (const WorkerPart& part : MakeParts(random_)) {
    if (part.spec().over_gpus.empty()) continue;
    for (const Medium medium : {Medium::kHost, Medium::kGpus}) {
      ASSERT_OK_AND_ASSIGN(const WorkerPart half, CutByMedium(part, medium));
      ASSERT_OK_AND_ASSIGN(const WorkerPart read, FromProto(ToProto(half)));
      EXPECT_EQ(read.digest(), half.digest());
      EXPECT_EQ(read.spec().medium, medium);
    }
    v1::WorkerPart proto = ToProto(part);
    proto.set_medium(static_cast<v1::WorkerPart::Medium>(7));
    EXPECT_THAT(FromProto(proto).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("medium")));
  }
}

TEST(WorkerPartCodec, ScalesSurviveBothWays) {
  const auto tensors = std::make_shared<const TensorTable>(TableOf(
      {TensorOf("[256, 200]: x=1 on a.0 [-, -] -> x=2 on b.0-1 {[0:128, 0:200]; [128:256, 0:200]}",
                DataType::kBF16, DataType::kF8E4M3)}));
  ASSERT_OK_AND_ASSIGN(Slicing slicing, Slicing::Create(*tensors));
  RandomSource random(1);
  ASSERT_OK_AND_ASSIGN(const Plan plan,
                       Plan::Create(RandomPlan(
                           random, tensors, std::make_shared<const Slicing>(std::move(slicing)))));
  ASSERT_OK_AND_ASSIGN(const auto parts, CutParts(plan, {tensors->devices()}));
  const v1::WorkerPart proto = ToProto(parts[0]);
  EXPECT_THAT(proto.scaled_tensors(), testing::ElementsAre(0));
  ASSERT_OK_AND_ASSIGN(const WorkerPart read, FromProto(proto));
  EXPECT_EQ(read.digest(), parts[0].digest());
}

TEST(WorkerPartCodec, BroadcastGroupsSurviveBothWays) {
  const auto tensors = std::make_shared<const TensorTable>(
      TableOf({TensorOf("[8]: x=1 on a.0 [-] -> r=2 on b.0-1 [-]")}));
  ASSERT_OK_AND_ASSIGN(Slicing slicing, Slicing::Create(*tensors));
  RandomSource random(1);
  Plan::Spec spec =
      RandomPlan(random, tensors, std::make_shared<const Slicing>(std::move(slicing)));
  spec.broadcast_groups = FindBroadcastGroups(spec.relays, spec.hops, tensors->devices().size());
  ASSERT_EQ(spec.broadcast_groups.size(), 1);
  ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Create(std::move(spec)));
  ASSERT_OK_AND_ASSIGN(const auto parts, CutParts(plan, {tensors->devices()}));
  v1::WorkerPart proto = ToProto(parts[0]);
  ASSERT_OK_AND_ASSIGN(const WorkerPart read, FromProto(proto));
  EXPECT_EQ(read.digest(), parts[0].digest());
  EXPECT_THAT(read.BroadcastGroupOf(1), testing::ElementsAre(0, 1, 2));
  proto.set_broadcast_groups(0, proto.set_size_size());
  EXPECT_THAT(FromProto(proto), IsRefused("broadcast group"));
  proto.clear_broadcast_groups();
  ASSERT_OK_AND_ASSIGN(const WorkerPart without, FromProto(proto));
  EXPECT_NE(without.digest(), parts[0].digest());
}

// Puts a number that may be harmful in place of one in some array, or makes an array longer or
// shorter.
void Damage(RandomSource& random, v1::WorkerPart& proto) {
  const google::protobuf::Reflection& reflection = *proto.GetReflection();
  const google::protobuf::Descriptor& descriptor = *proto.GetDescriptor();
  const google::protobuf::FieldDescriptor* field = nullptr;
  do {
    field = descriptor.field(static_cast<int>(random.Below(descriptor.field_count())));
  } while (!field->is_repeated() ||
           field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE ||
           field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING);
  const std::vector<int64_t> values = {
      -1, 0, 1, 2, 1'000'000, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int64_t{1} << 40};
  const int64_t value = random.Pick(values);
  const bool wide = field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_INT64;
  const int size = reflection.FieldSize(proto, field);
  if (size > 0 && random.OneIn(4)) {
    reflection.RemoveLast(&proto, field);
  } else if (size == 0 || random.OneIn(4)) {
    wide ? reflection.AddInt64(&proto, field, value)
         : reflection.AddInt32(&proto, field, static_cast<int32_t>(value));
  } else {
    const int at = static_cast<int>(random.Below(size));
    wide ? reflection.SetRepeatedInt64(&proto, field, at, value)
         : reflection.SetRepeatedInt32(&proto, field, at, static_cast<int32_t>(value));
  }
}

// What was let through has been checked by Create, and is complete enough to be cut up again.
void ExpectRefusedOrSound(const v1::WorkerPart& proto) {
  const absl::StatusOr<WorkerPart> part = FromProto(proto);
  if (part.ok()) {
    EXPECT_THAT(FromProto(ToProto(*part)), IsOk());
  } else {
    EXPECT_THAT(part, StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST_P(WorkerPartCodecTest, DamagedNumbersAreRefusedOrHarmless) {
  for (const WorkerPart& part : MakeParts(random_)) {
    for (int i = 0; i < 20; ++i) {
      v1::WorkerPart proto = ToProto(part);
      for (int64_t n = random_.Between(1, 3); n > 0; --n) Damage(random_, proto);
      ExpectRefusedOrSound(proto);
    }
  }
}

TEST_P(WorkerPartCodecTest, DamagedBytesAreRefusedOrHarmless) {
  const google::protobuf::LogSilencer silencer;  // it reports every string that is not UTF-8
  for (const WorkerPart& part : MakeParts(random_)) {
    const std::string bytes = ToProto(part).SerializeAsString();
    for (int i = 0; i < 20; ++i) {
      std::string damaged = bytes;
      for (int64_t n = random_.Between(1, 4); n > 0; --n) {
        damaged[random_.Below(static_cast<int64_t>(damaged.size()))] =
            static_cast<char>(random_.Below(256));
      }
      v1::WorkerPart proto;
      if (proto.ParseFromString(damaged)) ExpectRefusedOrSound(proto);
    }
  }
}

class WorkerPartRefusalTest : public testing::Test {
 protected:
  WorkerPartRefusalTest() {
    RandomSource random(5);
    proto_ = ToProto(MakeParts(random)[0]);
  }
  absl::Status Read() { return FromProto(proto_).status(); }

  v1::WorkerPart proto_;
};

TEST_F(WorkerPartRefusalTest, ErrorsNameTheArray) {
  const v1::WorkerPart good = proto_;
  const auto refused = [](const char* what) { return IsRefused(what); };
  ASSERT_OK(Read());
  proto_.set_plan_id("xyz");
  EXPECT_THAT(Read(), refused("plan: expected 32 hexadecimal digits"));
  proto_ = good;
  proto_.add_run_length(1);
  EXPECT_THAT(Read(), refused("arrays by run"));
  proto_ = good;
  proto_.set_run_length(0, int64_t{1} << 60);
  EXPECT_THAT(Read(), refused("length of a run: expected from 1 to 1000000"));
  proto_ = good;
  proto_.set_run_group(0, good.groups_size() + 1);
  EXPECT_THAT(Read(), refused("group of a run"));
  proto_ = good;
  proto_.mutable_groups(0)->set_source(-1);
  EXPECT_THAT(Read(), refused("placement of a group"));
  proto_ = good;
  proto_.add_set_size(1);
  EXPECT_THAT(Read(), refused("size of a device set"));
  proto_ = good;
  proto_.add_set_devices(0);
  EXPECT_THAT(Read(), refused("devices of the sets"));
  proto_ = good;
  proto_.add_relay_index(1);
  EXPECT_THAT(Read(), refused("arrays by relay"));
  proto_ = good;
  proto_.add_hop_from(1);
  EXPECT_THAT(Read(), refused("arrays by hop"));
  proto_ = good;
  proto_.add_copy_class(1);
  EXPECT_THAT(Read(), refused("arrays by copy"));
  proto_ = good;
  proto_.set_binding(static_cast<v1::BindingMode>(7));
  EXPECT_THAT(Read(), refused("binding mode"));
}

TEST_F(WorkerPartRefusalTest, ShortTextCannotStandForTooManySlots) {
  v1::WorkerPart::Placement placement;
  std::string devices;
  for (int host = 0; host < 64; ++host) {
    devices += (host > 0 ? "," : "") + std::string("h") + std::to_string(host) + ".0-1023";
  }
  placement.set_mesh("x=65536 on " + devices);
  placement.set_layout("[]");
  for (int i = 0; i < 33; ++i) *proto_.add_sources() = placement;
  EXPECT_THAT(Read(), IsRefused("slots together"));
}

TEST(PlanCodecTest, ASummaryHasThePlansFigures) {
  RandomSource random(3);
  const Plan plan = MakePlan(random);
  ASSERT_OK_AND_ASSIGN(const Proof proof, Prove(plan));
  const v1::PlanSummary summary = SummaryOf(
      plan, proof, {.topology = Topology(), .duration = absl::Seconds(2), .cached = true});
  EXPECT_EQ(summary.id(), plan.id().ToString());
  EXPECT_EQ(summary.destination_bytes(), proof.destination_bytes);
  EXPECT_EQ(summary.relays(), proof.relays);
  EXPECT_EQ(summary.groups(), static_cast<int64_t>(plan.tensors().groups().size()));
  EXPECT_EQ(summary.replicas(), plan.tensors().replicas());
  EXPECT_EQ(summary.plan_seconds(), 2);
  EXPECT_TRUE(summary.cached());
  EXPECT_EQ(summary.assumed_bytes_per_second(), Topology::kAssumedBytesPerSecond);
}

TEST(PlanCodecTest, PortsHaveNames) {
  const v1::PortPrice price =
      ToProto(PortPrice{.port = PortPrice::Port::kRackUp, .name = "r0", .price = 0.5});
  EXPECT_EQ(price.port(), "rack_up");
  EXPECT_EQ(price.name(), "r0");
  EXPECT_EQ(price.price(), 0.5);
}

TEST(PlanCodecTest, BindingModesSurviveBothWays) {
  for (const BindingMode mode : {BindingMode::kShadow, BindingMode::kInPlace}) {
    EXPECT_THAT(FromProto(ToProto(mode)), IsOkAndHolds(mode));
  }
  EXPECT_THAT(FromProto(v1::BINDING_MODE_UNSPECIFIED), IsOkAndHolds(BindingMode::kShadow));
}

}  // namespace
}  // namespace crossmesh
