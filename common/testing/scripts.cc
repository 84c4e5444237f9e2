#include "common/testing/scripts.h"

#include "common/testing/paths.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <gtest/gtest.h>

namespace crossmesh {

std::string PlayScript(absl::string_view script,
                       absl::FunctionRef<std::string(absl::string_view event)> play) {
  std::string played;
  for (absl::string_view line : absl::StrSplit(script, '\n')) {
    if (absl::StartsWith(line, "#") || line.empty()) {
      absl::StrAppend(&played, line, "\n");
    } else if (absl::ConsumePrefix(&line, "> ")) {
      absl::StrAppend(&played, "> ", line, "\n", play(line));
    }
  }
  absl::StripTrailingAsciiWhitespace(&played);
  return played + "\n";
}

int ExpectScriptsPlayAsWritten(absl::string_view folder,
                               absl::FunctionRef<std::string(const std::string& script)> play) {
  int scripts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath(folder))) {
    if (entry.path().extension() != ".txt") continue;
    ++scripts;
    const std::string script = ReadTextFile(entry.path());
    const std::string played = play(script);
    if (std::getenv("CROSSMESH_UPDATE_GOLDEN") != nullptr) {
      std::ofstream(entry.path()) << played;
    } else {
      EXPECT_EQ(played, script) << entry.path();
    }
  }
  return scripts;
}

absl::Status StatusOf(const std::vector<std::string>& words, size_t first) {
  if (words[first] == "OK") return absl::OkStatus();
  for (int code = 1; code <= 16; ++code) {
    if (absl::StatusCodeToString(static_cast<absl::StatusCode>(code)) != words[first]) continue;
    const std::string message =
        absl::StrJoin(words.begin() + static_cast<int>(first) + 1, words.end(), " ");
    return absl::Status(static_cast<absl::StatusCode>(code), message);
  }
  ADD_FAILURE() << "no status code " << words[first];
  return absl::OkStatus();
}

}  // namespace crossmesh
