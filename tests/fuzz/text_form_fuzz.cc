// What parses as a text form prints, and its print parses to the same value.

#include "common/base/check.h"
#include "common/mesh/box.h"
#include "common/mesh/device.h"
#include "common/mesh/layout.h"
#include "common/mesh/layout_rules.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"
#include "common/rpc/address.h"
#include "tests/fuzz/fuzz_input.h"

#include <utility>

namespace crossmesh {
namespace {

constexpr int kRankMax = 4;

template <typename Parse, typename Print>
void CheckRoundTrip(absl::string_view text, Parse parse, Print print) {
  const auto value = parse(text);
  if (!value.ok()) return;
  const auto again = parse(print(*value));
  CHECK_OK(again);
  CHECK(*again == *value) << print(*value);
}

// The first line is a tensor's name, the rest rules.
void CheckRules(absl::string_view text) {
  const size_t line_end = std::min(text.find('\n'), text.size());
  const absl::StatusOr<LayoutRules> rules =
      LayoutRules::Parse(text.substr(std::min(line_end + 1, text.size())));
  if (!rules.ok()) return;
  for (int rank = 0; rank <= kRankMax; ++rank) {
    const absl::StatusOr<RuleMatch> match = rules->Match(text.substr(0, line_end), rank);
    if (!match.ok() || match->layout.axes() == nullptr) continue;
    CHECK_EQ(std::ssize(match->layout.axes()->dimensions), rank);
  }
}

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  const absl::string_view text = TextOf(data, size);
  const auto print = [](const auto& value) { return ToString(value); };
  CheckRoundTrip(text, ParseMesh, print);
  CheckRoundTrip(text, ParseShape, print);
  CheckRoundTrip(text, ParseBox, print);
  CheckRoundTrip(text, ParseLayout, print);
  CheckRoundTrip(text, ParseDevice, print);
  CheckRoundTrip(text, ParseAxes, AxesToString);
  CheckRoundTrip(text, ParseDevices, DevicesToString);
  CheckRoundTrip(text, ParseCoordinates, CoordinatesToString);
  CheckRoundTrip(text, ParseRpcAddress,
                 [](const RpcAddress& address) { return address.ToString(); });
  CheckRules(text);
}

}  // namespace crossmesh
