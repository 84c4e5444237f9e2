#include "client/cli/top_frame.h"

#include "client/cli/report_text.h"
#include "client/cli/status_report.h"
#include "client/outcome.h"
#include "common/base/format.h"
#include "common/base/table.h"

#include <algorithm>
#include <cmath>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

namespace crossmesh {
namespace {

// Below this bars would take the room of figures.
constexpr int kBarColumnsMin = 100;
constexpr int kShareBarWidth = 16;
constexpr size_t kSectionRowsMin = 3;  // a table's header, and one row

std::vector<std::string> LinesOf(const TextTable& table) {
  std::vector<std::string> lines = absl::StrSplit(table.ToString(), '\n');
  lines.pop_back();
  // The underlines take a line of a screen that has few.
  lines.erase(lines.begin() + 1);
  return lines;
}

absl::Duration TimeOf(const google::protobuf::Timestamp& time) {
  return absl::Seconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

std::string RateText(const std::optional<double>& rate) {
  return rate.has_value() ? FormatRate(*rate) : "-";
}

// "12 %" of a rate that is known, with a bar where there is room.
std::string ShareText(const std::optional<double>& rate, int64_t most, bool has_bar) {
  if (!rate.has_value() || most <= 0) return "-";
  const double share = *rate / static_cast<double>(most);
  const std::string percent = absl::StrCat(std::llround(share * 100), " %");
  return has_bar ? absl::StrCat(ShareBar(share, kShareBarWidth), " ", percent) : percent;
}

// The host of "node-a.0-3".
std::string HostOf(const v1::Worker& worker) {
  return worker.devices().substr(0, worker.devices().rfind('.'));
}

// Nothing that the network's description says.
const v1::Nic* FindNic(const v1::Network& network, const v1::Worker& worker,
                       const std::string& interface) {
  for (const v1::Host& host : network.topology().hosts()) {
    if (host.name() != HostOf(worker)) continue;
    for (const v1::Nic& nic : host.nics()) {
      if (nic.name() == interface) return &nic;
    }
  }
  return nullptr;
}

// The first of these that fit, and how many do not.
void AppendSection(const std::vector<std::string>& rows, size_t most,
                   std::vector<std::string>& lines) {
  if (rows.size() <= 1) return;  // a header alone
  lines.emplace_back();
  const size_t shown = std::min(rows.size(), most);
  lines.insert(lines.end(), rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(shown));
  if (shown < rows.size()) lines.back() = absl::StrCat("and ", rows.size() - shown + 1, " more");
}

// Of `budget` lines for all sections, so many for each: small ones get what they need, and what
// they leave is for the others.
std::vector<size_t> Share(size_t budget, const std::vector<size_t>& wanted) {
  std::vector<size_t> given(wanted.size(), 0);
  bool progress = true;
  while (budget > 0 && progress) {
    progress = false;
    for (size_t i = 0; i < wanted.size() && budget > 0; ++i) {
      if (given[i] == wanted[i]) continue;
      ++given[i];
      --budget;
      progress = true;
    }
  }
  return given;
}

}  // namespace

std::string ShareBar(double share, int width) {
  const int inner = width - 2;
  const int filled = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * inner));
  return absl::StrCat("[", std::string(filled, '#'), std::string(inner - filled, '.'), "]");
}

void TopFrame::Update(ClusterView view) {
  away_ = absl::OkStatus();
  std::map<std::string, RateWindow> operations;
  for (const v1::Operation& operation : view.operations) {
    if (HasEnded(operation)) continue;
    RateWindow& rate = operations[operation.id()] = operations_[operation.id()];
    rate.Add(view.taken, operation.moved_bytes());
  }
  operations_ = std::move(operations);
  std::map<std::pair<std::string, std::string>, Link> links;
  for (const v1::Worker& worker : view.workers) {
    for (const v1::InterfaceTraffic& traffic : worker.traffic()) {
      const std::pair key(worker.name(), traffic.interface());
      Link& link = links[key] = links_[key];
      const absl::Duration time = TimeOf(worker.last_heartbeat_time());
      link.sent.Add(time, traffic.sent_bytes());
      link.received.Add(time, traffic.received_bytes());
    }
  }
  links_ = std::move(links);
  view_ = std::move(view);
}

std::string TopFrame::Title() const {
  const v1::Controller& controller = view_->controller;
  return absl::StrCat("crossmesh ", view_->address, "  ", UtcText(controller.time()),
                      " UTC  epoch ", controller.epoch(), "  store ", controller.store().kind(),
                      " revision ", controller.store().revision(),
                      controller.store().is_full() ? " FULL" : "",
                      controller.store().is_read_only() ? " READ-ONLY" : "");
}

TopFrame::Lengths TopFrame::TransferRows(int columns) const {
  const bool has_bar = columns >= kBarColumnsMin;
  TextTable table({"TRANSFER", "STATE", "DONE>", "MOVED>", "OF>", "RATE>", "LEFT>"});
  for (const v1::Operation& operation : view_->operations) {
    if (HasEnded(operation)) continue;
    const std::optional<double> rate = operations_.at(operation.id()).per_second();
    const auto left = static_cast<double>(operation.total_bytes() - operation.moved_bytes());
    table.AddRow(
        {operation.id(), std::string(StateName(operation.state())),
         ShareText(static_cast<double>(operation.moved_bytes()), operation.total_bytes(), has_bar),
         Bytes(operation.moved_bytes()), Bytes(operation.total_bytes()), RateText(rate),
         rate.value_or(0) > 0 ? FormatSeconds(left / *rate) : "-"});
  }
  for (const v1::PipelineRun& run : view_->runs) {
    if (HasEnded(run)) continue;
    const auto tried = run.done_size() + run.failed_iterations();
    table.AddRow({run.id(), std::string(StateName(run.state())),
                  ShareText(static_cast<double>(tried), run.iterations(), has_bar),
                  absl::StrCat(tried, " it"), absl::StrCat(run.iterations(), " it"), "-", "-"});
  }
  return LinesOf(table);
}

TopFrame::Lengths TopFrame::LinkRows(int columns) const {
  const bool has_bar = columns >= kBarColumnsMin;
  TextTable table({"LINK", "NIC", "SENT>", "OF ITS RATE>", "RECEIVED>", "OF ITS RATE>"});
  for (const v1::Worker& worker : view_->workers) {
    for (const v1::InterfaceTraffic& traffic : worker.traffic()) {
      const Link& link = links_.at({worker.name(), traffic.interface()});
      const v1::Nic* const nic = FindNic(view_->network, worker, traffic.interface());
      const int64_t out = nic == nullptr ? 0 : nic->out_bytes_per_second();
      const int64_t in = nic == nullptr ? 0 : nic->in_bytes_per_second();
      table.AddRow({worker.name(), traffic.interface(), RateText(link.sent.per_second()),
                    ShareText(link.sent.per_second(), out, has_bar),
                    RateText(link.received.per_second()),
                    ShareText(link.received.per_second(), in, has_bar)});
    }
  }
  return LinesOf(table);
}

TopFrame::Lengths TopFrame::WorkerRows() const {
  TextTable table({"WORKER", "STATE", "TASKS>", "MEMORY>", "HEARD>", "DEVICES"});
  const absl::Duration now = TimeOf(view_->controller.time());
  for (const v1::Worker& worker : view_->workers) {
    const absl::Duration heard = now - TimeOf(worker.last_heartbeat_time());
    table.AddRow({worker.name(), std::string(StateName(worker.state())),
                  absl::StrCat(worker.running_tasks()), Bytes(worker.memory_bytes()),
                  FormatSeconds(std::max(absl::ToDoubleSeconds(heard), 0.0)), worker.devices()});
  }
  return LinesOf(table);
}

TopFrame::Lengths TopFrame::EndedRows() const {
  TextTable table({"ENDED", "STATE", "ENDED (UTC)", "MOVED>", "RATE>", "ERROR"});
  for (const v1::Operation& operation : view_->operations) {
    if (!HasEnded(operation)) continue;
    const double rate = operation.report().throughput_bytes_per_second();
    table.AddRow({operation.id(), std::string(StateName(operation.state())),
                  UtcText(operation.end_time()), Bytes(operation.moved_bytes()),
                  rate > 0 ? FormatRate(rate) : "-", PrintableName(operation.error())});
  }
  return LinesOf(table);
}

std::vector<std::string> TopFrame::Lines(const ScreenSize& size) const {
  std::vector<std::string> lines;
  if (view_.has_value()) {
    lines = {Title(), absl::StrCat("workers: ", WorkersText(*view_))};
  }
  if (!away_.ok()) lines.push_back(absl::StrCat("AWAY: ", PrintableName(away_.message())));
  if (view_.has_value()) {
    const std::vector<Lengths> sections = {TransferRows(size.columns), LinkRows(size.columns),
                                           WorkerRows(), EndedRows()};
    std::vector<size_t> wanted;
    // An empty line before each.
    for (const Lengths& rows : sections) wanted.push_back(rows.size() > 1 ? rows.size() + 1 : 0);
    const size_t used = lines.size();
    const size_t budget = static_cast<size_t>(size.lines) > used ? size.lines - used : 0;
    const std::vector<size_t> given = Share(budget, wanted);
    for (size_t i = 0; i < sections.size(); ++i) {
      if (given[i] >= std::min(kSectionRowsMin, wanted[i])) {
        AppendSection(sections[i], given[i] - std::min<size_t>(given[i], 1), lines);
      }
    }
  }
  lines.resize(std::min(lines.size(), static_cast<size_t>(size.lines)));
  for (std::string& line : lines) {
    line.resize(std::min(line.size(), static_cast<size_t>(size.columns)));
  }
  return lines;
}

}  // namespace crossmesh
