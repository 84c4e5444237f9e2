// Scripts of events, each followed by what it must lead to. A script is a text file: comment lines
// start with '#', events with '>', all others say what was expected. CROSSMESH_UPDATE_GOLDEN=1
// writes what happens into the files, to be reviewed as a diff.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The script with its expectations replaced by the lines that `play` gives for each event.
std::string PlayScript(absl::string_view script,
                       absl::FunctionRef<std::string(absl::string_view event)> play);

// Expects of every *.txt in `folder`, relative to the repository's root, that `play` gives it back
// as it is. Returns how many there are.
int ExpectScriptsPlayAsWritten(absl::string_view folder,
                               absl::FunctionRef<std::string(const std::string& script)> play);

// A status as the words of a script from `first` on say it: "OK", or "UNAVAILABLE gone away".
absl::Status StatusOf(const std::vector<std::string>& words, size_t first);

}  // namespace crossmesh
