#pragma once

#include <string>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Puts a file with this text in the place of the one at `path`, if there is one, so that after
// a crash of the machine one of both is there, whole; on disk when this returns. Needs the name
// `path`.next for itself. The system's error, naming the file: the old one is there, or the new one
// already.
absl::Status ReplaceSynced(const std::string& path, absl::string_view text);

}  // namespace crossmesh
