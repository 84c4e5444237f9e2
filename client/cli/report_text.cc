#include "client/cli/report_text.h"

#include "common/base/byte_count.h"
#include "common/base/format.h"
#include "common/wire/time_codec.h"

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

std::string Bytes(int64_t bytes) { return FormatBytes(ByteCount(bytes)); }

std::string UtcText(const google::protobuf::Timestamp& time) {
  const absl::StatusOr<absl::Time> read = FromProto(time);
  if (!read.ok()) return std::string(read.status().message());
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", *read, absl::UTCTimeZone());
}

}  // namespace crossmesh
