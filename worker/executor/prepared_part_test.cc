#include "worker/executor/prepared_part.h"

#include "common/base/check.h"
#include "common/plan/plan.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// A tensor of so many bytes from a.0 by b.0 to b.1: the part of the worker of b.
std::shared_ptr<const WorkerPart> PartOf(int64_t bytes) {
  auto tensors =
      std::make_shared<const TensorTable>(TableOf({{.shape = absl::StrCat("[", bytes / 4, "]"),
                                                    .source_mesh = "x=1 on a.0",
                                                    .source = "[-]",
                                                    .destination_mesh = "x=2 on b.0-1",
                                                    .destination = "[-]"}}));
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  auto plan = Plan::Create({.tensors = tensors,
                            .slicing = std::make_shared<const Slicing>(*std::move(slicing)),
                            .relays = {{.slice_class = 0,
                                        .root = 0,
                                        .begin = 0,
                                        .end = bytes,
                                        .first_hop = 0,
                                        .hop_count = 2}},
                            .hops = {{.from = 0, .to = 1}, {.from = 1, .to = 2}},
                            .chunk_bytes = Plan::kLeafBytes});
  CHECK_OK(plan);
  auto parts = CutParts(*plan, {{{"a", 0}}, {{"b", 0}, {"b", 1}}});
  CHECK_OK(parts);
  return std::make_shared<const WorkerPart>(std::move((*parts)[1]));
}

TEST(PreparedPartTest, TheBytesOfAPartAreKnownBeforeTheyAreSpent) {
  const auto part = PartOf(int64_t{1} << 30);
  ASSERT_OK_AND_ASSIGN(const auto prepared, PreparedPart::Create(part));
  EXPECT_EQ(prepared->chunks(), 2 * (1 << 14));
  const int64_t spent = prepared->chunks() / 2 * 16 + prepared->leaves() * 8;
  EXPECT_GT(PreparedPart::BytesFor(*part), spent);
  EXPECT_LT(PreparedPart::BytesFor(*part), 4 * spent);
  // Without preparing it.
  EXPECT_GT(PreparedPart::BytesFor(*PartOf(int64_t{1} << 42)), int64_t{1} << 31);
}

}  // namespace
}  // namespace crossmesh
