#include "client/drawing/pipeline_bars.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace crossmesh {
namespace {

std::vector<int32_t> ChunksOfStages(const PipelineProfile& profile) {
  std::vector<int32_t> chunks, seen(profile.ranks());
  for (const StageProfile& stage : profile.stages) chunks.push_back(seen[stage.rank]++);
  return chunks;
}

// One for each op.
std::vector<PipelineBar> PlainBars(const OpTable& ops, const PipelineTimeline& run,
                                   RankIndex rank) {
  const std::vector<int32_t> chunks = ChunksOfStages(ops.profile());
  std::vector<PipelineBar> bars;
  for (OpIndex i = ops.first(rank); i < ops.first(rank + 1); ++i) {
    bars.push_back({.begin = run.ops[i].begin,
                    .end = run.ops[i].end,
                    .kind = ops.op(i).kind,
                    .chunk = chunks[ops.op(i).stage],
                    .op = i});
  }
  return bars;
}

// What is done in one pixel, by kind and stage, in seconds.
using Pixel = std::map<std::pair<OpKind, int32_t>, double>;

std::vector<Pixel> PixelsOf(const std::vector<PipelineBar>& bars, double pixel_seconds) {
  std::vector<Pixel> pixels(static_cast<size_t>(std::ceil(bars.back().end / pixel_seconds)) + 1);
  for (const PipelineBar& bar : bars) {
    const auto first = static_cast<size_t>(bar.begin / pixel_seconds);
    for (size_t i = first; static_cast<double>(i) * pixel_seconds < bar.end; ++i) {
      const double begin = static_cast<double>(i) * pixel_seconds;
      pixels[i][{bar.kind, bar.chunk}] +=
          std::min(bar.end, begin + pixel_seconds) - std::max(bar.begin, begin);
    }
  }
  return pixels;
}

std::vector<PipelineBar> MergedBars(const std::vector<PipelineBar>& bars, double pixel_seconds) {
  const std::vector<Pixel> pixels = PixelsOf(bars, pixel_seconds);
  std::vector<PipelineBar> merged;
  for (size_t i = 0; i < pixels.size(); ++i) {
    const Pixel& pixel = pixels[i];
    double busy = 0;
    for (const auto& [what, seconds] : pixel) busy += seconds;
    // A pixel that is mostly idle stays empty, so that bubbles are seen.
    if (busy < pixel_seconds / 2) continue;
    const auto most =
        std::ranges::max_element(pixel, {}, [](const auto& entry) { return entry.second; });
    const auto [kind, chunk] = most->first;
    const double begin = static_cast<double>(i) * pixel_seconds;
    if (!merged.empty() && merged.back().end == begin && merged.back().kind == kind &&
        merged.back().chunk == chunk) {
      merged.back().end = static_cast<double>(i + 1) * pixel_seconds;
    } else {
      merged.push_back({.begin = begin,
                        .end = static_cast<double>(i + 1) * pixel_seconds,
                        .kind = kind,
                        .chunk = chunk});
    }
  }
  return merged;
}

}  // namespace

std::vector<PipelineBar> MakeBars(const OpTable& ops, const PipelineTimeline& run, RankIndex rank,
                                  double pixel_seconds) {
  std::vector<PipelineBar> bars = PlainBars(ops, run, rank);
  double busy = 0;
  for (const PipelineBar& bar : bars) busy += bar.end - bar.begin;
  const bool fits = bars.empty() || busy >= static_cast<double>(bars.size()) * pixel_seconds;
  return fits ? bars : MergedBars(bars, pixel_seconds);
}

}  // namespace crossmesh
