#include "worker/gpu/protocol/message_fields.h"

#include "common/wire/status_code.h"

#include <optional>

#include <absl/strings/str_cat.h>

namespace crossmesh {
absl::Status Malformed(absl::string_view field, absl::string_view expected,
                       absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " of a GPU message: expected ", expected, ", found ", found));
}

absl::Status CheckNumber(absl::string_view field, int64_t number, int64_t least) {
  if (number >= least) return absl::OkStatus();
  return Malformed(field, absl::StrCat("at least ", least), absl::StrCat(number));
}

v1::GpuStatus ToProto(const absl::Status& status) {
  v1::GpuStatus proto;
  proto.set_code(static_cast<int>(status.code()));
  proto.set_message(std::string(status.message()));
  return proto;
}

absl::Status FromProto(const v1::GpuStatus& proto) {
  return StatusFromCode(proto.code(), proto.message());
}

absl::Status CauseFromProto(const v1::GpuStatus& proto) {
  absl::Status cause = FromProto(proto);
  return cause.ok() ? absl::UnknownError("no cause was given") : cause;
}

v1::GpuTaskKey ToProto(const TaskKey& key) {
  v1::GpuTaskKey proto;
  proto.set_operation(key.operation);
  proto.set_epoch(key.epoch);
  proto.set_attempt(key.plan);
  proto.set_instance(key.instance);
  return proto;
}

TaskKey FromProto(const v1::GpuTaskKey& proto) {
  return {.operation = proto.operation(),
          .epoch = proto.epoch(),
          .plan = proto.attempt(),
          .instance = proto.instance()};
}

absl::StatusOr<Digest> ParseDigest(absl::string_view field, const std::string& hex) {
  const std::optional<Digest> digest = Digest::Parse(hex);
  if (digest.has_value()) return *digest;
  return Malformed(field, "32 hexadecimal digits",
                   absl::StrCat(hex.size(), " bytes of something else"));
}

}  // namespace crossmesh
