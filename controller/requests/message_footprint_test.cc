#include "controller/requests/message_footprint.h"

#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "crossmesh/v1/controller_service.pb.h"
#include "crossmesh/v1/manifest_service.pb.h"
#include "crossmesh/v1/pipeline_service.pb.h"
#include "crossmesh/v1/reshard_service.pb.h"

#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

absl::StatusOr<int64_t> Footprint(const Message& type, const std::string& bytes,
                                  int64_t bytes_max = kUnbounded) {
  // In pieces, as they come from a network.
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()), 61);
  return FootprintOf(*type.GetDescriptor(), stream, bytes_max);
}

class RandomMessages {
 public:
  explicit RandomMessages(uint64_t seed) : random_(seed) {}

  int Below(int end) { return std::uniform_int_distribution<int>(0, end - 1)(random_); }

  void Fill(Message& message, int depth) {
    const google::protobuf::Descriptor& type = *message.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      const int count = field.is_repeated() ? Below(5) : Below(2);
      for (int k = 0; k < count; ++k) Set(message, field, depth);
    }
  }

 private:
  std::string Text() {
    return std::string(static_cast<size_t>(Below(4) == 0 ? Below(300) : Below(20)), 'x');
  }

  void Set(Message& message, const FieldDescriptor& field, int depth) {
    const google::protobuf::Reflection& reflection = *message.GetReflection();
    const bool many = field.is_repeated();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (depth == 0) return;
        return Fill(many ? *reflection.AddMessage(&message, &field)
                         : *reflection.MutableMessage(&message, &field),
                    depth - 1);
      case FieldDescriptor::CPPTYPE_STRING:
        return many ? reflection.AddString(&message, &field, Text())
                    : reflection.SetString(&message, &field, Text());
      case FieldDescriptor::CPPTYPE_INT64:
        return many ? reflection.AddInt64(&message, &field, Below(1000))
                    : reflection.SetInt64(&message, &field, Below(1000));
      case FieldDescriptor::CPPTYPE_INT32:
        return many ? reflection.AddInt32(&message, &field, -Below(1000))
                    : reflection.SetInt32(&message, &field, -Below(1000));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return many ? reflection.AddDouble(&message, &field, 0.5)
                    : reflection.SetDouble(&message, &field, 0.5);
      case FieldDescriptor::CPPTYPE_BOOL:
        return many ? reflection.AddBool(&message, &field, true)
                    : reflection.SetBool(&message, &field, true);
      default:
        return;
    }
  }

  std::mt19937_64 random_;
};

std::vector<std::unique_ptr<Message>> Types() {
  std::vector<std::unique_ptr<Message>> types;
  types.push_back(std::make_unique<v1::PlanReshardRequest>());
  types.push_back(std::make_unique<v1::PutManifestRequest>());
  types.push_back(std::make_unique<v1::StartPipelineRequest>());
  types.push_back(std::make_unique<v1::PlanPipelineResponse>());
  types.push_back(std::make_unique<v1::GetControllerRequest>());  // to which all is unknown
  return types;
}

// What a parsed message takes by protobuf's own count is within the footprint of its bytes, also of
// bytes of another type and of broken ones; what is parsed is never refused. Of a message as it was
// written the footprint is not far above.
TEST(MessageFootprintTest, IsAtLeastWhatProtobufCountsAndNotFarAbove) {
  const uint64_t first = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  int parsed = 0;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(RandomCases(400)); ++seed) {
    RandomMessages random(seed);
    const auto types = Types();
    const size_t count = types.size();
    Message& sent = *types[static_cast<size_t>(random.Below(static_cast<int>(count)))];
    random.Fill(sent, 6);
    std::string bytes = sent.SerializeAsString();
    const auto of_reader = Types();
    Message& read = *of_reader[static_cast<size_t>(random.Below(static_cast<int>(count)))];
    bool as_written = read.GetDescriptor() == sent.GetDescriptor();
    if (!bytes.empty() && random.Below(3) == 0) {
      bytes[static_cast<size_t>(random.Below(static_cast<int>(bytes.size())))] ^=
          1 << random.Below(8);
      as_written = false;
    }
    if (!read.ParseFromString(bytes)) continue;
    ++parsed;
    const absl::StatusOr<int64_t> footprint = Footprint(read, bytes);
    ASSERT_OK(footprint) << "CROSSMESH_TEST_SEED=" << seed;
    const auto counted = static_cast<int64_t>(read.SpaceUsedLong());
    EXPECT_GE(*footprint, counted) << "CROSSMESH_TEST_SEED=" << seed;
    if (as_written) EXPECT_LE(*footprint, 4 * counted) << "CROSSMESH_TEST_SEED=" << seed;
  }
  EXPECT_GT(parsed, 20);
}

TEST(MessageFootprintTest, TwoBytesOfAnEmptyTensorAreAnObject) {
  const std::string tensor("\x12\x00", 2);
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += tensor;
  v1::PutManifestRequest request;
  ASSERT_TRUE(request.ParseFromString(bytes));
  EXPECT_THAT(Footprint(request, bytes),
              IsOkAndHolds(testing::Ge(static_cast<int64_t>(request.SpaceUsedLong()))));
}

TEST(MessageFootprintTest, WhatIsMoreThanTheBoundIsNotReadToItsEnd) {
  // After the bound is passed comes what is no message.
  const std::string bytes = std::string("\x12\x00\x12\x00\x12\x00\x12\x00", 8) + "\xff";
  const v1::PutManifestRequest type;
  EXPECT_THAT(Footprint(type, bytes), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Footprint(type, bytes, 100), IsOkAndHolds(testing::Gt(100)));
}

TEST(MessageFootprintTest, MessagesThatLieTooDeepAreNone) {
  const auto nested = [](int depth) {
    // Groups of number 15, which no message has.
    return std::string(static_cast<size_t>(depth), '\x7b') +
           std::string(static_cast<size_t>(depth), '\x7c');
  };
  const v1::PutManifestRequest type;
  EXPECT_OK(Footprint(type, nested(90)));
  EXPECT_THAT(Footprint(type, nested(100'000)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::HasSubstr("one message crossmesh.v1.PutManifestRequest")));
}

TEST(MessageFootprintTest, ATextThatIsLongerThanItsMessageIsNone) {
  // A tensor of 2 bytes, in which a name of 100 begins.
  const std::string bytes = std::string("\x12\x02\x0a\x64", 4) + std::string(100, 'x');
  EXPECT_THAT(Footprint(v1::PutManifestRequest(), bytes),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace crossmesh
