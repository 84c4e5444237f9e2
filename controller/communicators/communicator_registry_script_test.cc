// Scripts (common/testing/scripts.h) of events, each followed by the actions that it must give.
// "> Registry 100 10" begins a registry with 100 bytes for each GPU, 10 of them expected of a
// communicator. "a#1:3=20" after the key of PreflightsCollected: rank a#1 holds 20 bytes in the
// communicator that ticket 3 made.

#include "common/communicators/gpu_share.h"
#include "common/testing/scripts.h"
#include "controller/communicators/communicator_registry.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

template <typename Number>
Number NumberOf(absl::string_view text) {
  Number number = 0;
  EXPECT_TRUE(absl::SimpleAtoi(text, &number)) << text;
  return number;
}

RankName RankOf(absl::string_view text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, '#');
  return {parts.first, NumberOf<uint64_t>(parts.second)};
}

// "relay@4[a#1,b#1]"
CommunicatorKey KeyOf(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::ByAnyChar("@[]"));
  CommunicatorKey key = {.purpose = parts[0], .epoch = NumberOf<uint64_t>(parts[1])};
  for (absl::string_view rank : absl::StrSplit(parts[2], ',')) key.ranks.push_back(RankOf(rank));
  return key;
}

// The words from `first` on, as a message.
absl::Status StatusOf(const std::vector<std::string>& words, int first) {
  return absl::UnavailableError(absl::StrJoin(words.begin() + first, words.end(), " "));
}

// Of the words of an event.
PreflightsCollected PreflightsOf(const std::vector<std::string>& words, int version_of_last) {
  PreflightsCollected collected = {.key = KeyOf(words[1])};
  for (const RankName& rank : collected.key.ranks) {
    PreflightReport& report = collected.reports.emplace_back(
        PreflightReport{.rank = rank, .nccl_version = 23007, .free_bytes = 1000});
    if (IsGpuShare(rank.gpu)) report.environment["NCCL_MULTI_RANK_GPU_ENABLE"] = "1";
  }
  collected.reports.back().nccl_version = version_of_last;
  for (size_t word = 2; word < words.size(); ++word) {
    const std::vector<std::string> held = absl::StrSplit(words[word], absl::ByAnyChar(":="));
    const auto report =
        std::ranges::find(collected.reports, RankOf(held[0]), &PreflightReport::rank);
    report->communicators[NumberOf<uint64_t>(held[1])] = NumberOf<int64_t>(held[2]);
  }
  return collected;
}

CommunicatorEvent EventOf(absl::string_view line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  const std::string& kind = words[0];
  if (kind == "CommunicatorWanted") return CommunicatorWanted{words[1], KeyOf(words[2])};
  if (kind == "CommunicatorReleased") return CommunicatorReleased{words[1], KeyOf(words[2])};
  if (kind == "PreflightsCollected") return PreflightsOf(words, 23007);
  if (kind == "PreflightsThatDiffer") return PreflightsOf(words, 22907);
  if (kind == "IdMinted") return IdMinted{KeyOf(words[1]), "id"};
  if (kind == "RankReady") {
    return RankReady{KeyOf(words[1]), RankOf(words[2]), NumberOf<int64_t>(words[3])};
  }
  if (kind == "RankFailed") {
    return RankFailed{KeyOf(words[1]), RankOf(words[2]), StatusOf(words, 3)};
  }
  if (kind == "RankGone") return RankGone{KeyOf(words[1]), RankOf(words[2])};
  if (kind != "ProcessLost") ADD_FAILURE() << "unknown event: " << line;
  return ProcessLost{RankOf(words[1]), StatusOf(words, 2)};
}

// "GrantLease op1 relay@4[a#1,b#1]"
struct ActionText {
  std::string operator()(const CollectPreflights& a) const {
    return absl::StrCat("CollectPreflights ", a.key.ToString());
  }
  std::string operator()(const MintId& a) const {
    return absl::StrCat("MintId ", a.key.ToString());
  }
  std::string operator()(const CreateCommunicator& a) const {
    return absl::StrCat("CreateCommunicator ", a.key.ToString(), " ticket ", a.ticket);
  }
  std::string operator()(const DestroyCommunicator& a) const {
    return absl::StrCat("DestroyCommunicator ", a.key.ToString(), " ticket ", a.ticket);
  }
  std::string operator()(const StopCommunicator& a) const {
    return absl::StrCat("StopCommunicator ", a.key.ToString(), " at ",
                        absl::StrJoin(a.ranks, ",",
                                      [](std::string* out, const RankName& rank) {
                                        absl::StrAppend(out, rank.ToString());
                                      }),
                        ": ", a.cause.message());
  }
  std::string operator()(const GrantLease& a) const {
    return absl::StrCat("GrantLease ", a.user, " ", a.key.ToString());
  }
  std::string operator()(const EndLease& a) const {
    return absl::StrCat("EndLease ", a.user, " ", a.key.ToString(), ": ",
                        absl::StatusCodeToString(a.cause.code()), " ", a.cause.message());
  }
};

std::string Play(const std::string& script) {
  CommunicatorRegistry registry({});
  return PlayScript(script, [&registry](absl::string_view event) {
    std::string played;
    if (absl::ConsumePrefix(&event, "Registry ")) {
      const std::pair<std::string, std::string> bytes = absl::StrSplit(event, ' ');
      registry = CommunicatorRegistry({.gpu_bytes_max = NumberOf<int64_t>(bytes.first),
                                       .expected_bytes = NumberOf<int64_t>(bytes.second)});
      return played;
    }
    for (const CommunicatorAction& action : registry.Handle(EventOf(event))) {
      absl::StrAppend(&played, "    ", std::visit(ActionText(), action), "\n");
    }
    return played;
  });
}

TEST(CommunicatorRegistryScripts, EveryScriptPlaysAsItIsWritten) {
  EXPECT_GE(ExpectScriptsPlayAsWritten("controller/communicators/testdata", Play), 8);
}

}  // namespace
}  // namespace crossmesh
