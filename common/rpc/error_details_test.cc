#include "common/rpc/error_details.h"

#include "common/rpc/status_codec.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

#include <ostream>
#include <string>

#include <absl/status/status.h>
#include <gtest/gtest.h>

namespace crossmesh {

void PrintTo(const ErrorDetails& details, std::ostream* out) {
  *out << details.object << " | " << details.expected << " | " << details.found;
}

namespace {

ErrorDetails DetailsOfMessage(const std::string& message) {
  return DetailsOf(absl::InvalidArgumentError(message));
}

TEST(ErrorDetailsTest, AreThePartsOfAMessage) {
  EXPECT_EQ(DetailsOfMessage("page_size: expected 0 to 1000, found -1"),
            (ErrorDetails{"page_size", "0 to 1000", "-1"}));
  EXPECT_EQ(DetailsOfMessage("spec.source: mesh \"m\": expected one, found none; create it first"),
            (ErrorDetails{"spec.source: mesh \"m\"", "one", "none"}));
  EXPECT_EQ(DetailsOfMessage("spec.manifest: expected a name or an inline manifest"),
            (ErrorDetails{"spec.manifest", "a name or an inline manifest", ""}));
  EXPECT_EQ(DetailsOfMessage("a.json: expected strict JSON, found: malformed at byte 3"),
            (ErrorDetails{"a.json", "strict JSON", "malformed at byte 3"}));
  EXPECT_EQ(DetailsOfMessage("expected a first message with a name"),
            (ErrorDetails{"", "a first message with a name", ""}));
}

TEST(ErrorDetailsTest, WhereNothingWasExpectedTheRestWasFound) {
  EXPECT_EQ(DetailsOfMessage("spec.source: mesh: axis a is named twice; at 0 and 1"),
            (ErrorDetails{"spec.source: mesh", "", "axis a is named twice"}));
  // What a colon stands in, after that, is no object.
  EXPECT_EQ(DetailsOfMessage("grid z=24: z=24 does not divide 64 rows; the nearest: z=16, z=32"),
            (ErrorDetails{"grid z=24", "", "z=24 does not divide 64 rows"}));
  EXPECT_EQ(DetailsOfMessage("a; b: expected c, found d; e: f"), (ErrorDetails{"a; b", "c", "d"}));
}

TEST(ErrorDetailsTest, NamesInQuotesAreNotTakenForParts) {
  EXPECT_EQ(
      DetailsOfMessage(
          R"(tensor "a: expected \" b, found c": expected "k; l, found m", found "n; o")"),
      (ErrorDetails{R"(tensor "a: expected \" b, found c")", R"("k; l, found m")", R"("n; o")"}));
}

TEST(ErrorDetailsTest, AMessageOfAnotherFormHasNone) {
  for (const std::string& message :
       {std::string(), std::string("the worker stops"), std::string("mesh \"a: expected b"),
        std::string("\\"), std::string("\"\\")}) {
    EXPECT_EQ(DetailsOfMessage(message), ErrorDetails()) << message;
    EXPECT_EQ(EncodeDetails(absl::InternalError(message)), "") << message;
  }
}

TEST(ErrorDetailsTest, TravelAsTheStandardsMessages) {
  const grpc::Status sent = ToGrpcStatus(absl::NotFoundError("mesh \"m\": expected one, found no"));
  google::rpc::Status status;
  ASSERT_TRUE(status.ParseFromString(sent.error_details()));
  EXPECT_EQ(status.code(), 5);
  EXPECT_EQ(status.message(), sent.error_message());
  ASSERT_EQ(status.details_size(), 1);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(status.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "NOT_FOUND");
  EXPECT_EQ(info.domain(), "crossmesh");
  EXPECT_EQ(info.metadata().at("object"), "mesh \"m\"");
  EXPECT_EQ(info.metadata().at("expected"), "one");
  EXPECT_EQ(info.metadata().at("found"), "no");
}

TEST(ErrorDetailsTest, ThoseThatCameAreBeforeThoseOfTheMessage) {
  google::rpc::ErrorInfo info;
  (*info.mutable_metadata())["object"] = "told";
  google::rpc::Status told;
  told.add_details()->PackFrom(info);
  const grpc::Status heard(grpc::StatusCode::NOT_FOUND, "read: expected a, found b",
                           told.SerializeAsString());
  EXPECT_EQ(DetailsOf(FromGrpcStatus(heard)), (ErrorDetails{"told", "", ""}));
}

TEST(ErrorDetailsTest, BytesThatAreNoneChangeNothing) {
  const grpc::Status heard(grpc::StatusCode::NOT_FOUND, "a: expected b, found c", "\xff");
  EXPECT_EQ(DetailsOf(FromGrpcStatus(heard)), (ErrorDetails{"a", "b", "c"}));
}

TEST(ErrorDetailsTest, AreLeftOutWhereTheyWouldBeTooLarge) {
  const std::string found(1 << 20, 'x');
  const grpc::Status sent = ToGrpcStatus(absl::InternalError("a: expected b, found " + found));
  EXPECT_EQ(sent.error_details(), "");
}

}  // namespace
}  // namespace crossmesh
