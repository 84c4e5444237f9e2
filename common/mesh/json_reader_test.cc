#include "common/mesh/json_reader.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(JsonReaderTest, ParsesAllKindsOfValues) {
  ASSERT_OK_AND_ASSIGN(const nlohmann::json document,
                       ParseJson("file", R"({"a": [1, -2, 1.5, true, null, "s", {}], "b": []})"));
  EXPECT_EQ(document,
            nlohmann::json::parse(R"({"a": [1, -2, 1.5, true, null, "s", {}], "b": []})"));
  EXPECT_OK(ParseJson("file", "3"));
}

TEST(JsonReaderTest, RefusesBadText) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "malformed at byte"},
      {"{", "malformed at byte"},
      {"{} x", "malformed at byte"},
      {"[1,]", "malformed at byte"},
      {"nul", "malformed at byte"},
      {"\"\xff\"", "malformed at byte"},
      {"\"\\ud800\"", "malformed at byte"},
      {"1e999", "malformed at byte"},
      {std::string("[\0]", 3), "malformed at byte 2, a zero byte"},
      {std::string("{}\0", 3), "malformed at byte 3, a zero byte"},
      {std::string("{}\0garbage", 10), "malformed at byte 3, a zero byte"},
      {"{\"a\": 1, \"a\": 1}", "key \"a\" is given twice in one object"},
      {"[{\"b\": {\"a\": 1, \"a\": 2}}]", "key \"a\" is given twice in one object"},
      {std::string(33, '[') + std::string(33, ']'), "nested deeper than 32"},
      {std::string(1'000'000, '['), "nested deeper than 32"}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseJson("file", text), IsRefused(message)) << text.substr(0, 80);
  }
  EXPECT_OK(ParseJson("file", std::string(32, '[') + std::string(32, ']')));
  EXPECT_OK(ParseJson("file", "[{\"a\": 1}, {\"a\": 1}]"));
}

TEST(JsonReaderTest, IntegersMustFit) {
  constexpr std::array<absl::string_view, 1> keys = {"n"};
  const std::vector<std::pair<std::string, bool>> cases = {{"9223372036854775807", true},
                                                           {"-9223372036854775808", true},
                                                           {"9223372036854775808", false},
                                                           {"-9223372036854775809", false},
                                                           {"1.0", false},
                                                           {"\"1\"", false},
                                                           {"true", false},
                                                           {"null", false}};
  for (const auto& [number, fits] : cases) {
    ASSERT_OK_AND_ASSIGN(const nlohmann::json document,
                         ParseJson("file", "{\"n\":" + number + "}"));
    ASSERT_OK_AND_ASSIGN(const JsonFields fields, JsonFields::Of(document, "file", keys));
    EXPECT_EQ(fields.Integer("n").ok(), fits) << number;
  }
}

}  // namespace
}  // namespace crossmesh
