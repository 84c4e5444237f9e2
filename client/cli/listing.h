#pragma once

#include "client/cli/cli.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <google/protobuf/message.h>
#include <nlohmann/json.hpp>

namespace crossmesh {

// Of a list that is long, unless --count says more.
inline constexpr int64_t kListedDefault = 20;

inline constexpr const char* kWatchHelp = "Then print what changes, as it changes";

// InvalidArgument: --count asks for less than one.
absl::Status CheckCount(int64_t count);

// Things that a command lists, each with its name, its row of a table and its document.
// Thread-compatible.
class Listing {
 public:
  struct Item {
    std::string name;
    std::vector<std::string> cells;
    nlohmann::json document;  // null unless documents are asked for

    bool operator==(const Item&) const = default;
  };
  // What one of them is called and what all are, "mesh" and "meshes", and a table's columns as
  // TextTable has them.
  Listing(const Cli& cli, std::string one, std::string all, std::vector<std::string> columns)
      : has_documents_(cli.json()),
        one_(std::move(one)),
        all_(std::move(all)),
        columns_(std::move(columns)) {}

  void Add(std::string name, std::vector<std::string> cells,
           const google::protobuf::Message& message) {
    Add(std::move(name), std::move(cells), has_documents_ ? ToJson(message) : nlohmann::json());
  }
  void Add(std::string name, std::vector<std::string> cells, nlohmann::json document) {
    items_.push_back({std::move(name), std::move(cells), std::move(document)});
  }

  const std::string& one() const { return one_; }
  const std::string& all() const { return all_; }
  const std::vector<std::string>& columns() const { return columns_; }
  const std::vector<Item>& items() const { return items_; }

 private:
  bool has_documents_;
  std::string one_;
  std::string all_;
  std::vector<std::string> columns_;
  std::vector<Item> items_;
};

// As Cli::Answer: {"meshes": [...]}, a table, or a name in each line.
absl::Status AnswerListing(Cli& cli, const Listing& listing);

// What one look at a list finds that the look before it did not. Thread-compatible.
class ListChanges {
 public:
  struct Changes {
    std::vector<Listing::Item> changed;  // in the order of the list; all, the first time
    std::vector<std::string> gone;       // by name
  };
  Changes Update(const std::vector<Listing::Item>& items);

 private:
  absl::btree_map<std::string, Listing::Item> known_;
};

// How a list is watched.
struct Watching {
  absl::FunctionRef<absl::StatusOr<Listing>()> list;
  // Of a list of the newest ones, what leaves it is still there.
  bool tells_gone = true;
  absl::Duration every = absl::Seconds(1);
};

// Prints the list, and from then on what changes of it, until an error, --timeout or an interrupt:
// a row, a name, or a document in a line: {"mesh": ...}, and {"gone": NAME} for what has gone.
absl::Status WatchListing(Cli& cli, const Watching& watching);

}  // namespace crossmesh
