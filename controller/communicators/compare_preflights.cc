#include "controller/communicators/compare_preflights.h"

#include "common/base/status_macros.h"
#include "common/communicators/gpu_share.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Each host has its own network, files and logs.
constexpr absl::string_view kOfHost[] = {
    "NCCL_CONF_FILE",     "NCCL_DEBUG",     "NCCL_DEBUG_FILE",    "NCCL_DEBUG_SUBSYS",
    "NCCL_GRAPH_FILE",    "NCCL_HOSTID",    "NCCL_IB_HCA",        "NCCL_RAS_ADDR",
    "NCCL_SOCKET_IFNAME", "NCCL_TOPO_FILE", "NCCL_TOPO_DUMP_FILE"};

bool MustBeEqual(absl::string_view variable) {
  return absl::StartsWith(variable, "NCCL_") &&
         std::ranges::find(kOfHost, variable) == std::end(kOfHost);
}

std::string ValueOf(const PreflightReport& report, const std::string& variable) {
  const auto found = report.environment.find(variable);
  return found == report.environment.end() ? "unset" : absl::StrCat("\"", found->second, "\"");
}

// What one rank has.
struct Found {
  const PreflightReport& report;
  std::string value;

  std::string ToString() const {
    return absl::StrCat("rank ", report.rank.ToString(), " has ", value);
  }
};

absl::Status Differ(absl::string_view field, const Found& a, const Found& b) {
  return absl::FailedPreconditionError(
      absl::StrCat(field, " differs: ", a.ToString(), ", ", b.ToString()));
}

std::string NcclOf(const PreflightReport& report) {
  return absl::StrCat(report.nccl_version, " (", report.nccl_library, ")");
}

absl::Status CompareEnvironments(const PreflightReport& a, const PreflightReport& b) {
  std::set<std::string> variables;
  for (const PreflightReport* report : {&a, &b}) {
    for (const auto& [variable, value] : report->environment) {
      if (MustBeEqual(variable)) variables.insert(variable);
    }
  }
  for (const std::string& variable : variables) {
    const Found in_a = {a, ValueOf(a, variable)}, in_b = {b, ValueOf(b, variable)};
    if (in_a.value != in_b.value) return Differ(variable, in_a, in_b);
  }
  return absl::OkStatus();
}

absl::Status CheckGpus(std::span<const PreflightReport> reports) {
  std::map<std::string, const PreflightReport*> by_gpu;
  for (const PreflightReport& report : reports) {
    const auto [other, is_new] = by_gpu.emplace(UuidOf(report.rank.gpu), &report);
    // Environments have been compared, so the other one has the same value.
    if (is_new || ValueOf(report, "NCCL_MULTI_RANK_GPU_ENABLE") == "\"1\"") continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "duplicate GPU: ranks ", other->second->rank.ToString(), " and ", report.rank.ToString(),
        " are on ", other->first, ", and NCCL_MULTI_RANK_GPU_ENABLE is not 1"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ComparePreflights(std::span<const PreflightReport> reports, int64_t bytes_needed) {
  for (const PreflightReport& report : reports) {
    const PreflightReport& first = reports.front();
    if (report.nccl_version != first.nccl_version) {
      return Differ("NCCL version", {first, NcclOf(first)}, {report, NcclOf(report)});
    }
    RETURN_IF_ERROR(CompareEnvironments(first, report));
    if (report.free_bytes < bytes_needed) {
      return absl::FailedPreconditionError(
          absl::StrCat("too little memory: a communicator takes about ", bytes_needed,
                       " bytes, rank ", report.rank.ToString(), " has ", report.free_bytes));
    }
  }
  return CheckGpus(reports);
}

}  // namespace crossmesh
