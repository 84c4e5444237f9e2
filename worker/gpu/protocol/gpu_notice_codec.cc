#include "common/base/status_macros.h"
#include "common/wire/communicator_codec.h"
#include "worker/gpu/protocol/gpu_message_codec.h"
#include "worker/gpu/protocol/message_fields.h"
#include "worker/wire/task_report_codec.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

v1::GpuNotice::TaskReport ReportToProto(const TaskReport& report) {
  v1::GpuNotice::TaskReport proto;
  *proto.mutable_key() = ToProto(report.key);
  *proto.mutable_report() = ToProto(report);
  for (const DeviceReport& device : report.devices) *proto.add_devices() = ToProto(device);
  return proto;
}

absl::StatusOr<TaskReport> ReportFromProto(const v1::GpuNotice::TaskReport& proto) {
  TaskReport report = FromProto(proto.report());
  report.key = FromProto(proto.key());
  for (const v1::ExecuteResponse::DeviceDone& device : proto.devices()) {
    ASSIGN_OR_RETURN(report.devices.emplace_back(), FromProto(device));
  }
  return report;
}

void Write(const GpuNotice::Hello& body, v1::GpuNotice& proto) {
  v1::GpuNotice::Hello& hello = *proto.mutable_hello();
  hello.set_protocol(body.protocol);
  *hello.mutable_preflight() = ToProto(body.preflight);
}
absl::StatusOr<GpuNotice::Body> Read(const v1::GpuNotice::Hello& proto) {
  ASSIGN_OR_RETURN(PreflightReport preflight, FromProto(proto.preflight()));
  return GpuNotice::Hello{.protocol = proto.protocol(), .preflight = std::move(preflight)};
}

void WriteResult(const std::monostate& /*result*/, v1::GpuNotice::Answer& /*proto*/) {}
void WriteResult(const GpuNotice::MintedId& result, v1::GpuNotice::Answer& proto) {
  proto.set_communicator_id(result.id);
}
void WriteResult(const GpuNotice::CommunicatorBytes& result, v1::GpuNotice::Answer& proto) {
  proto.set_communicator_bytes(result.bytes);
}
void WriteResult(const TaskReport& result, v1::GpuNotice::Answer& proto) {
  *proto.mutable_report() = ReportToProto(result);
}

absl::StatusOr<GpuNotice::Answer::Result> ReadResult(const v1::GpuNotice::Answer& proto) {
  switch (proto.result_case()) {
    case v1::GpuNotice::Answer::kCommunicatorId:
      return GpuNotice::MintedId{.id = proto.communicator_id()};
    case v1::GpuNotice::Answer::kCommunicatorBytes:
      RETURN_IF_ERROR(CheckNumber("answer.communicator_bytes", proto.communicator_bytes(), 0));
      return GpuNotice::CommunicatorBytes{.bytes = proto.communicator_bytes()};
    case v1::GpuNotice::Answer::kReport:
      return ReportFromProto(proto.report());
    case v1::GpuNotice::Answer::RESULT_NOT_SET:
      break;
  }
  return std::monostate();
}

void Write(const GpuNotice::Answer& body, v1::GpuNotice& proto) {
  v1::GpuNotice::Answer& answer = *proto.mutable_answer();
  answer.set_request(body.request);
  *answer.mutable_status() = ToProto(body.status);
  std::visit([&answer](const auto& result) { WriteResult(result, answer); }, body.result);
}
absl::StatusOr<GpuNotice::Body> Read(const v1::GpuNotice::Answer& proto) {
  if (proto.request() == 0) return Malformed("answer.request", "a number from 1 on", "0");
  ASSIGN_OR_RETURN(GpuNotice::Answer::Result result, ReadResult(proto));
  return GpuNotice::Answer{
      .request = proto.request(), .status = FromProto(proto.status()), .result = std::move(result)};
}

void Write(const GpuNotice::TaskProgress& body, v1::GpuNotice& proto) {
  *proto.mutable_task_progress()->mutable_key() = ToProto(body.key);
  proto.mutable_task_progress()->set_moved_bytes(body.moved_bytes);
}
absl::StatusOr<GpuNotice::Body> Read(const v1::GpuNotice::TaskProgress& proto) {
  RETURN_IF_ERROR(CheckNumber("task_progress.moved_bytes", proto.moved_bytes(), 0));
  return GpuNotice::TaskProgress{.key = FromProto(proto.key()), .moved_bytes = proto.moved_bytes()};
}

void Write(const GpuNotice::CommunicatorLost& body, v1::GpuNotice& proto) {
  *proto.mutable_communicator_lost()->mutable_key() = ToProto(body.key);
  *proto.mutable_communicator_lost()->mutable_cause() = ToProto(body.cause);
}
absl::StatusOr<GpuNotice::Body> Read(const v1::GpuNotice::CommunicatorLost& proto) {
  ASSIGN_OR_RETURN(CommunicatorKey key, FromProto(proto.key()));
  return GpuNotice::CommunicatorLost{.key = std::move(key), .cause = CauseFromProto(proto.cause())};
}

void Write(const GpuNotice::LastWords& body, v1::GpuNotice& proto) {
  *proto.mutable_last_words()->mutable_cause() = ToProto(body.cause);
}

absl::StatusOr<GpuNotice::Body> ReadBody(const v1::GpuNotice& proto) {
  switch (proto.body_case()) {
    case v1::GpuNotice::kHello:
      return Read(proto.hello());
    case v1::GpuNotice::kAnswer:
      return Read(proto.answer());
    case v1::GpuNotice::kTaskProgress:
      return Read(proto.task_progress());
    case v1::GpuNotice::kCommunicatorLost:
      return Read(proto.communicator_lost());
    case v1::GpuNotice::kLastWords:
      return GpuNotice::LastWords{.cause = CauseFromProto(proto.last_words().cause())};
    case v1::GpuNotice::BODY_NOT_SET:
      break;
  }
  return Malformed("body", "a notice", "none that is known");
}

}  // namespace

std::string Encode(const GpuNotice& notice) {
  v1::GpuNotice proto;
  std::visit([&proto](const auto& body) { Write(body, proto); }, notice.body);
  return proto.SerializeAsString();
}

absl::StatusOr<GpuNotice> DecodeGpuNotice(absl::string_view bytes) {
  v1::GpuNotice proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Malformed("all", "a notice", absl::StrCat(bytes.size(), " bytes of something else"));
  }
  ASSIGN_OR_RETURN(GpuNotice::Body body, ReadBody(proto));
  return GpuNotice{.body = std::move(body)};
}

}  // namespace crossmesh
