#include "common/communicators/communicator_key.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {

std::string RankName::ToString() const { return absl::StrCat(gpu, "#", incarnation); }

std::string CommunicatorKey::ToString() const {
  constexpr size_t kShownMax = 4;
  const size_t shown = ranks.size() > kShownMax ? kShownMax - 1 : ranks.size();
  std::string text = absl::StrCat(purpose, "@", epoch, "[");
  for (size_t rank = 0; rank < shown; ++rank) {
    absl::StrAppend(&text, rank == 0 ? "" : ",", ranks[rank].ToString());
  }
  if (shown < ranks.size()) absl::StrAppend(&text, " and ", ranks.size() - shown, " more");
  return text + "]";
}

}  // namespace crossmesh
