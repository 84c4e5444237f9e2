#include "client/drawing/pipeline_drawing.h"

#include "client/drawing/pipeline_bars.h"
#include "client/drawing/svg_writer.h"
#include "client/drawing/time_axis.h"
#include "common/base/format.h"

#include <algorithm>
#include <array>
#include <optional>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

constexpr double kWidth = 1200;
constexpr double kMargin = 16;
constexpr double kLeft = 86;    // of the plot
constexpr double kTitle = 30;   // above each run
constexpr double kPeriod = 26;  // below its ranks
constexpr double kAxis = 44;
constexpr double kLegend = 30;
constexpr double kDigit = 6.4;          // width of one in a box
constexpr int64_t kMessagesMax = 3000;  // of a run
constexpr int32_t kTallRanksMax = 16;

constexpr absl::string_view kStyle =
    "text{font:12px sans-serif;fill:#222}.title{font-weight:bold;font-size:14px}"
    ".small{font-size:11px;fill:#555}.right{text-anchor:end}.tick{font-size:11px;fill:#555;"
    "text-anchor:middle}.number{font-size:10px;fill:#fff;text-anchor:middle}"
    ".grid{stroke:#e4e4e4}.row{fill:#f4f4f4}.period{stroke:#222;fill:none}"
    ".F0{fill:#4575b4}.F1{fill:#7ba7d9}.B0{fill:#2e8b57}.B1{fill:#74c090}"
    ".I0{fill:#2e8b57}.I1{fill:#74c090}.W0{fill:#d98c21}.W1{fill:#efbd74}"
    ".forward{stroke:#4575b4}.backward{stroke:#2e8b57}.transfer{fill:none;stroke-width:1.2}";

struct LegendEntry {
  OpKind kind;
  char letter;
  absl::string_view text;
};
constexpr std::array<LegendEntry, 4> kLegendEntries = {
    LegendEntry{OpKind::kForward, 'F', "forward"}, LegendEntry{OpKind::kBackward, 'B', "backward"},
    LegendEntry{OpKind::kInputGradient, 'I', "gradient of the input"},
    LegendEntry{OpKind::kWeightGradient, 'W', "gradient of the weights"}};

std::string ClassOf(OpKind kind, int32_t chunk) {
  const auto* const entry = std::ranges::find(kLegendEntries, kind, &LegendEntry::kind);
  return absl::StrCat(std::string(1, entry->letter), chunk % 2);
}

double EndOf(const PipelineTimeline& run) {
  double end = run.seconds;
  for (const TimeSpan& message : run.messages) end = std::max(end, message.end);
  return end;
}

class Drawing {
 public:
  Drawing(const std::vector<DrawnPipeline>& runs, DrawnTime time) : runs_(runs), time_(time) {
    double whole = 0;
    for (const DrawnPipeline& run : runs) {
      whole = std::max(whole, EndOf(*run.run));
      if (run.measured != nullptr) whole = std::max(whole, EndOf(*run.measured));
    }
    whole_ = whole > 0 ? whole : 1;
    pixel_seconds_ = whole_ / (kWidth - kMargin - kLeft);
  }

  std::string Draw() && {
    double height = kMargin + kLegend;
    for (const DrawnPipeline& run : runs_) height += HeightOf(run);
    const double plots = height;
    height += kAxis + (NoteText().empty() ? 0 : 18);
    SvgWriter svg(kWidth, height, kStyle);
    svg.Add("rect", {{"width", kWidth}, {"height", height}, {"fill", "#fff"}});
    DrawAxis(svg, kMargin + kLegend, plots);
    DrawLegend(svg);
    double top = kMargin + kLegend;
    for (const DrawnPipeline& run : runs_) {
      DrawRun(svg, run, top);
      top += HeightOf(run);
    }
    if (const std::string note = NoteText(); !note.empty()) {
      svg.AddText("text", note, {{"class", "small"}, {"x", kMargin}, {"y", height - 10}});
    }
    return std::move(svg).Finish();
  }

 private:
  double XOf(double seconds) const { return kLeft + seconds / pixel_seconds_; }
  static bool IsTall(const DrawnPipeline& run) {
    return run.ops->profile().ranks() <= kTallRanksMax;
  }
  static double RowHeight(const DrawnPipeline& run) { return IsTall(run) ? 18 : 7; }
  static double RowGap(const DrawnPipeline& run) { return IsTall(run) ? 14 : 3; }
  static double RankHeight(const DrawnPipeline& run) {
    return RowHeight(run) * (run.measured == nullptr ? 1 : 2) + RowGap(run);
  }
  static double HeightOf(const DrawnPipeline& run) {
    return kTitle + run.ops->profile().ranks() * RankHeight(run) + kPeriod;
  }
  static double TopOf(const DrawnPipeline& run, RankIndex rank) {
    return kTitle + rank * RankHeight(run);
  }
  std::string TimeText(double seconds) const {
    return time_ == DrawnTime::kSeconds ? FormatSeconds(seconds) : absl::StrFormat("%.4g", seconds);
  }

  void DrawAxis(SvgWriter& svg, double top, double bottom) const {
    const TimeUnit unit = time_ == DrawnTime::kSeconds ? UnitFor(whole_) : TimeUnit{"", 1};
    const double step = StepFor(whole_ / unit.seconds);
    for (int i = 0; i * step * unit.seconds <= whole_ * (1 + 1e-9); ++i) {
      const double x = XOf(i * step * unit.seconds);
      svg.Add("line", {{"class", "grid"}, {"x1", x}, {"y1", top}, {"x2", x}, {"y2", bottom}});
      svg.AddText("text", absl::StrFormat("%g", i * step),
                  {{"class", "tick"}, {"x", x}, {"y", bottom + 14}});
    }
    svg.AddText("text", unit.name.empty() ? "time" : absl::StrCat("time (", unit.name, ")"),
                {{"class", "tick"}, {"x", (kLeft + kWidth) / 2}, {"y", bottom + 32}});
  }

  bool HasKind(OpKind kind) const {
    return std::ranges::any_of(runs_, [kind](const DrawnPipeline& run) {
      for (OpIndex i = 0; i < run.ops->size(); ++i) {
        if (run.ops->op(i).kind == kind) return true;
      }
      return false;
    });
  }

  void DrawLegend(SvgWriter& svg) const {
    double x = kMargin;
    for (const LegendEntry& entry : kLegendEntries) {
      if (!HasKind(entry.kind)) continue;
      svg.Add("rect", {{"class", ClassOf(entry.kind, 0)},
                       {"x", x},
                       {"y", kMargin},
                       {"width", 14},
                       {"height", 12}});
      svg.AddText("text", entry.text, {{"x", x + 19}, {"y", kMargin + 10}});
      x += 40 + 6.2 * static_cast<double>(entry.text.size());
    }
    for (const bool forward : {true, false}) {
      svg.Add("line", {{"class", forward ? "transfer forward" : "transfer backward"},
                       {"x1", x},
                       {"y1", kMargin},
                       {"x2", x + 16},
                       {"y2", kMargin + 12}});
      const absl::string_view text = forward ? "activations" : "gradients on their way";
      svg.AddText("text", text, {{"x", x + 21}, {"y", kMargin + 10}});
      x += 42 + 6.2 * static_cast<double>(text.size());
    }
  }

  void DrawRun(SvgWriter& svg, const DrawnPipeline& run, double top) const {
    svg.Open("g",
             {{"class", "run"}, {"transform", absl::StrCat("translate(0 ", SvgNumber(top), ")")}});
    svg.AddText("text", TitleOf(run), {{"class", "title"}, {"x", kMargin}, {"y", 18}});
    // Transfers may pass ranks between their ends: behind the ops, and before the rows.
    const RankIndex ranks = run.ops->profile().ranks();
    for (RankIndex rank = 0; rank < ranks; ++rank) DrawRow(svg, run, rank);
    for (RankIndex rank = 0; rank < ranks; ++rank) DrawTransfers(svg, run, rank);
    for (RankIndex rank = 0; rank < ranks; ++rank) {
      const double row = TopOf(run, rank);
      DrawBars(svg, run, {.timeline = *run.run, .rank = rank, .top = row});
      if (run.measured == nullptr) continue;
      DrawBars(svg, run, {.timeline = *run.measured, .rank = rank, .top = row + RowHeight(run)});
    }
    DrawPeriod(svg, run);
    svg.Close();
  }

  std::string TitleOf(const DrawnPipeline& run) const {
    std::string title = absl::StrCat(SvgLabel(run.title, 60), ": ", TimeText(run.run->seconds));
    absl::StrAppendFormat(&title, ", bubble %.1f %%", 100 * BubbleRatio(*run.ops, *run.run));
    if (run.measured != nullptr) {
      absl::StrAppend(&title,
                      "; measured, the lower row of each rank: ", TimeText(run.measured->seconds));
    }
    return title;
  }

  void DrawRow(SvgWriter& svg, const DrawnPipeline& run, RankIndex rank) const {
    const double top = TopOf(run, rank), height = RowHeight(run);
    const int rows = run.measured == nullptr ? 1 : 2;
    if (IsTall(run) || rank % 8 == 0) {
      svg.AddText("text", absl::StrCat("rank ", rank),
                  {{"class", "small right"}, {"x", kLeft - 8}, {"y", top + height * rows / 2 + 4}});
    }
    svg.Add("rect", {{"class", "row"},
                     {"x", kLeft},
                     {"y", top},
                     {"width", kWidth - kMargin - kLeft},
                     {"height", height * rows}});
  }

  // What a rank does, from the y coordinate `top` on.
  struct RankRow {
    const PipelineTimeline& timeline;
    RankIndex rank = 0;
    double top = 0;
  };

  void DrawBars(SvgWriter& svg, const DrawnPipeline& drawn, const RankRow& row) const {
    const double height = RowHeight(drawn) - 1;
    const std::vector<PipelineBar> bars =
        MakeBars(*drawn.ops, row.timeline, row.rank, pixel_seconds_);
    for (const LegendEntry& entry : kLegendEntries) {
      for (const int32_t shade : {0, 1}) {
        std::string path;
        for (const PipelineBar& bar : bars) {
          if (bar.kind != entry.kind || bar.chunk % 2 != shade) continue;
          const double x = XOf(bar.begin), width = (bar.end - bar.begin) / pixel_seconds_;
          const double gap = bar.op != OpTable::kNone && width > 3 ? 1 : 0;
          absl::StrAppend(&path, "M", SvgNumber(x), " ", SvgNumber(row.top), "h",
                          SvgNumber(width - gap), "v", SvgNumber(height), "h-",
                          SvgNumber(width - gap), "z");
        }
        if (!path.empty()) svg.Add("path", {{"class", ClassOf(entry.kind, shade)}, {"d", path}});
      }
    }
    if (!IsTall(drawn)) return;
    for (const PipelineBar& bar : bars) {
      if (bar.op == OpTable::kNone) continue;
      const std::string number = absl::StrCat(drawn.ops->op(bar.op).microbatch);
      const double width = (bar.end - bar.begin) / pixel_seconds_;
      if (width < kDigit * static_cast<double>(number.size()) + 2) continue;
      svg.AddText(
          "text", number,
          {{"class", "number"}, {"x", XOf((bar.begin + bar.end) / 2)}, {"y", row.top + 12.5}});
    }
  }

  static bool HasTransfers(const DrawnPipeline& run) {
    return IsTall(run) && run.ops->messages() <= kMessagesMax;
  }

  // Those that leave a rank: from the row of the producer to that of the consumer.
  void DrawTransfers(SvgWriter& svg, const DrawnPipeline& drawn, RankIndex rank) const {
    if (!HasTransfers(drawn)) return;
    const OpTable& ops = *drawn.ops;
    for (const bool forward : {true, false}) {
      std::string path;
      for (TransferIndex transfer = forward ? 0 : 1; transfer < ops.transfers(); transfer += 2) {
        if (!ops.Passes(transfer)) continue;
        for (MicrobatchIndex m = 0; m < ops.schedule().microbatches; ++m) {
          if (ops.rank_of(ops.ProducerOf(transfer, m)) != rank) continue;
          const RankIndex to = ops.rank_of(ops.ConsumerOf(transfer, m));
          absl::StrAppend(&path, LineOf(drawn, ops.MessageOf(transfer, m), rank, to));
        }
      }
      if (path.empty()) continue;
      svg.Add("path", {{"class", forward ? "transfer forward" : "transfer backward"}, {"d", path}});
    }
  }

  std::string LineOf(const DrawnPipeline& drawn, MessageIndex message, RankIndex from,
                     RankIndex to) const {
    const TimeSpan& span = drawn.run->messages[message];
    const double row = RowHeight(drawn) * (drawn.measured == nullptr ? 1 : 2);
    const double y1 = TopOf(drawn, from) + (to > from ? row : 0);
    const double y2 = TopOf(drawn, to) + (to > from ? 0 : row);
    return absl::StrCat("M", SvgNumber(XOf(span.begin)), " ", SvgNumber(y1), "L",
                        SvgNumber(XOf(span.end)), " ", SvgNumber(y2));
  }

  // What a microbatch takes: between backward ops of the first stage with forward ops around them.
  void DrawPeriod(SvgWriter& svg, const DrawnPipeline& run) const {
    const int32_t m = run.ops->schedule().microbatches;
    const MicrobatchIndex first = m / 4, last = m / 2;
    if (last - first < 2) return;
    const OpIndex begin = run.ops->Backward(0, first), end = run.ops->Backward(0, last);
    const double begin_seconds = run.run->ops[begin].begin, end_seconds = run.run->ops[end].begin;
    const double y = TopOf(run, run.ops->profile().ranks()) - RowGap(run) + 9;
    const double x1 = XOf(begin_seconds), x2 = XOf(end_seconds);
    svg.Add("path", {{"class", "period"},
                     {"d", absl::StrCat("M", SvgNumber(x1), " ", SvgNumber(y - 4), "v8m0 -4L",
                                        SvgNumber(x2), " ", SvgNumber(y), "m0 -4v8")}});
    svg.AddText("text",
                absl::StrCat(last - first, " microbatches on rank ", run.ops->rank_of(begin), ": ",
                             TimeText((end_seconds - begin_seconds) / (last - first)), " each"),
                {{"class", "tick"}, {"x", (x1 + x2) / 2}, {"y", y + 15}});
  }

  std::string NoteText() const {
    std::string note;
    for (const DrawnPipeline& run : runs_) {
      if (!HasTransfers(run) && note.empty()) {
        note = "Transfers are left out: there are too many to be told apart. ";
      }
    }
    for (const DrawnPipeline& run : runs_) {
      for (RankIndex rank = 0; rank < run.ops->profile().ranks(); ++rank) {
        const auto bars = MakeBars(*run.ops, *run.run, rank, pixel_seconds_);
        if (bars.empty() || bars.front().op != OpTable::kNone) continue;
        return absl::StrCat(note,
                            "Where ops are narrower than a pixel, the kind is drawn that takes "
                            "most of it.");
      }
    }
    return note;
  }

  const std::vector<DrawnPipeline>& runs_;
  const DrawnTime time_;
  double whole_ = 1;
  double pixel_seconds_ = 1;
};

}  // namespace

std::string DrawPipelines(const std::vector<DrawnPipeline>& runs, DrawnTime time) {
  return Drawing(runs, time).Draw();
}

}  // namespace crossmesh
