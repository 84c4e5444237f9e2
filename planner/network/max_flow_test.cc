#include "planner/network/max_flow.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
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
  const int32_t s = graph.AddNode(), a = graph.AddNode(), b = graph.AddNode(), t = graph.AddNode();
  const int64_t sa = graph.AddEdge(s, a, 5), ab = graph.AddEdge(a, b, 5),
                bt = graph.AddEdge(b, t, 5), sb = graph.AddEdge(s, b, 0),
                at = graph.AddEdge(a, t, 0);
  EXPECT_EQ(graph.Run(s, t), 5);
  EXPECT_EQ(graph.flow(ab), 5);
  // Only back along a > b is a way to t: open only for what goes along it in the same run.
  graph.SetCapacity(sa, 0);
  graph.SetCapacity(bt, 0);
  graph.SetCapacity(sb, 5);
  graph.SetCapacity(at, 5);
  EXPECT_EQ(graph.Run(s, t), 0);
  EXPECT_EQ(graph.flow(ab), 0);
}

constexpr int kNodes = 7;

// A graph of some edges between kNodes nodes, whose capacities are drawn again and again.
class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed) {
    for (int i = 0; i < kNodes; ++i) graph_.AddNode();
    while (std::ssize(edges_) < 16) {
      const auto from = static_cast<int32_t>(random_() % kNodes);
      const auto to = static_cast<int32_t>(random_() % kNodes);
      if (from == to) continue;
      graph_.AddEdge(from, to, 0);
      edges_.push_back({.from = from, .to = to});
    }
  }

  void DrawCapacities() {
    for (size_t e = 0; e < edges_.size(); ++e) {
      edges_[e].capacity = static_cast<int64_t>(random_() % 9);
      graph_.SetCapacity(static_cast<int64_t>(e), edges_[e].capacity);
    }
  }

  // What may leave the nodes for which `on_source_side` holds.
  template <typename OnSourceSide>
  int64_t CutValue(OnSourceSide on_source_side) const {
    int64_t value = 0;
    for (const Edge& edge : edges_) {
      if (on_source_side(edge.from) && !on_source_side(edge.to)) value += edge.capacity;
    }
    return value;
  }

  // By all cuts that have the first node on the source's side, the last one on the other.
  int64_t LeastCut() const {
    int64_t least = INT64_MAX;
    for (int set = 1; set < 1 << (kNodes - 1); set += 2) {
      least = std::min(least, CutValue([set](int node) { return (set >> node & 1) == 1; }));
    }
    return least;
  }

  MaxFlow& graph() { return graph_; }

 private:
  struct Edge {
    int32_t from = 0;
    int32_t to = 0;
    int64_t capacity = 0;
  };

  std::mt19937_64 random_;
  MaxFlow graph_;
  std::vector<Edge> edges_;
};

// Max flow = min cut, in each of several runs of one graph.
TEST(MaxFlowTest, ValueIsThatOfTheLeastCut) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomGraph random(seed);
    for (int run = 0; run < 4; ++run) {
      random.DrawCapacities();
      MaxFlow& graph = random.graph();
      const int64_t least = random.LeastCut();
      ASSERT_EQ(graph.Run(0, kNodes - 1), least) << "run " << run;
      ASSERT_EQ(random.CutValue([&](int node) { return graph.OnSourceSide(node); }), least);
    }
  }
}

}  // namespace
}  // namespace crossmesh
