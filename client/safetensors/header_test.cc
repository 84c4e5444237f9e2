#include "client/safetensors/header.h"

#include "common/testing/status_matchers.h"

#include <cstdint>
#include <random>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

std::string File(absl::string_view header, size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  absl::StrAppend(&file, header, std::string(data_bytes, 'x'));
  return file;
}

absl::StatusOr<SafetensorsHeader> Parse(const std::string& file) {
  return ParseSafetensorsHeader(std::as_bytes(std::span(file)));
}

TEST(SafetensorsHeaderTest, GivesTensorsInTheOrderOfTheirBytes) {
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("b":{"dtype":"F32","shape":[2],"data_offsets":[6,14]},)"
                             R"("a":{"dtype":"BF16","shape":[3,1],"data_offsets":[0,6]}}  )";
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader parsed, Parse(File(header, 14)));
  ASSERT_EQ(parsed.tensors.size(), 2);
  EXPECT_EQ(parsed.tensors[0].spec.name, "a");
  EXPECT_EQ(parsed.tensors[0].spec.type, DataType::kBF16);
  EXPECT_EQ(ToString(parsed.tensors[0].spec.shape), "[3, 1]");
  EXPECT_EQ(parsed.tensors[1].begin, 6);
  EXPECT_EQ(parsed.tensors[1].end, 14);
  EXPECT_EQ(parsed.metadata.at("format"), "pt");
  EXPECT_EQ(parsed.data_begin, 8 + static_cast<int64_t>(header.size()));
}

TEST(SafetensorsHeaderTest, ScalarsAndTensorsWithoutElementsAreLegal) {
  const std::string header = R"({"none":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]},)"
                             R"("empty":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                             R"("scalar":{"dtype":"I32","shape":[],"data_offsets":[0,4]}})";
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader parsed, Parse(File(header, 4)));
  ASSERT_EQ(parsed.tensors.size(), 3);
  EXPECT_EQ(parsed.tensors[0].spec.name, "empty");
  EXPECT_EQ(parsed.tensors[1].spec.name, "scalar");
  EXPECT_EQ(parsed.tensors[2].spec.name, "none");
}

TEST(SafetensorsHeaderTest, AFileOfNoTensorsIsLegal) {
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader parsed, Parse(File("{}", 0)));
  EXPECT_TRUE(parsed.tensors.empty());
}

struct BadHeader {
  const char* name;
  const char* header;
  size_t data_bytes;
  const char* message;
};

class BadHeaderTest : public testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaderTest, IsRefusedWithItsReason) {
  const BadHeader& bad = GetParam();
  EXPECT_THAT(Parse(File(bad.header, bad.data_bytes)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad.message)));
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadHeaderTest,
    testing::Values(
        BadHeader{"empty", "", 0, "begins with '{'"}, BadHeader{"array", "[]", 0, "begins with"},
        BadHeader{"space_before", " {}", 0, "begins with"},
        BadHeader{"truncated_json", R"({"a":)", 0, "strict JSON"},
        BadHeader{"text_behind", "{} x", 0, "strict JSON"},
        BadHeader{"duplicate",
                  R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                  R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                  1, "\"a\" is given twice"},
        BadHeader{"duplicate_field", R"({"a":{"dtype":"U8","dtype":"U8"}})", 0, "given twice"},
        BadHeader{"tensor_is_array", R"({"a":["U8",[1],[0,1]]})", 1,
                  "tensor \"a\": expected an object, found array"},
        BadHeader{"unknown_key",
                  R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}})", 1,
                  "unknown key \"strides\""},
        BadHeader{"no_offsets", R"({"a":{"dtype":"U8","shape":[1]}})", 1,
                  "\"data_offsets\" to be an array, found nothing"},
        BadHeader{"unknown_type", R"({"a":{"dtype":"F7","shape":[1],"data_offsets":[0,1]}})", 1,
                  "F7"},
        BadHeader{"negative_length", R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1,
                  "tensor \"a\""},
        BadHeader{"fraction", R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1,
                  "integer"},
        BadHeader{"overflow",
                  R"({"a":{"dtype":"U8","shape":[9223372036854775807,9223372036854775807],)"
                  R"("data_offsets":[0,1]}})",
                  1, "tensor \"a\""},
        BadHeader{"offset_too_large",
                  R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}})", 1,
                  "integer below 2^63"},
        BadHeader{"three_offsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1,
                  "[begin, end]"},
        BadHeader{"backwards", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1,
                  "[1,0]"},
        BadHeader{"size_lies", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
                  "tensor \"a\": expected data_offsets that span the 8 bytes of F32 [2], found 4"},
        BadHeader{"hole",
                  R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                  R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                  3, "tensor \"b\": expected its bytes to begin at 1"},
        BadHeader{"overlap",
                  R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                  R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                  3, "tensor \"b\": expected its bytes to begin at 2"},
        BadHeader{"does_not_begin_at_0", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                  2, "begin at 0"},
        BadHeader{"beyond_the_end", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3,
                  "within the 3 bytes of data in the file, found an end at 4"},
        BadHeader{"bytes_of_nobody", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5,
                  "expected 4 bytes, as many as the header's tensors have, found 5"},
        BadHeader{"null_metadata", R"({"__metadata__":null})", 0, "__metadata__: expected"},
        BadHeader{"number_in_metadata", R"({"__metadata__":{"step":7}})", 0,
                  "__metadata__ \"step\": expected a string, found number"},
        BadHeader{"lone_surrogate", R"({"\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                  0, "strict JSON"}),
    [](const testing::TestParamInfo<BadHeader>& test) { return test.param.name; });

TEST(SafetensorsHeaderTest, LengthsThatTheFileDoesNotHaveAreRefused) {
  EXPECT_THAT(Parse(""), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 0")));
  EXPECT_THAT(Parse("\x02"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 1")));
  std::string shorter = File("{}", 0);
  shorter[0] = 3;
  EXPECT_THAT(Parse(shorter), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("length of 3 bytes in the file, found 2")));
  std::string huge = File("{}", 0);
  huge[7] = '\xff';
  EXPECT_THAT(Parse(huge),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 100000000 bytes")));
}

TEST(SafetensorsHeaderTest, NoChangeOfItsBytesDoesHarm) {
  const std::string whole = File(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[3,1],"data_offsets":[0,6]},)"
      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[6,14]}})",
      14);
  std::mt19937 random(20261121);
  for (int i = 0; i < 5000; ++i) {
    std::string file = whole;
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
      file[random() % file.size()] = static_cast<char>(random());
    }
    file.resize(file.size() - random() % 3);
    const absl::StatusOr<SafetensorsHeader> parsed = Parse(file);
    if (!parsed.ok()) {
      EXPECT_THAT(parsed, StatusIs(absl::StatusCode::kInvalidArgument)) << "change " << i;
      continue;
    }
    for (const SafetensorsTensor& tensor : parsed->tensors) {
      EXPECT_LE(parsed->data_begin + tensor.end, static_cast<int64_t>(file.size()));
    }
  }
}

}  // namespace
}  // namespace crossmesh
