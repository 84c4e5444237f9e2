// The fixture of communicator_conformance.h.

#pragma once

#include "common/base/status_macros.h"
#include "worker/gpu/communicators/testing/communicator_under_test.h"
#include "worker/gpu/communicators/testing/host_elements.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {

class CommunicatorConformanceTest : public testing::TestWithParam<CommunicatorUnderTest> {
 protected:
  using Body = absl::FunctionRef<absl::Status(RankUnderTest&)>;

  void SetUp() override {
    if (const std::string lack = GetParam().lack(); !lack.empty()) GTEST_SKIP() << lack;
  }

  // The body may run in another process, so it tells what is wrong by its status.
  static void RunAll(Body body) {
    EXPECT_THAT(GetParam().run(GetParam().size, body), testing::Each(testing::IsEmpty()));
  }

  static absl::Status Expect(bool condition, absl::string_view what) {
    return condition ? absl::OkStatus() : absl::InternalError(what);
  }
  static absl::Status ExpectCode(const absl::Status& status, absl::StatusCode code) {
    return Expect(status.code() == code, absl::StrCat("expected ", absl::StatusCodeToString(code),
                                                      ", found ", status.ToString()));
  }

  // Bytes that tell their sender, receiver and place.
  static std::byte ByteOf(int from, int to, size_t i) {
    return static_cast<std::byte>(from * 31 + to * 17 + i * 7 + i / 251);
  }
  static void Fill(std::span<std::byte> memory, int from, int to) {
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = ByteOf(from, to, i);
  }
  static absl::Status ExpectFilled(std::span<const std::byte> memory, int from, int to) {
    for (size_t i = 0; i < memory.size(); ++i) {
      RETURN_IF_ERROR(Expect(memory[i] == ByteOf(from, to, i),
                             absl::StrCat("from ", from, " to ", to, ", byte ", i, " of ",
                                          memory.size(), " differs")));
    }
    return absl::OkStatus();
  }
  static size_t BytesBetween(int from, int to) {
    return from == to ? 1 : 100'003 * (from + 1) + to;
  }

  // Performs a reduction to which rank r gives elements (r + 1) * 2; those that it gives to this
  // rank must be `expected`.
  static absl::Status Reduce(RankUnderTest& rank, Collective collective, double expected);
};

inline absl::Status CommunicatorConformanceTest::Reduce(RankUnderTest& rank, Collective collective,
                                                        double expected) {
  const int place = rank.communicator().rank();
  const int64_t given = collective.kind == CollectiveKind::kReduceScatter
                            ? collective.count * rank.communicator().size()
                            : collective.count;
  const int64_t item_bytes = ItemBytes(collective.type);
  ASSIGN_OR_RETURN(const auto from, rank.Allocate(given * item_bytes));
  ASSIGN_OR_RETURN(const auto to, rank.Allocate(collective.count * item_bytes));
  for (int64_t i = 0; i < given; ++i) {
    WriteElement(collective.type, from.data(), i, (place + 1) * 2);
  }
  const bool gets = collective.kind != CollectiveKind::kReduce || place == collective.root;
  collective.from = AddressOf(from);
  collective.to = gets ? AddressOf(to) : 0;
  RETURN_IF_ERROR(rank.communicator().Perform(collective, rank.stream()));
  RETURN_IF_ERROR(rank.Await());
  for (int64_t i = 0; i < collective.count; ++i) {
    const double found = ReadElement(collective.type, to.data(), i);
    RETURN_IF_ERROR(Expect(
        found == (gets ? expected : 0),
        absl::StrCat(CollectiveKindName(collective.kind), " of ", DataTypeName(collective.type),
                     " gives ", found, ", expected ", expected)));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
