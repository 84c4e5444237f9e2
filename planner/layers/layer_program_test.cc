#include "planner/layers/layer_program.h"

#include "common/mesh/layout.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// Two products on four devices: the first one's output is summed over c, the second one's rows
// move from one cut to another.
LayerProgram TwoProducts() {
  LayerProgram program;
  program.ranks.push_back({.mesh = std::make_shared<const Mesh>(*ParseMesh("r=2,c=2 on a.0-3"))});
  program.ops = {{.name = "first", .seconds = 1e-3},
                 {.name = "second", .seconds = 2e-3},
                 {.name = "third", .seconds = 1e-3}};
  const TensorSpec tensor{
      .name = "out", .type = DataType::kF32, .shape = *Shape::Create(std::vector<int64_t>{4, 8})};
  program.transfers.push_back({.name = "sum",
                               .tensors = {{.tensor = tensor,
                                            .source = *ParseLayout("[-, r]"),
                                            .destination = *ParseLayout("[-, r]")}},
                               .partial = {"c"},
                               .messages = {{0, 1}}});
  program.transfers.push_back({.name = "rows",
                               .tensors = {{.tensor = tensor,
                                            .source = *ParseLayout("[-, r]"),
                                            .destination = *ParseLayout("[r, -]")}},
                               .messages = {{1, 2}}});
  return program;
}

// An op of another rank.
void AddElsewhere(LayerProgram& program) {
  program.ranks.push_back(program.ranks.front());
  program.ops.push_back({.name = "elsewhere", .rank = 1});
}

TEST(LayerProgramTest, SumsAndMovesAreValid) {
  EXPECT_EQ(Validate(TwoProducts()), absl::OkStatus());
}

TEST(LayerProgramTest, WhatIsUnsoundIsNamed) {
  struct Case {
    std::string expected;
    std::function<void(LayerProgram&)> spoil;
  };
  const std::vector<Case> cases = {
      {"found 0 and 3", [](LayerProgram& p) { p.ranks.clear(); }},
      {"op second: expected a rank below 1, found 1", [](LayerProgram& p) { p.ops[1].rank = 1; }},
      {"found \"first\" twice", [](LayerProgram& p) { p.ops[2].name = "first"; }},
      {"op third: expected a time of 0 s or more, found -1",
       [](LayerProgram& p) { p.ops[2].seconds = -1; }},
      {"found \"rows\" twice", [](LayerProgram& p) { p.transfers[0].name = "rows"; }},
      {"transfer sum: expected tensors, messages and buffers, found 1, 1 and 0",
       [](LayerProgram& p) { p.transfers[0].buffers = 0; }},
      {"message 0 of transfer rows: expected ops below 3, found 3",
       [](LayerProgram& p) { p.transfers[1].messages[0].consumer = 3; }},
      {"message 1 of transfer rows: expected it between the ranks of the first one",
       [](LayerProgram& p) { p.transfers[1].messages.push_back({0, 2}); }},
      {"in the order of the ops, found second > third",
       [](LayerProgram& p) { p.transfers[1].messages.push_back({1, 2}); }},
      {"in the order of the ops, found second > third",
       [](LayerProgram& p) { p.transfers[1].messages = {{0, 2}, {1, 2}}; }},
      {"in the order of the ops, found first > third",
       [](LayerProgram& p) { p.transfers[1].messages = {{0, 1}, {0, 2}}; }},
      {"between the ranks of the first one",
       [](LayerProgram& p) {
         AddElsewhere(p);
         p.transfers[1].messages = {{0, 1}, {3, 2}};
       }},
      {"between the ranks of the first one",
       [](LayerProgram& p) {
         AddElsewhere(p);
         p.transfers[1].messages = {{0, 1}, {1, 3}};
       }},
      {"transfer sum, tensor out",
       [](LayerProgram& p) { p.transfers[0].tensors[0].source = *ParseLayout("[-, unknown]"); }},
      {"found x", [](LayerProgram& p) { p.transfers[0].partial = {"x"}; }},
      {"expected a source that axis r does not cut",
       [](LayerProgram& p) { p.transfers[0].partial = {"r"}; }},
      {"BOOL", [](LayerProgram& p) { p.transfers[0].tensors[0].tensor.type = DataType::kBool; }},
      {"op first waits for itself, as 3 ops do",
       [](LayerProgram& p) { p.transfers[1].messages[0] = {2, 0}; }},
  };
  for (const Case& test : cases) {
    LayerProgram program = TwoProducts();
    test.spoil(program);
    const absl::Status found = Validate(program);
    EXPECT_EQ(found.code(), absl::StatusCode::kInvalidArgument) << test.expected;
    EXPECT_THAT(std::string(found.message()), HasSubstr(test.expected));
  }
}

TEST(LayerProgramTest, AnOpThatWaitsForMemoryOfALaterOneIsRefused) {
  LayerProgram program = TwoProducts();
  // Both messages are given before the first one is needed.
  program.transfers[1].messages = {{0, 2}, {1, 3}};
  program.ops.push_back({.name = "fourth"});
  EXPECT_THAT(std::string(Validate(program).message()), HasSubstr("op second waits for itself"));
  program.transfers[1].buffers = 2;
  EXPECT_EQ(Validate(program), absl::OkStatus());
}

}  // namespace
}  // namespace crossmesh
