// What every implementation of Communicator does. An implementation's test says
//
//   INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorConformanceTest,
//                            testing::Values(CommunicatorUnderTest{"FourRanks", 4, ...}),
//                            CommunicatorUnderTest::Name);

#pragma once

#include "common/base/status_macros.h"
#include "common/testing/status_matchers.h"
#include "worker/gpu/communicators/testing/communicator_conformance_collectives.h"
#include "worker/gpu/communicators/testing/communicator_conformance_fixture.h"
#include "worker/gpu/communicators/testing/communicator_under_test.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {

TEST_P(CommunicatorConformanceTest, RanksKnowTheirPlace) {
  const std::vector<std::string> places =
      GetParam().run(GetParam().size, [](RankUnderTest& rank) -> absl::Status {
        return absl::UnknownError(
            absl::StrCat(rank.communicator().rank(), " of ", rank.communicator().size()));
      });
  for (int place = 0; place < GetParam().size; ++place) {
    EXPECT_THAT(places[place], testing::HasSubstr(absl::StrCat(place, " of ", GetParam().size)));
  }
}

TEST_P(CommunicatorConformanceTest, EveryRankSendsToEveryRank) {
  RunAll([](RankUnderTest& rank) -> absl::Status {
    const int place = rank.communicator().rank();
    std::vector<RankMessage> sends;
    std::vector<RankMessage> receives;
    std::vector<std::span<const std::byte>> received;
    for (int peer = 0; peer < rank.communicator().size(); ++peer) {
      ASSIGN_OR_RETURN(const auto from, rank.Allocate(BytesBetween(place, peer)));
      ASSIGN_OR_RETURN(const auto to, rank.Allocate(BytesBetween(peer, place)));
      Fill(from, place, peer);
      sends.push_back({peer, AddressOf(from), static_cast<int64_t>(from.size())});
      receives.push_back({peer, AddressOf(to), static_cast<int64_t>(to.size())});
      received.push_back(to);
    }
    RETURN_IF_ERROR(rank.communicator().Exchange(sends, receives, rank.stream()));
    RETURN_IF_ERROR(rank.Await());
    for (int peer = 0; peer < rank.communicator().size(); ++peer) {
      RETURN_IF_ERROR(ExpectFilled(received[peer], peer, place));
    }
    return absl::OkStatus();
  });
}

TEST_P(CommunicatorConformanceTest, MessagesOfOnePairMatchInOrder) {
  RunAll([](RankUnderTest& rank) -> absl::Status {
    constexpr int kMessages = 7;
    constexpr int kBytes = 5000;
    const int size = rank.communicator().size();
    const int place = rank.communicator().rank();
    const int before = (place + size - 1) % size;
    ASSIGN_OR_RETURN(const auto from, rank.Allocate(kMessages * kBytes));
    ASSIGN_OR_RETURN(const auto to, rank.Allocate(kMessages * kBytes));
    std::vector<RankMessage> sends;
    std::vector<RankMessage> receives;
    for (int i = 0; i < kMessages; ++i) {
      Fill(from.subspan(i * kBytes, kBytes), place, i);
      // From the last place to the first one, so that the lists alone give the order.
      const int turned = kMessages - 1 - i;
      sends.push_back({(place + 1) % size, AddressOf(from) + i * kBytes, kBytes});
      receives.push_back({before, AddressOf(to) + turned * kBytes, kBytes});
    }
    RETURN_IF_ERROR(rank.communicator().Exchange(sends, receives, rank.stream()));
    RETURN_IF_ERROR(rank.Await());
    for (int i = 0; i < kMessages; ++i) {
      const int turned = kMessages - 1 - i;
      RETURN_IF_ERROR(ExpectFilled(to.subspan(turned * kBytes, kBytes), before, i));
    }
    return absl::OkStatus();
  });
}

// Rank 0 sends chunks down the chain of ranks, one step after the other; a rank that has nothing to
// do in a step makes no call.
TEST_P(CommunicatorConformanceTest, AChainForwardsWhatItReceived) {
  RunAll([](RankUnderTest& rank) -> absl::Status {
    constexpr int kChunks = 4;
    constexpr int kBytes = 70'000;
    const int size = rank.communicator().size();
    const int place = rank.communicator().rank();
    ASSIGN_OR_RETURN(const auto chunks, rank.Allocate(kChunks * kBytes));
    if (place == 0) Fill(chunks, 0, 0);
    for (int step = 0; step < kChunks + size - 2; ++step) {
      std::vector<RankMessage> sends;
      std::vector<RankMessage> receives;
      const int sent = step - place;
      const int received = sent + 1;
      if (place + 1 < size && sent >= 0 && sent < kChunks) {
        sends.push_back({place + 1, AddressOf(chunks) + sent * kBytes, kBytes});
      }
      if (place > 0 && received >= 0 && received < kChunks) {
        receives.push_back({place - 1, AddressOf(chunks) + received * kBytes, kBytes});
      }
      if (sends.empty() && receives.empty()) continue;
      RETURN_IF_ERROR(rank.communicator().Exchange(sends, receives, rank.stream()));
      RETURN_IF_ERROR(rank.Await());
    }
    return ExpectFilled(chunks, 0, 0);
  });
}

TEST_P(CommunicatorConformanceTest, AnExchangeOfNothingIsOne) {
  RunAll([](RankUnderTest& rank) -> absl::Status {
    RETURN_IF_ERROR(rank.communicator().Exchange({}, {}, rank.stream()));
    return rank.Await();
  });
}

TEST_P(CommunicatorConformanceTest, ACallBeforePollSaysIdleIsRefusedAndDoesNothing) {
  RunAll([](RankUnderTest& rank) -> absl::Status {
    const int place = rank.communicator().rank();
    ASSIGN_OR_RETURN(const auto memory, rank.Allocate(200));
    const auto from = memory.subspan(0, 100);
    const auto to = memory.subspan(100, 100);
    Fill(from, place, place);
    const RankMessage send = {place, AddressOf(from), 100};
    const RankMessage receive = {place, AddressOf(to), 100};
    const auto exchange = [&] {
      return rank.communicator().Exchange({&send, 1}, {&receive, 1}, rank.stream());
    };
    RETURN_IF_ERROR(exchange());
    RETURN_IF_ERROR(ExpectCode(exchange(), absl::StatusCode::kFailedPrecondition));
    RETURN_IF_ERROR(ExpectCode(
        rank.communicator().Perform({.from = AddressOf(from), .to = AddressOf(from), .count = 100},
                                    rank.stream()),
        absl::StatusCode::kFailedPrecondition));
    RETURN_IF_ERROR(rank.Await());
    RETURN_IF_ERROR(ExpectFilled(to, place, place));
    RETURN_IF_ERROR(exchange());
    return rank.Await();
  });
}

TEST_P(CommunicatorConformanceTest, WhatNoRankCouldDoIsRefusedAndHarmless) {
  RunAll([](RankUnderTest& rank) -> absl::Status {
    Communicator& communicator = rank.communicator();
    const int size = communicator.size();
    ASSIGN_OR_RETURN(const auto memory, rank.Allocate(100));
    const CUdeviceptr address = AddressOf(memory);
    for (const RankMessage& wrong : std::vector<RankMessage>{{-1, address, 100},
                                                             {size, address, 100},
                                                             {0, address, 0},
                                                             {0, address, -1},
                                                             {0, 0, 100}}) {
      const std::span<const RankMessage> wrongs(&wrong, 1);
      RETURN_IF_ERROR(ExpectCode(communicator.Exchange(wrongs, {}, rank.stream()),
                                 absl::StatusCode::kInvalidArgument));
      RETURN_IF_ERROR(ExpectCode(communicator.Exchange({}, wrongs, rank.stream()),
                                 absl::StatusCode::kInvalidArgument));
    }
    for (const Collective& wrong : std::vector<Collective>{
             {.from = address, .to = address, .count = 0},
             {.from = address, .to = 0, .count = 100},
             {.from = address, .to = address, .count = 100, .root = size},
             {.kind = CollectiveKind::kAllGather, .from = 0, .to = address, .count = 1},
             {.kind = CollectiveKind::kAllReduce,
              .from = address,
              .to = address,
              .count = 100,
              .type = DataType::kF8E4M3}}) {
      RETURN_IF_ERROR(ExpectCode(communicator.Perform(wrong, rank.stream()),
                                 absl::StatusCode::kInvalidArgument));
    }
    return Reduce(rank, {.kind = CollectiveKind::kAllReduce, .count = 10}, size * (size + 1));
  });
}

}  // namespace crossmesh
