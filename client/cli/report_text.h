// What reports for people have in common.

#pragma once

#include <cstdint>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/string_view.h>
#include <google/protobuf/timestamp.pb.h>

namespace crossmesh {

// "497.8 MB".
std::string Bytes(int64_t bytes);

// "2026-11-23 12:00:00" in UTC, or what is wrong with the time.
std::string UtcText(const google::protobuf::Timestamp& time);

// As much of an id, a digest in hexadecimal, as tells it from others of a page.
std::string ShortId(const std::string& id);

// The text with its control characters as "\x1b", so that a terminal shows what it would obey. Ends
// of lines stay as they are.
std::string Printable(absl::string_view text);
// The same for a name, which has one line.
std::string PrintableName(absl::string_view name);

// "moved         497.8 MB in 1.20 s": a name, and what the parts say together.
template <typename... Parts>
std::string ReportLine(absl::string_view name, const Parts&... parts) {
  return absl::StrFormat("%-13s %s\n", name, absl::StrCat(parts...));
}

}  // namespace crossmesh
