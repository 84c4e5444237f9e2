#pragma once

#include <string>

#include <absl/status/status.h>

namespace crossmesh {

// Draws what `description` says (client/draw/draw.py has its fields) by a program over
// matplotlib. The ending of `file` says the format: .svg, as names of other endings mean as well,
// .png, .pdf; .json is the description itself. FailedPrecondition without Python and matplotlib;
// otherwise what the program says, such as the system's error where it cannot write the file.
absl::Status DrawPicture(const std::string& description, const std::string& file);

// Whether the program for pictures like this file can run, before what is drawn takes its time.
absl::Status CheckPicture(const std::string& file);

}  // namespace crossmesh
