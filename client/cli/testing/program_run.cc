#include "client/cli/testing/program_run.h"

#include "common/testing/paths.h"
#include "common/testing/temporary_folder.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

namespace crossmesh {

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

ProgramResult RunShell(const std::string& command) {
  const TemporaryFolder folder;
  const std::string error_path = folder.PathOf("errors");
  const std::string all = absl::StrCat(
      "cd '", SourcePath(""), "' && unset CROSSMESH_CONTROLLER && CROSSMESH='",
      ProgramPath("crossmesh"), "' && { ", command, "\n} 2>'", error_path, "' </dev/null");
  ProgramResult result;
  std::FILE* const pipe = ::popen(all.c_str(), "r");
  std::array<char, 4096> block;
  while (const size_t size = std::fread(block.data(), 1, block.size(), pipe)) {
    result.out.append(block.data(), size);
  }
  const int status = ::pclose(pipe);
  result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.error = ReadAll(error_path);
  return result;
}

ProgramResult Crossmesh(const std::string& arguments) {
  return RunShell(absl::StrCat("\"$CROSSMESH\" ", arguments));
}

void ExpectGolden(const std::string& name, const std::string& text) {
  const std::string path = SourcePath("client/cli/testdata/" + name);
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  EXPECT_EQ(text, ReadAll(path)) << "differs from " << path;
}

}  // namespace crossmesh
