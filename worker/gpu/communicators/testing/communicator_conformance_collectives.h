// The collectives' part of communicator_conformance.h.

#pragma once

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "worker/gpu/communicators/testing/communicator_conformance_fixture.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
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

// Of each rank its number in the group, by the ranks of the group in their order.
inline absl::Status GatherInGroup(RankUnderTest& rank, const RankGroups& groups) {
  Communicator& communicator = rank.communicator();
  RETURN_IF_ERROR(communicator.Split(groups));
  RETURN_IF_ERROR(rank.Await());
  for (const std::vector<int>& group : groups) {
    if (std::ranges::count(group, communicator.rank()) == 0) continue;
    ASSIGN_OR_RETURN(const auto from, rank.Allocate(1));
    ASSIGN_OR_RETURN(const auto to, rank.Allocate(group.size()));
    from[0] = static_cast<std::byte>(communicator.rank() + 1);
    const std::vector<Collective> twice(2, {.kind = CollectiveKind::kAllGather,
                                            .from = AddressOf(from),
                                            .to = AddressOf(to),
                                            .count = 1});
    RETURN_IF_ERROR(communicator.PerformAllIn(groups, twice, rank.stream()));
    RETURN_IF_ERROR(rank.Await());
    for (size_t i = 0; i < group.size(); ++i) {
      if (to[i] == static_cast<std::byte>(group[i] + 1)) continue;
      return absl::InternalError(absl::StrCat("place ", i, ": expected the number of rank ",
                                              group[i], ", found ", static_cast<int>(to[i])));
    }
    return absl::OkStatus();
  }
  // Of no group.
  const absl::Status refused = communicator.PerformAllIn(groups, {}, rank.stream());
  return absl::IsFailedPrecondition(refused) ? absl::OkStatus()
                                             : absl::InternalError("a part of no group");
}

// Even ranks and odd ones, backwards, but for the last of all.
TEST_P(CommunicatorConformanceTest, AGroupGathersByItselfInItsOwnOrder) {
  RunAll([](RankUnderTest& rank) -> absl::Status {
    RankGroups groups(2);
    for (int member = rank.communicator().size() - 2; member >= 0; --member) {
      groups[member % 2].push_back(member);
    }
    return GatherInGroup(rank, groups);
  });
}

// More than are kept, so that those asked for longest ago end, and are split again.
TEST_P(CommunicatorConformanceTest, ManySplitsTakeTurns) {
  RunAll([](RankUnderTest& rank) -> absl::Status {
    const int size = rank.communicator().size();
    std::vector<RankGroups> splits;
    for (int first = 0; first < std::min(size, 3); ++first) {
      std::vector<int> turned;
      for (int i = 0; i < size; ++i) turned.push_back((first + i) % size);
      splits.push_back({turned});
      turned.pop_back();
      if (!turned.empty()) splits.push_back({turned});
    }
    splits.push_back(splits.front());
    for (size_t i = 0; i < splits.size(); ++i) {
      RETURN_IF_ERROR(At(absl::StrCat("split ", i), GatherInGroup(rank, splits[i])));
    }
    // Asked for again, what is kept is there at once.
    RETURN_IF_ERROR(rank.communicator().Split(splits.back()));
    ASSIGN_OR_RETURN(const Communicator::Progress progress, rank.communicator().Poll());
    RETURN_IF_ERROR(Expect(progress == Communicator::Progress::kIdle, "expected it to be kept"));
    const absl::Status gone = rank.communicator().PerformAllIn(splits[1], {}, rank.stream());
    return std::ssize(splits) - 1 <= Communicator::kSplitsKept
               ? absl::OkStatus()
               : ExpectCode(gone, absl::StatusCode::kFailedPrecondition);
  });
}

TEST_P(CommunicatorConformanceTest, GroupsOfRanksThatAreNoneAreRefused) {
  RunAll([](RankUnderTest& rank) -> absl::Status {
    Communicator& communicator = rank.communicator();
    RETURN_IF_ERROR(ExpectCode(communicator.Split({{communicator.size()}}),
                               absl::StatusCode::kInvalidArgument));
    RETURN_IF_ERROR(ExpectCode(communicator.Split({{0}, {0}}), absl::StatusCode::kInvalidArgument));
    return ExpectCode(communicator.PerformAllIn({{0}}, {}, rank.stream()),
                      absl::StatusCode::kFailedPrecondition);
  });
}

}  // namespace crossmesh
