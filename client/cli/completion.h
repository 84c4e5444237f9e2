#pragma once

#include <string>

#include <absl/strings/string_view.h>

namespace CLI {
class App;
}  // namespace CLI

namespace crossmesh {

inline constexpr absl::string_view kShells[] = {"bash", "fish", "zsh"};

// A script that has the shell, one of the above, complete the program's commands and flags: those
// that its help lists, with what it says of them where the shell shows that.
std::string CompletionScript(const CLI::App& app, absl::string_view shell);

}  // namespace crossmesh
