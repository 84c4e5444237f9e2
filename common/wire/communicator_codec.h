#pragma once

#include "common/communicators/communicator_key.h"
#include "common/communicators/preflight_report.h"
#include "crossmesh/v1/communicator.pb.h"

#include <cstddef>

#include <absl/status/statusor.h>

namespace crossmesh {

inline constexpr int kCommunicatorRanksMax = 4096;
inline constexpr size_t kGpuNameBytesMax = 128;
inline constexpr int kPreflightVariablesMax = 1024;
inline constexpr int kPreflightCommunicatorsMax = 1024;

v1::CommunicatorKey::Rank ToProto(const RankName& rank);
// InvalidArgument unless the GPU's name has 1 to kGpuNameBytesMax bytes.
absl::StatusOr<RankName> FromProto(const v1::CommunicatorKey::Rank& proto);

v1::CommunicatorKey ToProto(const CommunicatorKey& key);
// InvalidArgument for a bad rank, no rank or more than kCommunicatorRanksMax, one that is there
// twice, or a purpose without or with more than kGpuNameBytesMax bytes.
absl::StatusOr<CommunicatorKey> FromProto(const v1::CommunicatorKey& proto);

v1::PreflightReport ToProto(const PreflightReport& report);
// InvalidArgument for a bad rank, more than kPreflightVariablesMax variables or
// kPreflightCommunicatorsMax communicators, one that is there twice, or a negative number.
absl::StatusOr<PreflightReport> FromProto(const v1::PreflightReport& proto);

}  // namespace crossmesh
