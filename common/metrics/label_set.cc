#include "common/metrics/label_set.h"

#include <algorithm>
#include <iterator>

namespace crossmesh {

std::optional<TransportLink> FindTransportLink(absl::string_view transport,
                                               absl::string_view link) {
  for (size_t i = 0; i < std::size(kTransportLinks); ++i) {
    if (kTransportLinks[i][0] == transport && kTransportLinks[i][1] == link) {
      return static_cast<TransportLink>(i);
    }
  }
  return std::nullopt;
}

TransportKind TransportOf(TransportLink link) {
  const absl::string_view name = kTransportLinks[static_cast<size_t>(link)][0];
  return static_cast<TransportKind>(*FindLabel(kTransports, name));
}

std::optional<size_t> FindLabel(std::span<const absl::string_view> values,
                                absl::string_view value) {
  const auto found = std::find(values.begin(), values.end(), value);
  if (found == values.end()) return std::nullopt;
  return found - values.begin();
}

}  // namespace crossmesh
