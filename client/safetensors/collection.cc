#include "client/safetensors/collection.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/json_reader.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr absl::string_view kFileSuffix = ".safetensors";

// What a file says may be long, and hold any bytes.
std::string Escaped(absl::string_view text) { return absl::CHexEscape(text.substr(0, 80)); }

// Tensor to file name, as the index says.
using Index = std::map<std::string, std::string>;

absl::StatusOr<Index> ReadIndex(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const absl::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                               file.bytes().size());
  ASSIGN_OR_RETURN(const json document, ParseJson(path, text));
  const auto files = document.is_object() ? document.find("weight_map") : document.end();
  if (files == document.end() || !files->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected an object with an object \"weight_map\""));
  }
  Index index;
  for (const auto& [tensor, value] : files->items()) {
    const std::string name = value.is_string() ? value.get<std::string>() : "";
    if (!absl::EndsWith(name, kFileSuffix) || absl::StrContains(name, '/')) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor \"", Escaped(tensor), "\": expected the name of a ",
                       kFileSuffix, " file in the same folder, found ", Escaped(value.dump())));
    }
    index.emplace(tensor, name);
  }
  return index;
}

// The index lists exactly these files' tensors, each in its file.
absl::Status CheckIndex(const std::string& path, Index index,
                        const std::vector<SafetensorsFile>& files) {
  for (const SafetensorsFile& file : files) {
    const std::string name = fs::path(file.path()).filename().string();
    for (const SafetensorsTensor& tensor : file.header().tensors) {
      const auto listed = index.find(tensor.spec.name);
      if (listed == index.end() || listed->second != name) {
        return absl::InvalidArgumentError(absl::StrCat(
            path, ": tensor \"", Escaped(tensor.spec.name), "\": expected it in ", name,
            ", which has it, found ", listed == index.end() ? "nothing" : listed->second));
      }
      index.erase(listed);
    }
  }
  if (index.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": tensor \"", Escaped(index.begin()->first),
                                                 "\": expected it in ", index.begin()->second,
                                                 ", which does not have it"));
}

absl::StatusOr<std::vector<std::string>> FilesIn(const fs::path& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == fs::path(std::string(kFileSuffix))) {
      paths.push_back(entry->path().string());
    }
  }
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", folder.string()));
  }
  if (paths.empty()) {
    return absl::NotFoundError(
        absl::StrCat(folder.string(), ": expected files named *", kFileSuffix, ", found none"));
  }
  std::ranges::sort(paths);
  return paths;
}

}  // namespace

absl::StatusOr<SafetensorsCollection> SafetensorsCollection::Open(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return OpenFiles({path});
  const std::string index_path = (fs::path(path) / kIndexName).string();
  if (!fs::exists(index_path, error)) {
    ASSIGN_OR_RETURN(const std::vector<std::string> paths, FilesIn(path));
    return OpenFiles(paths);
  }
  ASSIGN_OR_RETURN(Index index, ReadIndex(index_path));
  // Each once, and in the order of a folder without an index.
  std::set<std::string> names;
  for (const auto& [tensor, name] : index) names.insert((fs::path(path) / name).string());
  ASSIGN_OR_RETURN(SafetensorsCollection collection, OpenFiles({names.begin(), names.end()}));
  RETURN_IF_ERROR(CheckIndex(index_path, std::move(index), collection.files_));
  return collection;
}

absl::StatusOr<SafetensorsCollection> SafetensorsCollection::OpenFiles(
    const std::vector<std::string>& paths) {
  SafetensorsCollection collection;
  std::vector<TensorSpec> tensors;
  absl::flat_hash_map<std::string, size_t> file_of;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
    const size_t file_index = collection.files_.size();
    const std::vector<SafetensorsTensor>& listed = file.header().tensors;
    for (size_t i = 0; i < listed.size(); ++i) {
      const auto [first, is_new] = file_of.try_emplace(listed[i].spec.name, file_index);
      if (!is_new) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": tensor \"", Escaped(listed[i].spec.name),
                         "\": expected it in one file, found "
                         "it in ",
                         collection.files_[first->second].path(), " as well"));
      }
      tensors.push_back(listed[i].spec);
      collection.places_.push_back({.file = file_index, .index = i});
    }
    collection.files_.push_back(std::move(file));
  }
  ASSIGN_OR_RETURN(collection.manifest_,
                   At(absl::StrCat(paths.front(), paths.size() == 1 ? "" : " and others"),
                      Manifest::Create(std::move(tensors))));
  return collection;
}

}  // namespace crossmesh
