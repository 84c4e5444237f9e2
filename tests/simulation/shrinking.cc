#include "tests/simulation/shrinking.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int kTriesMax = 300;
constexpr size_t kLogBytesMax = 6000;

class Shrinking {
 public:
  explicit Shrinking(SimulationOptions options) : best_(std::move(options)) {
    best_.keeps_log = false;
    best_.faults = RunSimulation(best_).faults;
  }

  const SimulationOptions& best() const { return best_; }

  void Run() {
    for (size_t i = 0; i < best_.clients.size();) {
      SimulationOptions fewer = best_;
      fewer.clients.erase(fewer.clients.begin() + static_cast<ptrdiff_t>(i));
      if (!TakeIfViolated(std::move(fewer))) ++i;
    }
    // Delta debugging: large pieces first.
    for (size_t piece = std::max<size_t>(best_.faults->size() / 2, 1); piece > 0; piece /= 2) {
      for (size_t begin = 0; begin < best_.faults->size();) {
        SimulationOptions fewer = best_;
        const size_t end = std::min(begin + piece, fewer.faults->size());
        fewer.faults->erase(fewer.faults->begin() + static_cast<ptrdiff_t>(begin),
                            fewer.faults->begin() + static_cast<ptrdiff_t>(end));
        if (!TakeIfViolated(std::move(fewer))) begin += piece;
      }
    }
  }

 private:
  bool TakeIfViolated(SimulationOptions options) {
    if (++tries_ > kTriesMax || !RunSimulation(options).violation.has_value()) return false;
    best_ = std::move(options);
    return true;
  }

  SimulationOptions best_;
  int tries_ = 0;
};

}  // namespace

std::string ShortestHistory(SimulationOptions options) {
  Shrinking shrinking(std::move(options));
  shrinking.Run();
  return TellHistory(shrinking.best());
}

std::string TellHistory(SimulationOptions options) {
  options.keeps_log = true;
  const SimulationResult result = RunSimulation(options);
  std::string text =
      absl::StrCat("seed ", options.seed, ": ",
                   result.violation.value_or("nothing, when it is run again"), "\nfaults:\n");
  if (options.crash.has_value()) {
    absl::StrAppend(&text, "  node ", options.crash->node, " ends before its effect ",
                    options.crash->effect,
                    options.crash->loses_power ? ", and the power is lost\n" : "\n");
  }
  for (const SimulatedFault& fault : result.faults)
    absl::StrAppend(&text, "  ", fault.ToString(), "\n");
  const size_t begin = result.log.size() > kLogBytesMax ? result.log.size() - kLogBytesMax : 0;
  absl::StrAppend(&text, "the last of what happened:\n", result.log.substr(begin));
  return text;
}

}  // namespace crossmesh
