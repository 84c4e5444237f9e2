#include "tests/live/run_program.h"

#include "client/cli/cli.h"
#include "common/testing/child_process.h"
#include "common/testing/temporary_folder.h"
#include "tests/live/live_cluster.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kRunMax = absl::Minutes(1);

}  // namespace

ProgramResult RunProgram(const std::string& command) {
  const TemporaryFolder folder;
  absl::StatusOr<ChildProcess> process = ChildProcess::Start(
      {.program = "/bin/sh",
       .arguments = {"-c", absl::StrCat("exec 2>", folder.PathOf("errors"), "; ", command)},
       .log_path = folder.PathOf("output")});
  if (!process.ok()) {
    ADD_FAILURE() << process.status();
    return {};
  }
  std::optional<std::string> exit;
  EXPECT_TRUE(WaitUntil(kRunMax, [&] { return (exit = process->ExitText()).has_value(); }))
      << command;
  return {.exit_text = exit.value_or("runs on"),
          .output = ReadFile(folder.PathOf("output")).value_or(""),
          .errors = ReadFile(folder.PathOf("errors")).value_or("")};
}

std::string ProcessesWith(absl::string_view text) {
  std::string found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const absl::StatusOr<std::string> command = ReadFile((entry.path() / "cmdline").string());
    if (command.ok() && absl::StrContains(*command, text)) {
      absl::StrAppend(&found, absl::StrReplaceAll(*command, {{absl::string_view("\0", 1), " "}}),
                      "\n");
    }
  }
  return found;
}

}  // namespace crossmesh
