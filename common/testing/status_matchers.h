// GoogleMock matchers and assertions for absl::Status and absl::StatusOr:
//
//   EXPECT_OK(registry.Remove(id));
//   ASSERT_OK_AND_ASSIGN(const Mesh mesh, Mesh::Create(spec));
//   EXPECT_THAT(ParseRank("7"), IsOkAndHolds(DeviceRank(7)));
//   EXPECT_THAT(ParseRank("x"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'x'")));

#pragma once

#include <ostream>
#include <string>
#include <type_traits>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace internal {

inline const absl::Status& GetStatus(const absl::Status& status) { return status; }

template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& result) {
  return result.status();
}

// Matches the value of a StatusOr; prints the status otherwise, which GoogleTest itself would show
// as bytes.
template <typename Inner>
class IsOkAndHoldsMatcher {
 public:
  explicit IsOkAndHoldsMatcher(Inner inner) : inner_(std::move(inner)) {}

  template <typename StatusOrType>
  operator ::testing::Matcher<StatusOrType>() const {  // NOLINT(google-explicit-constructor)
    return ::testing::Matcher<StatusOrType>(new Typed<StatusOrType>(inner_));
  }

 private:
  template <typename StatusOrType>
  class Typed : public ::testing::MatcherInterface<StatusOrType> {
   public:
    using Value = typename std::remove_cvref_t<StatusOrType>::value_type;

    explicit Typed(const Inner& inner) : inner_(::testing::SafeMatcherCast<const Value&>(inner)) {}

    void DescribeTo(std::ostream* out) const override {
      *out << "is OK and holds a value that ";
      inner_.DescribeTo(out);
    }

    bool MatchAndExplain(StatusOrType result,
                         ::testing::MatchResultListener* listener) const override {
      if (!result.ok()) {
        *listener << "which is " << result.status().ToString();
        return false;
      }
      *listener << "which holds " << ::testing::PrintToString(*result) << " ";
      return inner_.MatchAndExplain(*result, listener);
    }

   private:
    const ::testing::Matcher<const Value&> inner_;
  };

  const Inner inner_;
};

}  // namespace internal

MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  *result_listener << "which is " << internal::GetStatus(arg).ToString();
  return arg.ok();
}

MATCHER_P(StatusIs, code,
          std::string(negation ? "does not have" : "has") + " the code " +
              absl::StatusCodeToString(code)) {
  *result_listener << "which is " << internal::GetStatus(arg).ToString();
  return internal::GetStatus(arg).code() == code;
}

// `message` is a string or a matcher of std::string, e.g. HasSubstr("rank 7").
MATCHER_P2(StatusIs, code, message,
           std::string(negation ? "does not have" : "has") + " the code " +
               absl::StatusCodeToString(code) + " and a message that " +
               ::testing::DescribeMatcher<std::string>(message)) {
  *result_listener << "which is " << internal::GetStatus(arg).ToString();
  return internal::GetStatus(arg).code() == code &&
         ::testing::ExplainMatchResult(::testing::Matcher<std::string>(message),
                                       std::string(internal::GetStatus(arg).message()),
                                       result_listener);
}

template <typename Inner>
internal::IsOkAndHoldsMatcher<std::decay_t<Inner>> IsOkAndHolds(Inner&& inner) {
  return internal::IsOkAndHoldsMatcher<std::decay_t<Inner>>(std::forward<Inner>(inner));
}

}  // namespace crossmesh

#define EXPECT_OK(expression) EXPECT_THAT((expression), ::crossmesh::IsOk())
#define ASSERT_OK(expression) ASSERT_THAT((expression), ::crossmesh::IsOk())

// Declares or assigns `lhs` from a StatusOr, or fails the test. Not for an `lhs` with a comma
// outside parentheses.
#define ASSERT_OK_AND_ASSIGN(lhs, expression) \
  CROSSMESH_ASSERT_OK_AND_ASSIGN_(CROSSMESH_TEST_NAME_(__LINE__), lhs, expression)
#define CROSSMESH_ASSERT_OK_AND_ASSIGN_(result, lhs, expression) \
  auto result = (expression);                                    \
  ASSERT_THAT(result, ::crossmesh::IsOk());                      \
  lhs = *std::move(result)
#define CROSSMESH_TEST_NAME_(line) CROSSMESH_TEST_NAME_JOINED_(line)
#define CROSSMESH_TEST_NAME_JOINED_(line) test_result_##line
