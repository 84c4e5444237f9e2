#pragma once

#include <optional>
#include <string>

#include <absl/status/status.h>

namespace crossmesh {

// What an error says, for programs. Empty is what it does not say.
struct ErrorDetails {
  std::string object;  // the field, flag, file or thing that it is about
  std::string expected;
  std::string found;

  friend bool operator==(const ErrorDetails&, const ErrorDetails&) = default;
};

// Of an error that came over gRPC the details that came with it. Else those of its message: all of
// ours have the form "OBJECT: expected EXPECTED, found FOUND; MORE", or "OBJECT: FOUND; MORE", with
// names of users in double quotes. All empty where it has no such form. Cost: linear in the
// message.
ErrorDetails DetailsOf(const absl::Status& status);

// Of the google.rpc.ErrorInfo that an error has with it, which begins as DetailsOf has it: the
// reason, empty when there is none, and one more fact for programs, by its key.
std::string ErrorReasonOf(const absl::Status& status);
void SetErrorReason(absl::Status& status, const std::string& reason);
std::optional<std::string> ErrorDetailOf(const absl::Status& status, const std::string& key);
void SetErrorDetail(absl::Status& status, const std::string& key, const std::string& value);

// The details as the bytes of a google.rpc.Status with a google.rpc.ErrorInfo, which gRPC sends as
// "grpc-status-details-bin"; empty when there are none, or when they would be larger than a trailer
// should be.
std::string EncodeDetails(const absl::Status& status);

// Gives `status` the details of such bytes. Bytes that are none, of a peer that is not ours, change
// nothing.
void DecodeDetails(const std::string& bytes, absl::Status& status);

}  // namespace crossmesh
