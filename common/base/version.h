#pragma once

#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {

// The version of the project, "0.1.0".
absl::string_view Version();

// The commit that was built, as `git describe` names it: "71c93f8", "v0.1-12-g71c93f8". Empty when
// it was not built from a clone.
absl::string_view Revision();

// "crossmesh-worker 0.1.0 (71c93f8)": what a program prints for --version.
std::string VersionLine(absl::string_view program);

}  // namespace crossmesh
