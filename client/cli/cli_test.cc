// Runs the program as a user does, on what needs no controller.

#include "client/cli/testing/program_run.h"
#include "common/base/version.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kGpt2 =
    "--manifest examples/gpt2.json --source 'fsdp=4 on a.0,b.0,c.0,d.0' "
    "--source-rules examples/gpt2.fsdp.rules --destination 'replica=2,model=2 on e.0-1,f.0-1' "
    "--destination-rules examples/gpt2.tp.rules --replica-axes replica";

constexpr const char* kSmall =
    "--manifest client/cli/testdata/small.json --source 'x=2 on a.0,b.0' --source-layout '[x, -]' "
    "--destination 'y=2 on c.0,d.0' --destination-layout '[-, y]'";

// The output of a command that must succeed.
std::string TextOf(const std::string& arguments) {
  const ProgramResult result = Crossmesh(arguments);
  EXPECT_EQ(result.exit_status, 0) << result.error;
  return result.out;
}

TEST(CliTest, EveryCommandHasHelpWithExamples) {
  // Groups, and commands of their own.
  const std::vector<std::pair<std::string, std::string>> groups = {
      {"demo", ""},
      {"health", ""},
      {"plan", ""},
      {"reshard", ""},
      {"layout", "show"},
      {"mesh", "create list show delete"},
      {"manifest", "create list show delete"},
      {"network", "show set preset measure"},
      {"operation", "list show watch wait cancel"},
      {"pipeline", "create list delete rehearse run show stop"},
      {"storage", "check clear create delete describe export fill list"},
      {"worker", "list drain"}};
  std::vector<std::string> commands;
  for (const auto& [group, names] : groups) {
    for (const absl::string_view name : absl::StrSplit(names, ' ')) {
      commands.push_back(absl::StrCat(group, name.empty() ? "" : " ", name));
    }
  }
  for (const std::string& command : commands) {
    const ProgramResult result = Crossmesh(absl::StrCat(command, " --help"));
    EXPECT_EQ(result.exit_status, 0) << command;
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat("crossmesh ", command))) << command;
    EXPECT_THAT(result.out, HasSubstr("Examples:")) << command;
    EXPECT_THAT(result.out, HasSubstr("--json")) << command;
  }
}

TEST(CliTest, AGroupsHelpHasTheFirstExampleOfEachOfItsCommands) {
  const std::string help = TextOf("mesh --help");
  for (const char* command : {"create trainer", "list --json", "show trainer", "delete trainer"}) {
    EXPECT_THAT(help, HasSubstr(absl::StrCat("  crossmesh mesh ", command)));
  }
  EXPECT_THAT(help, Not(HasSubstr("crossmesh demo")));
  EXPECT_THAT(help, Not(HasSubstr("register")));  // a name that scripts have
  EXPECT_THAT(TextOf("--help"), HasSubstr("  crossmesh demo\n"));
}

TEST(CliTest, TheVersionIsThatOfTheBuild) {
  EXPECT_EQ(TextOf("--version"), VersionLine("crossmesh") + "\n");
}

TEST(CliTest, WhatStandardOutputDoesNotTakeIsAFailure) {
  const std::string layout = "layout show --mesh 'x=2 on a.0-1' --layout '[x]' --shape '[4]'";
  for (const std::string& arguments : {layout, layout + " --json", std::string("--help"),
                                       std::string("mesh --help"), std::string("--version")}) {
    const ProgramResult result = Crossmesh(arguments + " > /dev/full");
    EXPECT_EQ(result.exit_status, 1) << arguments;
    EXPECT_THAT(result.error, HasSubstr("cannot write to standard output: No space left on device"))
        << arguments;
  }
}

TEST(CliTest, LayoutShowIsATableOfSlots) {
  ExpectGolden("layout_show.txt", TextOf("layout show --mesh 'data=2,model=2 on a.0-1,b.0-1' "
                                         "--layout '[data, model] chunk' --shape '[7, 5]'"));
}

TEST(CliTest, LayoutShowTakesATensorOfAManifestByItsRule) {
  const nlohmann::json document = DocumentOf(
      "layout show --mesh 'fsdp=4 on a.0-3' --manifest examples/gpt2.json "
      "--rules examples/gpt2.fsdp.rules --tensor wte.weight");
  EXPECT_EQ(document["layout"], "[fsdp, -] nested_chunk");
  EXPECT_EQ(document["slots"].size(), 4);
  EXPECT_EQ(document["slots"][3]["boxes"][0], "[37695:50257, 0:768]");
  EXPECT_EQ(document["slots"][3]["coordinates"]["fsdp"], 3);
}

TEST(CliTest, PlanSaysWhatIsConverted) {
  const std::string small =
      "--manifest client/cli/testdata/small.json --source 'x=2 on a.0,b.0' --source-layout '[x, -]'"
      " --destination 'y=2 on c.0,d.0' --destination-layout ";
  const nlohmann::json document =
      DocumentOf(absl::StrCat("plan ", small, "'[-, y] as BF16' --explain"));
  EXPECT_THAT(document["text"].get<std::string>(), HasSubstr("1 x F32[4, 6] as BF16 from"));
  EXPECT_THAT(document["text"].get<std::string>(), HasSubstr("1 x BF16[2, 8] from"));
  EXPECT_THAT(ErrorOf(absl::StrCat("plan ", small, "'[-, y] as I32'")),
              HasSubstr("tensor \"a\": F32 cannot be sent as I32"));
}

TEST(CliTest, LayoutShowSaysTheTypeOfTheRule) {
  const TemporaryFolder folder;
  const std::string rules = folder.PathOf("half.rules");
  std::ofstream(rules) << "* [fsdp, ...] nested_chunk on fsdp2=0 as F16  # half\n";
  const nlohmann::json document = DocumentOf(
      absl::StrCat("layout show --mesh 'fsdp2=2,fsdp=4 on a.0-7' --manifest examples/gpt2.json ",
                   "--rules ", rules, " --tensor wte.weight"));
  EXPECT_EQ(document["dtype"], "F16");
}

TEST(CliTest, PlanExplainsASmallCase) {
  // The rest of the document has the time that planning took.
  ExpectGolden("plan_explain.txt", DocumentOf(absl::StrCat("plan ", kSmall, " --explain"))["text"]);
}

TEST(CliTest, PlanSaysHowGpusWouldExchangeTheirBytes) {
  constexpr const char* kGroup =
      "plan --manifest client/cli/testdata/small.json --source 'x=1 on a.0' --source-layout "
      "'[-, -]' --destination 'y=2 on c.0,d.0' --destination-layout '[-, -]'";
  EXPECT_THAT(Crossmesh(kGroup).out, HasSubstr("group         a.0,c.0,d.0: broadcasts, if GPUs; "));
  EXPECT_THAT(Crossmesh(absl::StrCat(kGroup, " --no-broadcasts")).out,
              AllOf(HasSubstr("predicted"), Not(HasSubstr("broadcasts"))));
}

TEST(CliTest, PlansGpt2WithoutAController) {
  const nlohmann::json summary = DocumentOf(absl::StrCat("plan ", kGpt2))["summary"];
  EXPECT_EQ(summary["strategy"], "relay");
  EXPECT_EQ(summary["tensors"], "148");
  EXPECT_EQ(summary["replicas"], 2);
  EXPECT_EQ(summary["assumed_rates"], true);
  EXPECT_GE(summary["predicted_seconds"].get<double>(), summary["bound_seconds"].get<double>());
}

TEST(CliTest, ComparesAllStrategies) {
  const std::string text = TextOf(absl::StrCat("plan ", kGpt2, " --all-strategies"));
  for (const char* strategy :
       {"relay", "send_recv", "local_all_gather", "global_all_gather", "broadcast_naive",
        "broadcast_size", "broadcast_greedy", "broadcast_search"}) {
    EXPECT_THAT(text, HasSubstr(strategy));
  }
  EXPECT_THAT(text, HasSubstr("Rates are assumed"));
}

TEST(CliTest, SimulatesGpt2AndWritesATrace) {
  const TemporaryFolder folder;
  const std::string trace_path = folder.PathOf("trace.json");
  const nlohmann::json document =
      DocumentOf(absl::StrCat("simulate ", kGpt2, " --trace ", trace_path));
  const double seconds = document["seconds"];
  EXPECT_GE(seconds, document["bound_seconds"].get<double>() * (1 - 1e-9));
  EXPECT_NEAR(document["ports"][0]["busy"].get<double>(), 1, 0.01);
  EXPECT_EQ(document["critical_chain"].back()["arrival_seconds"], seconds);

  const nlohmann::json trace = nlohmann::json::parse(ReadAll(trace_path));
  double last_end = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    last_end = std::max(last_end, event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_NEAR(last_end, seconds * 1e6, 1e-3);
}

TEST(CliTest, ASimulationNamesTheHostsThatTheNetworkLacks) {
  const TemporaryFolder folder;
  const std::string network = folder.PathOf("network.json");
  std::ofstream(network) << R"({"hosts": [{"name": "a", "nics": [{"name": "eth0",
      "out_bytes_per_second": 1000, "in_bytes_per_second": 1000}]}]})";
  const std::string command = absl::StrCat("simulate ", kGpt2, " --topology ", network);
  EXPECT_THAT(Crossmesh(command).out, HasSubstr("WARNING: "));
  EXPECT_THAT(DocumentOf(command)["warnings"][0].get<std::string>(), HasSubstr("lacks b"));
  EXPECT_THAT(Crossmesh(absl::StrCat("simulate ", kSmall)).out, HasSubstr("Rates are assumed"));
}

TEST(CliTest, DrawsAPlanAndWritesItsTrace) {
  const TemporaryFolder folder;
  const std::string svg = folder.PathOf("plan.svg"), trace = folder.PathOf("trace.json");
  const nlohmann::json document =
      DocumentOf(absl::StrCat("plan ", kGpt2, " --svg ", svg, " --trace ", trace));
  EXPECT_EQ(document["summary"]["strategy"], "relay");
  const std::string picture = ReadAll(svg);
  EXPECT_THAT(picture, StartsWith("<?xml "));
  for (const char* host : {"a", "b", "c", "d", "e", "f"}) {
    EXPECT_THAT(picture, HasSubstr(absl::StrCat(">", host, "</text>")));
  }
  EXPECT_THAT(picture, EndsWith("</svg>\n"));
  EXPECT_FALSE(nlohmann::json::parse(ReadAll(trace))["traceEvents"].empty());
}

TEST(CliTest, APictureIsOfOnePlan) {
  EXPECT_THAT(ErrorOf(absl::StrCat("plan ", kSmall, " --all-strategies --svg /tmp/x")),
              HasSubstr("expected no --all-strategies"));
}

TEST(CliTest, AFileThatCannotBeWrittenIsNamed) {
  EXPECT_THAT(ErrorOf(absl::StrCat("plan ", kSmall, " --svg /nonexistent/p.svg")),
              HasSubstr("/nonexistent/p.svg"));
  EXPECT_THAT(ErrorOf(absl::StrCat("simulate ", kSmall, " --trace /nonexistent/t.json")),
              HasSubstr("/nonexistent/t.json"));
}

TEST(CliTest, TakesTheRequestOfTheApiFromAFile) {
  const TemporaryFolder folder;
  const std::string path = folder.PathOf("request.json");
  std::ofstream(path) << R"({"spec": {
    "inline_manifest": {"tensors": [{"name": "w", "dtype": "F32", "shape": ["4", "4"]}]},
    "source": {"inline_mesh": {"axes": "x=2", "devices": "a.0-1"},
               "rules": [{"pattern": "*", "layout": "[x, -]"}]},
    "destination": {"inline_mesh": {"axes": "y=2", "devices": "b.0-1"},
                    "rules": [{"pattern": "*", "layout": "[-, y]"}]}}})";
  const nlohmann::json document =
      DocumentOf(absl::StrCat("plan --request '", path, "' --strategy send_recv"));
  EXPECT_EQ(document["summary"]["strategy"], "send_recv");
}

TEST(CliTest, APipelineIsPlannedAndProven) {
  const TemporaryFolder folder;
  const std::string plan = TextOf(absl::StrCat(
      "pipeline plan examples/pipeline.json --schedule eager_1f1b --svg ", folder.PathOf("run.svg"),
      " --trace ", folder.PathOf("run.json"), " --output ", folder.PathOf("schedule.json")));
  EXPECT_THAT(plan, AllOf(HasSubstr("Schedule   eager_1f1b"), HasSubstr("128 ops once each"),
                          HasSubstr("PEAK MEMORY"), HasSubstr("backward")));
  EXPECT_THAT(ReadAll(folder.PathOf("run.svg")), HasSubstr("eager_1f1b: "));
  EXPECT_TRUE(nlohmann::json::accept(ReadAll(folder.PathOf("run.json"))));

  // What was written is taken again, and is the same plan.
  const std::string again = "pipeline plan examples/pipeline.json --schedule ";
  const nlohmann::json named = DocumentOf(again + "eager_1f1b");
  const nlohmann::json read = DocumentOf(again + folder.PathOf("schedule.json"));
  EXPECT_EQ(named["predicted_seconds"], read["predicted_seconds"]);
  EXPECT_EQ(named["rank_ops"], read["rank_ops"]);
}

TEST(CliTest, ExplainShowsTheOpsAndWhatWasLookedAt) {
  EXPECT_THAT(TextOf("pipeline explain examples/pipeline.json"),
              AllOf(HasSubstr("rank 0: 0F0 0F1"), HasSubstr("Looked at"), HasSubstr("1f1b")));
}

TEST(CliTest, CompareHasEveryScheduleWithItsTimeOrTheReason) {
  EXPECT_THAT(TextOf("pipeline compare examples/pipeline.json"),
              AllOf(HasSubstr("BUBBLE"), HasSubstr("gpipe "), HasSubstr("zb_h2 "),
                    HasSubstr("auto "), HasSubstr("auto, delayed "),
                    Not(HasSubstr("zb_h2, delayed")), HasSubstr("carries 536.9 MB")));
}

TEST(CliTest, SchedulesAreDrawnOneBelowTheOther) {
  const TemporaryFolder folder;
  const std::string path = folder.PathOf("both.svg");
  const ProgramResult drawn =
      Crossmesh(absl::StrCat("pipeline draw examples/pipeline.json --schedule 1f1b "
                             "--schedule eager_1f1b --svg ",
                             path));
  EXPECT_EQ(drawn.exit_status, 0) << drawn.error;
  EXPECT_THAT(ReadAll(path), AllOf(HasSubstr(">1f1b: "), HasSubstr(">eager_1f1b: ")));
}

TEST(CliTest, ASchedulePassesThroughEveryFormat) {
  const TemporaryFolder folder;
  const auto convert = [&](const std::string& from, const std::string& to,
                           const std::string& more) {
    const ProgramResult result = Crossmesh(
        absl::StrCat("pipeline convert ", folder.PathOf(from), " ", folder.PathOf(to), " ", more));
    EXPECT_EQ(result.exit_status, 0) << result.error;
    return ReadAll(folder.PathOf(to));
  };
  std::ofstream(folder.PathOf("a.csv")) << "0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n";
  const std::string json = convert("a.csv", "b.json", "--from csv-compute");
  convert("b.json", "c.csv", "--to csv-comms");
  EXPECT_EQ(convert("c.csv", "d.json", "--from csv-comms"), json);
  EXPECT_THAT(convert("b.json", "e.svg", ""), HasSubstr("rank 1"));
  EXPECT_TRUE(nlohmann::json::accept(convert("b.json", "f.json", "--to trace")));
}

TEST(CliTest, AZeroByteInAFileIsRefusedWithItsPlace) {
  const TemporaryFolder folder;
  const std::string path = folder.PathOf("file.json");
  std::ofstream(path) << "{}" << '\0' << "anything";
  for (const char* command : {"pipeline plan ", "plan --request ", "plan --manifest ", "health "}) {
    EXPECT_NE(Crossmesh(command + path).exit_status, 0) << command;
  }
  for (const char* command : {"pipeline plan ", "plan --request ", "plan --manifest "}) {
    EXPECT_THAT(ErrorOf(command + path), AllOf(HasSubstr(path), HasSubstr("byte 3, a zero byte")));
  }
}

TEST(CliTest, WhatAManifestOfTheApiHoldsIsTaken) {
  const TemporaryFolder folder;
  const std::string path = folder.PathOf("shown.json");
  // As `manifest show --json` prints it.
  std::ofstream(path) << R"({"name": "m", "tensors": [
      {"name": "w", "dtype": "F32", "shape": ["8", "8"]}]})";
  const nlohmann::json document = DocumentOf(
      absl::StrCat("plan --manifest ", path, " --source 'x=2 on a.0,b.0' --source-layout '[x, -]' ",
                   "--destination 'y=2 on c.0,d.0' --destination-layout '[-, y]'"));
  EXPECT_EQ(document["summary"]["tensors"], "1");
  std::ofstream(path) << R"({"name": "m", "tensor": []})";
  EXPECT_THAT(ErrorOf("plan --manifest " + path), HasSubstr(path));
}

TEST(CliTest, WhatAPipelineLacksIsSaid) {
  const TemporaryFolder folder;
  const std::string path = folder.PathOf("pipeline.json");
  EXPECT_THAT(ErrorOf("pipeline plan examples/pipeline.json --schedule zb_v"), HasSubstr("zb_v"));
  EXPECT_THAT(ErrorOf("pipeline plan examples/pipeline.json --schedule none"), HasSubstr("none"));
  EXPECT_THAT(ErrorOf("pipeline plan examples/gpt2.json"), HasSubstr("PipelineSpec"));
  std::ofstream(path) << R"({"ranks": [{"mesh": "trainer"}], "stages": [{"rank": 0}]})";
  EXPECT_THAT(ErrorOf("pipeline plan " + path), HasSubstr("expected inline_mesh"));
  nlohmann::json spec = nlohmann::json::parse(ReadAll(SourcePath("examples/pipeline.json")));
  for (auto& rank : spec["ranks"]) rank["deviceBytesMax"] = "2500000000";
  std::ofstream(path) << spec;
  EXPECT_THAT(ErrorOf("pipeline plan " + path), HasSubstr("GB"));
  std::ofstream(folder.PathOf("a.csv")) << "0F0,0F0,0B0\n";
  const std::string csv = folder.PathOf("a.csv"), json = folder.PathOf("a.json");
  EXPECT_THAT(ErrorOf(absl::StrCat("pipeline convert ", csv, " ", json, " --from csv-compute")),
              HasSubstr("row 1, column 2"));
  EXPECT_THAT(ErrorOf(absl::StrCat("pipeline convert ", csv, " ", json)), HasSubstr("--from"));
}

}  // namespace
}  // namespace crossmesh
