#include "client/cli/picture.h"

#include "client/cli/cli.h"
#include "common/base/child_exit.h"

#include <cerrno>
#include <cstdio>
#include <memory>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <spawn.h>
#include <unistd.h>

namespace crossmesh {
namespace {

// Debian's, for which python3-matplotlib is. Another one that comes first in PATH would not have
// it.
constexpr char kPython[] = "/usr/bin/python3";
constexpr char kNeeds[] =
    "pictures need /usr/bin/python3 and Debian's package python3-matplotlib; --trace, --json and a "
    "file that ends in .json do without";

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// What a child reads or writes lies in files: it may end before it has read everything, and none of
// the two ever waits for the other.
File TemporaryFile(const std::string& text) {
  File file(std::tmpfile(), &std::fclose);
  if (file != nullptr) {
    std::fwrite(text.data(), 1, text.size(), file.get());
    std::rewind(file.get());
  }
  return file;
}

std::string LastLine(std::FILE* file) {
  std::rewind(file);
  std::string text(1 << 16, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  absl::StripAsciiWhitespace(&text);
  return text.substr(text.rfind('\n') + 1);
}

// The program, with one argument.
absl::Status RunProgram(std::string argument, const std::string& input) {
  const File in = TemporaryFile(input), out = TemporaryFile("");
  if (in == nullptr || out == nullptr) return absl::ErrnoToStatus(errno, "temporary file");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(in.get()), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(out.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(out.get()), STDERR_FILENO);
  // Without -B an installed program would leave files that no package knows.
  std::string python = kPython, option = "-B", program = SharedFile("draw/draw.py");
  char* const words[] = {python.data(), option.data(), program.data(), argument.data(), nullptr};
  pid_t child = -1;
  // Not fork(), which would run the handlers of gRPC.
  const int error = ::posix_spawn(&child, kPython, &actions, nullptr, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return absl::FailedPreconditionError(kNeeds);
  const std::string end = AwaitChild(child).value_or("no child");
  if (end == "exit status 0") return absl::OkStatus();
  const std::string said = LastLine(out.get());
  if (absl::StrContains(said, "ModuleNotFoundError")) {
    return absl::FailedPreconditionError(absl::StrCat(kNeeds, " (", said, ")"));
  }
  return absl::UnknownError(said.empty() ? absl::StrCat(program, ": ", end) : said);
}

}  // namespace

absl::Status DrawPicture(const std::string& description, const std::string& file) {
  return absl::EndsWith(file, ".json") ? WriteFile(file, description)
                                       : RunProgram(file, description);
}

absl::Status CheckPicture(const std::string& file) {
  return absl::EndsWith(file, ".json") ? absl::OkStatus() : RunProgram("--check", "");
}

}  // namespace crossmesh
