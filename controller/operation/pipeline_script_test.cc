// Scripts (common/testing/scripts.h) of a pipeline's run: events, each followed by the actions and
// the state that it must give.

#include "common/testing/scripts.h"
#include "controller/operation/pipeline_machine.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Machine = PipelineMachine;
using Words = std::vector<std::string>;

int64_t Number(absl::string_view text) {
  int64_t number = 0;
  EXPECT_TRUE(absl::SimpleAtoi(text, &number)) << text;
  return number;
}

absl::string_view TextOf(Machine::Wait wait) {
  switch (wait) {
    case Machine::Wait::kWorkers:
      return "workers";
    case Machine::Wait::kStart:
      return "start";
    case Machine::Wait::kIteration:
      return "iteration";
    case Machine::Wait::kEnd:
      return "end";
  }
  return "unknown";
}

Machine::Wait WaitOf(absl::string_view text) {
  for (const auto wait : {Machine::Wait::kWorkers, Machine::Wait::kStart, Machine::Wait::kIteration,
                          Machine::Wait::kEnd}) {
    if (TextOf(wait) == text) return wait;
  }
  ADD_FAILURE() << "no timer " << text;
  return {};
}

// "Reported w0 3 ABORTED why | rank 0: 0F1 runs"
Machine::Reported ReportOf(absl::string_view line) {
  const Words halves = absl::StrSplit(line, " | ");
  const Words words = absl::StrSplit(halves[0], ' ');
  return {words[1], Number(words[2]), StatusOf(words, 3), {halves.begin() + 1, halves.end()}};
}

std::string TextOf(const std::optional<int64_t>& iteration) {
  return iteration.has_value() ? absl::StrCat(*iteration) : "none";
}
std::optional<int64_t> IterationOf(absl::string_view text) {
  if (text == "none") return std::nullopt;
  return Number(text);
}

Machine::Event EventOfRun(absl::string_view line) {
  const Words words = absl::StrSplit(line, ' ');
  const std::string& kind = words[0];
  // "TakenUp complete 3 begun 4"
  if (kind == "TakenUp") return Machine::TakenUp{{IterationOf(words[2]), IterationOf(words[4])}};
  if (kind == "ProgressRecorded") return Machine::ProgressRecorded{StatusOf(words, 1)};
  if (kind == "WorkersReady") return Machine::WorkersReady{{words.begin() + 1, words.end()}};
  if (kind == "WorkersMissing") return Machine::WorkersMissing{StatusOf(words, 1)};
  if (kind == "PreparationFailed") return Machine::PreparationFailed{StatusOf(words, 1)};
  if (kind == "Accepted") return Machine::Accepted{words[1]};
  if (kind == "Reported") return ReportOf(line);
  if (kind == "CallEnded") return Machine::CallEnded{words[1], StatusOf(words, 2)};
  if (kind == "WorkerGone") return Machine::WorkerGone{words[1], StatusOf(words, 2)};
  if (kind == "TimePassed") return Machine::TimePassed{WaitOf(words[1])};
  if (kind == "Stop") return Machine::StopRequested{words[1] == "now", "a test says so"};
  ADD_FAILURE() << "unknown event: " << line;
  return Machine::TimePassed{};
}

absl::string_view TextOf(PipelineRunState state) {
  switch (state) {
    case PipelineRunState::kPreparing:
      return "PREPARING";
    case PipelineRunState::kRunning:
      return "RUNNING";
    case PipelineRunState::kWaiting:
      return "WAITING";
    case PipelineRunState::kDone:
      return "DONE";
    case PipelineRunState::kFailed:
      return "FAILED";
    case PipelineRunState::kStopped:
      return "STOPPED";
  }
  return "UNKNOWN";
}

// "BeginIteration 3"
struct RunActionText {
  std::string operator()(const Machine::StartPrograms& a) const {
    return absl::StrCat("StartPrograms generation ", a.generation);
  }
  std::string operator()(const Machine::RecordProgress& a) const {
    return absl::StrCat("RecordProgress complete ", TextOf(a.progress.complete), " begun ",
                        TextOf(a.progress.begun));
  }
  std::string operator()(const Machine::BeginIteration& a) const {
    return absl::StrCat("BeginIteration ", a.iteration);
  }
  std::string operator()(const Machine::StopPrograms& a) const {
    return a.reason.empty() ? "StopPrograms" : absl::StrCat("StopPrograms '", a.reason, "'");
  }
  std::string operator()(const Machine::CancelCall& a) const {
    return absl::StrCat("CancelCall ", a.worker);
  }
  std::string operator()(const Machine::AwaitWorkers&) const { return "AwaitWorkers"; }
  std::string operator()(const Machine::StartTimer& a) const {
    return absl::StrCat("StartTimer ", TextOf(a.wait));
  }
  std::string operator()(const Machine::EndIteration& a) const {
    if (a.status.ok()) return absl::StrCat("EndIteration ", a.iteration, " OK");
    return absl::StrCat("EndIteration ", a.iteration, " ",
                        absl::StatusCodeToString(a.status.code()), " ", a.status.message());
  }
  std::string operator()(const Machine::Publish&) const { return "Publish"; }
  std::string operator()(const Machine::Finish&) const { return "Finish"; }
};

// "Run 3", or "Run 3 stop_at_failure", comes first.
std::string PlayRun(const std::string& script) {
  std::optional<Machine> machine;
  return PlayScript(script, [&machine](absl::string_view event) {
    std::string played;
    if (absl::StartsWith(event, "Run ")) {
      const Words words = absl::StrSplit(event, ' ');
      machine.emplace(
          Machine::Options{.iterations = Number(words[1]), .stop_at_failure = words.size() > 2});
      return played;
    }
    for (const Machine::Action& action : machine->Handle(EventOfRun(event))) {
      absl::StrAppend(&played, "    ", std::visit(RunActionText(), action), "\n");
    }
    absl::StrAppend(&played, "  ", TextOf(machine->state()));
    if (!machine->error().ok()) {
      absl::StrAppend(&played, " ", absl::StatusCodeToString(machine->error().code()), " ",
                      machine->error().message());
    }
    return absl::StrCat(played, "\n");
  });
}

TEST(PipelineScripts, EveryScriptPlaysAsItIsWritten) {
  EXPECT_GE(ExpectScriptsPlayAsWritten("controller/operation/pipeline_testdata", PlayRun), 10);
}

}  // namespace
}  // namespace crossmesh
