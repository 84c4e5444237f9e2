// The collectives' part of communicator_conformance.h.

#pragma once

#include "common/base/status_macros.h"
#include "worker/gpu/communicators/testing/communicator_conformance_fixture.h"

#include <cstdint>
#include <vector>

#include <absl/status/status.h>
#include <gtest/gtest.h>

namespace crossmesh {

TEST_P(CommunicatorConformanceTest, EveryRankBroadcastsInTurn) {
  RunAll([](RankUnderTest& rank) -> absl::Status {
    constexpr int64_t kBytes = 200'001;
    ASSIGN_OR_RETURN(const auto memory, rank.Allocate(kBytes));
    for (int root = 0; root < rank.communicator().size(); ++root) {
      const bool is_root = rank.communicator().rank() == root;
      Fill(memory, is_root ? root : 99, 0);
      RETURN_IF_ERROR(rank.communicator().Perform({.kind = CollectiveKind::kBroadcast,
                                                   .from = is_root ? AddressOf(memory) : 0,
                                                   .to = AddressOf(memory),
                                                   .count = kBytes,
                                                   .root = root},
                                                  rank.stream()));
      RETURN_IF_ERROR(rank.Await());
      RETURN_IF_ERROR(ExpectFilled(memory, root, 0));
    }
    return absl::OkStatus();
  });
}

TEST_P(CommunicatorConformanceTest, SeveralBroadcastsFollowEachOther) {
  RunAll([](RankUnderTest& rank) -> absl::Status {
    constexpr int64_t kBytes = 70'001;
    const int size = rank.communicator().size();
    ASSIGN_OR_RETURN(const auto memory, rank.Allocate(kBytes * size));
    std::vector<Collective> broadcasts;
    for (int root = 0; root < size; ++root) {
      const auto place = memory.subspan(root * kBytes, kBytes);
      Fill(place, rank.communicator().rank() == root ? root : 99, 0);
      broadcasts.push_back(
          {.from = AddressOf(place), .to = AddressOf(place), .count = kBytes, .root = root});
    }
    RETURN_IF_ERROR(rank.communicator().PerformAll(broadcasts, rank.stream()));
    RETURN_IF_ERROR(rank.Await());
    for (int root = 0; root < size; ++root) {
      RETURN_IF_ERROR(ExpectFilled(memory.subspan(root * kBytes, kBytes), root, 0));
    }
    return absl::OkStatus();
  });
}

TEST_P(CommunicatorConformanceTest, AllGatherGivesAllToAllInTheOrderOfRanks) {
  RunAll([](RankUnderTest& rank) -> absl::Status {
    constexpr int64_t kCount = 30'001;  // elements of two bytes, of any meaning
    constexpr int64_t kBytes = kCount * 2;
    const int size = rank.communicator().size();
    ASSIGN_OR_RETURN(const auto from, rank.Allocate(kBytes));
    ASSIGN_OR_RETURN(const auto to, rank.Allocate(kBytes * size));
    Fill(from, rank.communicator().rank(), 0);
    RETURN_IF_ERROR(rank.communicator().Perform({.kind = CollectiveKind::kAllGather,
                                                 .from = AddressOf(from),
                                                 .to = AddressOf(to),
                                                 .count = kCount,
                                                 .type = DataType::kI16},
                                                rank.stream()));
    RETURN_IF_ERROR(rank.Await());
    for (int peer = 0; peer < size; ++peer) {
      RETURN_IF_ERROR(ExpectFilled(to.subspan(peer * kBytes, kBytes), peer, 0));
    }
    return absl::OkStatus();
  });
}

TEST_P(CommunicatorConformanceTest, SumsOfAllTypesThatAreReduced) {
  RunAll([](RankUnderTest& rank) -> absl::Status {
    const int size = rank.communicator().size();
    for (const DataType type :
         {DataType::kU8, DataType::kI8, DataType::kF16, DataType::kBF16, DataType::kI32,
          DataType::kU32, DataType::kF32, DataType::kI64, DataType::kU64, DataType::kF64}) {
      RETURN_IF_ERROR(Reduce(rank,
                             {.kind = CollectiveKind::kAllReduce, .count = 1001, .type = type},
                             size * (size + 1)));
    }
    return absl::OkStatus();
  });
}

TEST_P(CommunicatorConformanceTest, AllReductionsByAllCollectives) {
  RunAll([](RankUnderTest& rank) -> absl::Status {
    const int size = rank.communicator().size();
    double product = 1;
    for (int place = 0; place < size; ++place) product *= (place + 1) * 2;
    for (const CollectiveKind kind :
         {CollectiveKind::kReduce, CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter}) {
      const auto reduce = [&](CollectiveReduction reduction, double expected) {
        return Reduce(rank,
                      {.kind = kind,
                       .count = 5000,
                       .type = DataType::kF32,
                       .root = size - 1,
                       .reduction = reduction},
                      expected);
      };
      RETURN_IF_ERROR(reduce(CollectiveReduction::kSum, size * (size + 1)));
      RETURN_IF_ERROR(reduce(CollectiveReduction::kProduct, product));
      RETURN_IF_ERROR(reduce(CollectiveReduction::kMinimum, 2));
      RETURN_IF_ERROR(reduce(CollectiveReduction::kMaximum, 2 * size));
      RETURN_IF_ERROR(reduce(CollectiveReduction::kAverage, size + 1));
    }
    return absl::OkStatus();
  });
}

}  // namespace crossmesh
