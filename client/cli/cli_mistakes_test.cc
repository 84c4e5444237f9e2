// What the program says, in text and as JSON, when it is used wrongly.

#include "client/cli/testing/program_run.h"

#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kSmallPlan =
    "--manifest client/cli/testdata/small.json --source 'x=2 on a.0,b.0' --source-layout '[x, -]' "
    "--destination 'y=2 on c.0,d.0' --destination-layout '[-, y]'";

struct Mistake {
  const char* name;
  std::string arguments;
  const char* message;
};

class CliMistakeTest : public testing::TestWithParam<Mistake> {};

TEST_P(CliMistakeTest, FailsWithItsReasonInBothForms) {
  const ProgramResult text = Crossmesh(GetParam().arguments);
  EXPECT_NE(text.exit_status, 0);
  EXPECT_THAT(text.error, HasSubstr("crossmesh: error: "));
  EXPECT_THAT(text.error, HasSubstr(GetParam().message));
  EXPECT_THAT(text.out, IsEmpty());

  const ProgramResult json = Crossmesh(GetParam().arguments + " --json");
  EXPECT_EQ(json.exit_status, text.exit_status);
  const nlohmann::json document = nlohmann::json::parse(json.out, nullptr, false);
  ASSERT_TRUE(document.is_object()) << json.out;
  EXPECT_THAT(document["error"]["message"].get<std::string>(), HasSubstr(GetParam().message));
  EXPECT_THAT(document["error"]["code"].get<std::string>(), Not(IsEmpty()));
}

TEST(CliMistakesTest, AnErrorsDocumentSaysWhatItIsAboutWhatWasExpectedAndWhatWasFound) {
  const ProgramResult result =
      Crossmesh("pipeline rehearse examples/pipeline.json --iterations 0 --json");
  const nlohmann::json error = nlohmann::json::parse(result.out, nullptr, false)["error"];
  EXPECT_EQ(error["object"], "--iterations");
  EXPECT_EQ(error["expected"], "at least 1");
  EXPECT_EQ(error["found"], "0");
}

INSTANTIATE_TEST_SUITE_P(
    Table, CliMistakeTest,
    testing::Values(
        Mistake{"unknown_command", "frobnicate", "frobnicate"},
        Mistake{"unknown_command_with_help", "--help frobnicate",
                "unknown command \"frobnicate\": expected one of context, demo, doctor"},
        Mistake{"misspelt_command", "mesh creat m 'x=1 on a.0'",
                "mesh: unknown command \"creat\": expected one of create, list, show, delete; did "
                "you mean \"create\"?"},
        Mistake{"misspelt_command_with_help", "operation lsit --help", "did you mean \"list\"?"},
        Mistake{"shortened_command", "mesh del m", "did you mean \"delete\"?"},
        Mistake{"misspelt_group", "manifset list", "did you mean \"manifest\"?"},
        Mistake{"unknown_flag", "plan --frobnicate", "plan: unknown flag \"--frobnicate\""},
        Mistake{"misspelt_flag", "worker list --contoller=unix:s",
                "unknown flag \"--contoller\"; did you mean \"--controller\"?"},
        Mistake{"misspelt_flag_of_a_group", "mesh --contoller unix:s list",
                "mesh: unknown flag \"--contoller\"; did you mean \"--controller\"?"},
        Mistake{"nothing_given", "plan", "--manifest: expected a file or a name"},
        Mistake{"both_bindings",
                "plan --manifest examples/gpt2.json --source 'x=1 on a.0' --source-layout '[...]' "
                "--destination 'x=1 on b.0' --destination-layout '[...]' --in-place --shadow",
                "expected --in-place or --shadow, found both"},
        // No file has such a name, and the system says so by an error.
        Mistake{"name_too_long",
                absl::StrCat("plan --source 'x=1 on a.0' --destination 'x=1 on b.0' --manifest ",
                             std::string(300, 'a')),
                "aaa: cannot be read"},
        Mistake{"unknown_strategy", absl::StrCat("plan ", kSmallPlan, " --strategy fastest"),
                "fastest"},
        Mistake{"unknown_strategy_of_demo", "demo --strategy fastest", "fastest"},
        Mistake{"odd_workers", "demo --workers 3", "expected an even number"},
        Mistake{"missing_file", "demo /nonexistent/model.safetensors",
                "/nonexistent/model.safetensors"},
        Mistake{"bad_layout",
                "layout show --mesh 'x=2 on a.0-1' --layout '[x, x]' --shape '[4, 4]'", "x"},
        Mistake{"not_divisible", "layout show --mesh 'x=2 on a.0-1' --layout '[x]' --shape '[5]'",
                "5"},
        Mistake{"bad_mesh", "layout show --mesh 'x=2 on a.0' --layout '[x]' --shape '[4]'", "2"},
        Mistake{"layout_twice",
                "layout show --mesh 'x=2 on a.0-1' --layout '[x]' --shape '[4]' --manifest "
                "examples/gpt2.json --rules examples/gpt2.tp.rules --tensor wte.weight",
                "either"},
        Mistake{"unknown_tensor",
                "layout show --mesh 'fsdp=2 on a.0-1' --manifest examples/gpt2.json --rules "
                "examples/gpt2.fsdp.rules --tensor wte",
                "tensor \"wte\": not among the 148 tensors"},
        Mistake{"registered_without_controller",
                "plan --manifest gpt2 --source trainer --destination server",
                "known to a controller only"},
        Mistake{"no_storage",
                absl::StrCat("storage fill ", kSmallPlan, " --memory a=/nonexistent/a"),
                "--source-storage: expected a name, found none"},
        Mistake{
            "no_socket",
            absl::StrCat("storage fill ", kSmallPlan, " --source-storage s --memory /run/a.memory"),
            "--memory: expected HOST=SOCKET, found \"/run/a.memory\""},
        Mistake{"no_worker_at_the_socket",
                absl::StrCat("storage fill ", kSmallPlan,
                             " --source-storage s --memory a=/nonexistent/a"),
                "/nonexistent/a"},
        Mistake{
            "values_of_a_folder_without_any",
            absl::StrCat("storage fill ", kSmallPlan, " --memory a=/run/a --values /nonexistent"),
            "/nonexistent"},
        Mistake{"no_pipeline", "pipeline rehearse", "expected either a file or --pipeline"},
        Mistake{"pipeline_twice", "pipeline rehearse examples/pipeline.json --pipeline u-net",
                "found both"},
        Mistake{"run_without_iterations", "pipeline run examples/pipeline.json", "--iterations"},
        Mistake{"no_iterations", "pipeline rehearse examples/pipeline.json --iterations 0",
                "--iterations: expected at least 1, found 0"},
        Mistake{"bad_deadline",
                "pipeline rehearse examples/pipeline.json --iteration-deadline soon",
                "--iteration-deadline: expected a duration like 1.5s"},
        Mistake{"rehearsal_without_controller", "pipeline rehearse examples/pipeline.json",
                "CROSSMESH_CONTROLLER"},
        Mistake{"no_run_to_stop", "pipeline stop", "id"},
        Mistake{"no_controller", "worker list", "CROSSMESH_CONTROLLER"},
        Mistake{"address_of_others", "worker list --controller 192.0.2.1:7400", "insecure"},
        Mistake{"no_such_controller", "worker list --controller unix:/nonexistent/socket",
                "controller unix:/nonexistent/socket"}),
    [](const testing::TestParamInfo<Mistake>& test) { return test.param.name; });

}  // namespace
}  // namespace crossmesh
