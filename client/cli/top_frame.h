#pragma once

#include "client/cli/cluster_view.h"
#include "client/cli/rate_window.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

struct ScreenSize {
  int columns = 80;
  int lines = 24;
};

// What `top` shows, from one look after the other: transfers, links against their rate, workers.
// Thread-compatible.
class TopFrame {
 public:
  // Rates are of what looks have in common.
  void Update(ClusterView view);
  // The last look could not be made: what is shown is older.
  void SetAway(absl::Status why) { away_ = std::move(why); }

  // At most so many lines, each of at most so many columns; what does not fit is counted.
  std::vector<std::string> Lines(const ScreenSize& size) const;

 private:
  struct Link {
    RateWindow sent;
    RateWindow received;
  };
  using Lengths = std::vector<std::string>;

  std::string Title() const;
  Lengths TransferRows(int columns) const;
  Lengths LinkRows(int columns) const;
  Lengths WorkerRows() const;
  Lengths EndedRows() const;

  std::optional<ClusterView> view_;
  absl::Status away_;
  std::map<std::string, RateWindow> operations_;               // by id
  std::map<std::pair<std::string, std::string>, Link> links_;  // by worker and interface
};

// A share of 1 as a bar of `width` with its frame, e.g. "[####......]".
std::string ShareBar(double share, int width);

}  // namespace crossmesh
