#include "client/doctor/link_check.h"

#include "common/base/format.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

using Link = v1::MeasureNetworkResponse::Link;
using State = HostCheck::State;

constexpr int64_t kProbeNanoseconds = 50'000'000;
constexpr int64_t kProbeBytes = int64_t{64} << 20;
// A probe this short is slower than the link; one below this part of what is described is news.
constexpr double kShortPart = 0.5;

std::string RateText(double bytes_per_second) { return FormatRate(bytes_per_second); }

class Description {
 public:
  explicit Description(const v1::Topology& topology) {
    for (const v1::Host& host : topology.hosts()) {
      for (const v1::Nic& nic : host.nics()) {
        nics_[absl::StrCat(host.name(), "/", nic.name())] = &nic;
      }
    }
  }

  // What both ends allow; 0: one of them is not described.
  int64_t RateOf(const Link& link) const {
    const auto from = nics_.find(link.from()), to = nics_.find(link.to());
    if (from == nics_.end() || to == nics_.end()) return 0;
    return std::min(from->second->out_bytes_per_second(), to->second->in_bytes_per_second());
  }

 private:
  absl::flat_hash_map<std::string, const v1::Nic*> nics_;
};

std::string SpanText(const v1::MeasureNetworkResponse::Result& result) {
  const auto [slowest, fastest] =
      std::ranges::minmax_element(result.links(), {}, &Link::bytes_per_second);
  const auto latency = std::ranges::max_element(result.links(), {}, &Link::latency_ns);
  return absl::StrCat(result.links_size(), " at ",
                      RateText(static_cast<double>(slowest->bytes_per_second())), " (",
                      slowest->from(), " to ", slowest->to(), ") to ",
                      RateText(static_cast<double>(fastest->bytes_per_second())), ", at most ",
                      FormatSeconds(static_cast<double>(latency->latency_ns()) / 1e9), " one way");
}

std::vector<std::string> ShortOnes(const v1::MeasureNetworkResponse::Result& result) {
  const Description description(result.network().topology());
  std::vector<std::string> lines;
  for (const Link& link : result.links()) {
    const auto described = static_cast<double>(description.RateOf(link));
    const auto found = static_cast<double>(link.bytes_per_second());
    if (found >= kShortPart * described) continue;
    lines.push_back(absl::StrCat(link.from(), " to ", link.to(), ": described as ",
                                 RateText(described), ", found ", RateText(found)));
  }
  return lines;
}

}  // namespace

v1::MeasureNetworkRequest ShortProbe() {
  v1::MeasureNetworkRequest request;
  request.mutable_link_time()->set_nanos(kProbeNanoseconds);
  request.set_link_bytes(kProbeBytes);
  request.set_keep_description(true);
  return request;
}

HostCheck CheckLinks(const absl::StatusOr<v1::MeasureNetworkResponse::Result>& measured) {
  HostCheck check{.name = "links"};
  if (!measured.ok()) {
    const bool not_tried = absl::IsFailedPrecondition(measured.status());
    check.state = not_tried ? State::kNote : State::kProblem;
    check.found = std::string(measured.status().message());
    return check;
  }
  if (measured->links().empty()) {
    check.state = State::kProblem;
    check.found = "none can be used";
    check.advice = absl::StrJoin(measured->warnings(), "; ");
    return check;
  }
  check.found = SpanText(*measured);
  std::vector<std::string> advice = ShortOnes(*measured);
  const bool is_short = !advice.empty();
  advice.insert(advice.end(), measured->warnings().begin(), measured->warnings().end());
  if (is_short) advice.emplace_back("crossmesh network measure describes what is there");
  if (!advice.empty()) check.state = State::kNote;
  check.advice = absl::StrJoin(advice, "; ");
  return check;
}

}  // namespace crossmesh
