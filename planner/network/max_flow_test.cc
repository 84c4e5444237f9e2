#include "planner/network/max_flow.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(MaxFlowTest, FindsFlowAndCut) {
  MaxFlow graph;
  const int32_t s = graph.AddNode(), a = graph.AddNode(), b = graph.AddNode(), t = graph.AddNode();
  const int64_t sa = graph.AddEdge(s, a, 3), sb = graph.AddEdge(s, b, 2);
  graph.AddEdge(a, b, MaxFlow::kUnlimited);
  const int64_t at = graph.AddEdge(a, t, 1), bt = graph.AddEdge(b, t, 3);
  EXPECT_EQ(graph.Run(s, t), 4);
  EXPECT_EQ(graph.flow(at), 1);
  EXPECT_EQ(graph.flow(bt), 3);
  EXPECT_EQ(graph.flow(sa) + graph.flow(sb), 4);
  EXPECT_TRUE(graph.OnSourceSide(a));
  EXPECT_TRUE(graph.OnSourceSide(b));
  EXPECT_FALSE(graph.OnSourceSide(t));
}

TEST(MaxFlowTest, PrefersEarlierEdges) {
  MaxFlow graph;
  const int32_t s = graph.AddNode(), a = graph.AddNode(), b = graph.AddNode(), t = graph.AddNode();
  const int64_t sb = graph.AddEdge(s, b, 5), sa = graph.AddEdge(s, a, 5);
  const int32_t m = graph.AddNode();
  graph.AddEdge(a, m, 5);
  graph.AddEdge(b, m, 5);
  graph.AddEdge(m, t, 6);
  EXPECT_EQ(graph.Run(s, t), 6);
  EXPECT_EQ(graph.flow(sb), 5);
  EXPECT_EQ(graph.flow(sa), 1);
}

TEST(MaxFlowTest, StartsFromNothingInEveryRun) {
  MaxFlow graph;
  const int32_t s = graph.AddNode(), t = graph.AddNode();
  const int64_t edge = graph.AddEdge(s, t, 7);
  EXPECT_EQ(graph.Run(s, t), 7);
  graph.SetCapacity(edge, 4);
  EXPECT_EQ(graph.Run(s, t), 4);
}

// Max flow = min cut, by all cuts of small random graphs.
TEST(MaxFlowTest, ValueIsThatOfTheLeastCut) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    constexpr int kNodes = 7;
    int64_t capacity[kNodes][kNodes] = {};
    MaxFlow graph;
    for (int i = 0; i < kNodes; ++i) graph.AddNode();
    for (int edge = 0; edge < 16; ++edge) {
      const int from = static_cast<int>(random() % kNodes),
                to = static_cast<int>(random() % kNodes);
      if (from == to) continue;
      const int64_t amount = static_cast<int64_t>(random() % 9);
      capacity[from][to] += amount;
      graph.AddEdge(from, to, amount);
    }
    const auto cut_value = [&](auto&& on_source_side) {
      int64_t value = 0;
      for (int i = 0; i < kNodes; ++i) {
        for (int j = 0; j < kNodes; ++j) {
          if (on_source_side(i) && !on_source_side(j)) value += capacity[i][j];
        }
      }
      return value;
    };
    int64_t least = INT64_MAX;
    for (int set = 0; set < 1 << kNodes; ++set) {
      if ((set & 1) == 0 || (set >> (kNodes - 1) & 1) == 1) continue;
      least = std::min(least, cut_value([&](int i) { return (set >> i & 1) == 1; }));
    }
    EXPECT_EQ(graph.Run(0, kNodes - 1), least);
    EXPECT_EQ(cut_value([&](int i) { return graph.OnSourceSide(i); }), least);
  }
}

}  // namespace
}  // namespace crossmesh
