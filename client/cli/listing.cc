#include "client/cli/listing.h"

#include "client/pause.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/table.h"

#include <algorithm>
#include <optional>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

void PrintChanges(Cli& cli, const Listing& listing, const ListChanges::Changes& changes,
                  TextTable& table) {
  for (const Listing::Item& item : changes.changed) {
    if (cli.json()) {
      cli.PrintEvent({{listing.one(), item.document}}, /*is_last=*/false);
    } else if (cli.names()) {
      cli.Print(item.name + "\n");
    } else {
      table.AddRow(item.cells);
    }
  }
  for (const std::string& name : changes.gone) {
    if (cli.json()) {
      cli.PrintEvent({{"gone", name}}, /*is_last=*/false);
    } else if (!cli.names()) {
      std::vector<std::string> cells(listing.columns().size());
      cells.front() = name;
      cells[1] = "GONE";
      table.AddRow(std::move(cells));
    }
  }
  if (!cli.json() && !cli.names()) cli.Print(table.TakeText());
}

}  // namespace

absl::Status CheckCount(int64_t count) {
  if (count >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--count: expected at least 1, found ", count));
}

absl::Status AnswerListing(Cli& cli, const Listing& listing) {
  nlohmann::json documents = nlohmann::json::array();
  TextTable table(listing.columns());
  std::string names;
  for (const Listing::Item& item : listing.items()) {
    documents.push_back(item.document);
    table.AddRow(item.cells);
    absl::StrAppend(&names, item.name, "\n");
  }
  return cli.Answer(nlohmann::json{{listing.all(), std::move(documents)}},
                    cli.names() ? names : table.ToString());
}

ListChanges::Changes ListChanges::Update(const std::vector<Listing::Item>& items) {
  Changes changes;
  absl::btree_map<std::string, Listing::Item> now;
  for (const Listing::Item& item : items) {
    now.emplace(item.name, item);
    const auto known = known_.find(item.name);
    if (known == known_.end() || known->second != item) changes.changed.push_back(item);
  }
  for (const auto& [name, item] : known_) {
    if (!now.contains(name)) changes.gone.push_back(name);
  }
  known_ = std::move(now);
  return changes;
}

absl::Status WatchListing(Cli& cli, const Watching& watching) {
  const RealClock clock;
  const absl::Duration end = clock.Monotonic() + cli.timeout();
  ListChanges list_changes;
  std::optional<TextTable> table;
  while (true) {
    ASSIGN_OR_RETURN(const Listing listing, watching.list());
    if (!table.has_value()) table.emplace(listing.columns());
    ListChanges::Changes changes = list_changes.Update(listing.items());
    if (!watching.tells_gone) changes.gone.clear();
    PrintChanges(cli, listing, changes, *table);
    RETURN_IF_ERROR(cli.OutputError());
    const absl::Duration left = end - clock.Monotonic();
    if (left <= watching.every) {
      Pause(std::max(left, absl::ZeroDuration()));
      return absl::DeadlineExceededError(
          absl::StrCat("watched for ", absl::FormatDuration(cli.timeout()), ", as --timeout says"));
    }
    Pause(watching.every);
  }
}

}  // namespace crossmesh
