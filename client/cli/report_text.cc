#include "client/cli/report_text.h"

#include "common/base/byte_count.h"
#include "common/base/format.h"
#include "common/wire/time_codec.h"

#include <cstddef>

#include <absl/status/statusor.h>
#include <absl/strings/ascii.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

// U+0080 to U+009F, which some terminals obey as well, are 0xC2 and a byte below 0xA0 in UTF-8.
bool IsUpperControl(unsigned char byte, unsigned char next) {
  return byte == 0xC2 && next >= 0x80 && next < 0xA0;
}

std::string Escaped(absl::string_view text, bool keeps_lines) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : '\0');
    if (IsUpperControl(byte, next)) {
      absl::StrAppendFormat(&shown, "\\u%04x", next);
      ++i;
    } else if (absl::ascii_iscntrl(byte) && !(keeps_lines && text[i] == '\n')) {
      absl::StrAppendFormat(&shown, "\\x%02x", byte);
    } else {
      shown.push_back(text[i]);
    }
  }
  return shown;
}

}  // namespace

std::string Printable(absl::string_view text) { return Escaped(text, /*keeps_lines=*/true); }

std::string PrintableName(absl::string_view name) { return Escaped(name, /*keeps_lines=*/false); }

std::string Bytes(int64_t bytes) { return FormatBytes(ByteCount(bytes)); }

std::string ShortId(const std::string& id) { return id.substr(0, 12); }

std::string UtcText(const google::protobuf::Timestamp& time) {
  const absl::StatusOr<absl::Time> read = FromProto(time);
  if (!read.ok()) return std::string(read.status().message());
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", *read, absl::UTCTimeZone());
}

}  // namespace crossmesh
