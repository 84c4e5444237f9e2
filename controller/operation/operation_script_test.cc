// Scripts (common/testing/scripts.h) of events, each followed by the actions, the state and the
// error that it must give, and at the end by what has become of each replica.

#include "common/testing/scripts.h"
#include "controller/operation/operation_machine.h"

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

DeviceRank Rank(absl::string_view text) {
  DeviceRank rank = 0;
  EXPECT_TRUE(absl::SimpleAtoi(text, &rank)) << text;
  return rank;
}

// "w0{3:0 4:1}" with the spaces of the braces as commas: "w0{3:0,4:1}".
WorkerShare ShareOf(absl::string_view text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('{', 1));
  WorkerShare share{.worker = parts.first};
  for (absl::string_view entry :
       absl::StrSplit(absl::StripSuffix(parts.second, "}"), ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(entry, ':');
    share.replica_of_device[Rank(pair.first)] = Rank(pair.second);
  }
  return share;
}

ReplicaState ReplicaStateOf(absl::string_view text) {
  if (text == "RECEIVING") return ReplicaState::kReceiving;
  return text == "COMMITTED" ? ReplicaState::kCommitted : ReplicaState::kFailed;
}

// "attempt 2 replicas COMMITTED,RECEIVING w0{} w1{1:1} earlier w0,w1"
LeftOperation LeftOf(absl::string_view line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  LeftOperation left{.attempt = static_cast<uint32_t>(Rank(words[1]))};
  for (absl::string_view state : absl::StrSplit(words[3], ',')) {
    left.replicas.push_back({.state = ReplicaStateOf(state)});
  }
  for (size_t i = 4; i < words.size(); ++i) {
    if (words[i] != "earlier") {
      left.shares.push_back(ShareOf(words[i]));
      continue;
    }
    for (absl::string_view worker : absl::StrSplit(words[++i], ',')) {
      left.earlier_tasks.emplace_back(worker, 1);
    }
  }
  return left;
}

OperationEvent EventOf(absl::string_view line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  const std::string& kind = words[0];
  if (kind == "Planned") {
    Planned planned;
    for (size_t i = 1; i < words.size(); ++i) planned.shares.push_back(ShareOf(words[i]));
    return planned;
  }
  if (kind == "PlanFailed") return PlanFailed{StatusOf(words, 1)};
  if (kind == "IntentCommitted") return IntentCommitted{};
  if (kind == "IntentFailed") return IntentFailed{StatusOf(words, 1)};
  if (kind == "TaskAccepted") return TaskAccepted{words[1]};
  if (kind == "DeviceDone") return DeviceDone{words[1], Rank(words[2]), StatusOf(words, 3)};
  if (kind == "TaskEnded") return TaskEnded{words[1], StatusOf(words, 2), {}};
  if (kind == "TaskRefusedAsReceiver") return TaskEnded{words[1], StatusOf(words, 2), {}, true};
  if (kind == "TaskBlames") {
    return TaskEnded{words[1], absl::OkStatus(), {words.begin() + 2, words.end()}};
  }
  if (kind == "WorkerLost") return WorkerLost{words[1], StatusOf(words, 2)};
  if (kind == "Hopeless") return Hopeless{{Rank(words[1])}, StatusOf(words, 2)};
  if (kind == "WordAwaited") return WordAwaited{};
  if (kind == "CancelRequested") return CancelRequested{words[1]};
  if (kind == "DeadlinePassed") return DeadlinePassed{};
  if (kind == "DevicesResolved") {
    DevicesResolved resolved{words[1], {}, StatusOf(words, 3)};
    for (absl::string_view device : absl::StrSplit(words[2], ',')) {
      resolved.devices.push_back(Rank(device));
    }
    return resolved;
  }
  ADD_FAILURE() << "unknown event: " << line;
  return DeadlinePassed{};
}

// "StartTask w0 attempt 1"
struct ActionText {
  std::string operator()(const CommitIntent&) const { return "CommitIntent"; }
  std::string operator()(const StartTask& a) const {
    return absl::StrCat("StartTask ", a.worker, " attempt ", a.attempt);
  }
  std::string operator()(const CancelTask& a) const {
    return absl::StrCat("CancelTask ", a.worker, " attempt ", a.attempt, ": ", a.reason);
  }
  std::string operator()(const ResolveDevices& a) const {
    return absl::StrCat(a.commit ? "Commit " : "Abandon ", a.worker, " ",
                        absl::StrJoin(a.devices, ","), " attempt ", a.attempt);
  }
  std::string operator()(const TellPeerLost& a) const {
    return absl::StrCat("TellPeerLost ", a.worker, " of ", a.lost, ": ", a.reason);
  }
  std::string operator()(const AwaitWord&) const { return "AwaitWord"; }
  std::string operator()(const PlanAgain& a) const {
    return absl::StrCat("PlanAgain attempt ", a.attempt, " replicas ",
                        absl::StrJoin(a.replicas, ","), " without ",
                        a.without.empty() ? "none" : absl::StrJoin(a.without, ","));
  }
  std::string operator()(const CheckHope& a) const {
    return absl::StrCat("CheckHope replicas ", absl::StrJoin(a.replicas, ","), " without ",
                        absl::StrJoin(a.without, ","));
  }
  std::string operator()(const AcknowledgeTask& a) const {
    return absl::StrCat("AcknowledgeTask ", a.worker, " attempt ", a.attempt);
  }
  std::string operator()(const PublishChange&) const { return "PublishChange"; }
  std::string operator()(const FinishOperation&) const { return "FinishOperation"; }
};

// "RUNNING", or "RUNNING UNAVAILABLE gone away".
std::string TextOf(absl::string_view state, const absl::Status& error) {
  if (error.ok()) return std::string(state);
  return absl::StrCat(state, " ", absl::StatusCodeToString(error.code()), " ", error.message());
}

absl::string_view TextOf(ReplicaState state) {
  switch (state) {
    case ReplicaState::kReceiving:
      return "RECEIVING";
    case ReplicaState::kCommitted:
      return "COMMITTED";
    case ReplicaState::kFailed:
      return "FAILED";
  }
  return "UNKNOWN";
}

std::string OutcomeOf(const OperationMachine& machine) {
  std::string text =
      absl::StrCat("  ", TextOf(OperationStateName(machine.state()), machine.error()), "\n");
  if (!IsTerminal(machine.state())) return text;
  for (size_t i = 0; i < machine.replicas().size(); ++i) {
    const OperationMachine::Replica& replica = machine.replicas()[i];
    absl::StrAppend(&text, "  replica ", i, " ", TextOf(TextOf(replica.state), replica.error),
                    "\n");
  }
  return text;
}

std::string Play(const std::string& script) {
  OperationMachine machine(0);
  return PlayScript(script, [&machine](absl::string_view event) {
    std::string played;
    if (absl::ConsumePrefix(&event, "Replicas ")) {
      machine = OperationMachine(Rank(event));
      return played;
    }
    if (absl::ConsumePrefix(&event, "Left ")) {
      machine = OperationMachine(LeftOf(event));
      return played;
    }
    for (const OperationAction& action : machine.Handle(EventOf(event))) {
      absl::StrAppend(&played, "    ", std::visit(ActionText(), action), "\n");
    }
    return absl::StrCat(played, OutcomeOf(machine));
  });
}

TEST(OperationMachine, ARefusedPlanNamesTheWorkersThatItHadToDoWithout) {
  OperationMachine machine(1);
  for (const char* event :
       {"Planned w0{} w1{1:0}", "IntentCommitted", "TaskAccepted w0", "TaskAccepted w1",
        "WorkerLost w0 UNAVAILABLE its session ended",
        "DeviceDone w1 1 UNAVAILABLE peer w0 is lost", "TaskEnded w1 OK", "DevicesResolved w1 1 OK",
        "PlanFailed FAILED_PRECONDITION no source"}) {
    machine.Handle(EventOf(event));
  }
  EXPECT_EQ(machine.state(), OperationState::kFailed);
  EXPECT_EQ(machine.replicas()[0].error.message(),
            "no source; planned without worker w0: its session ended");
}

TEST(OperationScripts, EveryScriptPlaysAsItIsWritten) {
  EXPECT_GE(ExpectScriptsPlayAsWritten("controller/operation/testdata", Play), 10);
}

}  // namespace
}  // namespace crossmesh
