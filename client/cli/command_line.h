#pragma once

#include <absl/status/status.h>

namespace CLI {
class App;
}  // namespace CLI

namespace crossmesh {

// InvalidArgument when a group of commands was given a word that is none of its commands: it names
// those that there are, and the one that was probably meant. To be called after parsing, also when
// that ended with a help text: one of another command would be no answer.
absl::Status CheckCommandNames(const CLI::App& app);

// InvalidArgument when a flag was given that the command does not have: it names the one that was
// probably meant, if there is one. To be called when parsing has failed.
absl::Status CheckFlagNames(const CLI::App& app);

// Has helps list commands without their other names, which are there for scripts that have them.
void HideOtherNames(CLI::App& app);

}  // namespace crossmesh
