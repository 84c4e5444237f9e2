#pragma once

#include <string>

#include <absl/strings/string_view.h>

namespace CLI {
class App;
}  // namespace CLI

namespace crossmesh {

// A program's manual page, as man(7) has it: what its help says of it, of its flags and of all its
// commands, so that neither says what the other does not. `section`: 1 of commands, 8 of daemons.
std::string ManualPage(const CLI::App& app, int section, absl::string_view version);

}  // namespace crossmesh
