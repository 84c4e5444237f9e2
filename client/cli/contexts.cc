#include "client/cli/contexts.h"

#include "client/cli/cli.h"
#include "common/base/status_macros.h"
#include "common/daemon/toml_entries.h"
#include "common/wire/object_name.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <unistd.h>

namespace crossmesh {
namespace {

absl::Status Refuse(const std::string& file, const TomlEntry& entry, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(
      file, ":", entry.line, ": expected ", expected, ", found ",
      entry.key.empty() ? absl::StrCat("[", entry.table, "]") : absl::StrCat("\"", entry.key, "\""),
      entry.value.empty() ? "" : absl::StrCat(" = \"", entry.value, "\"")));
}

absl::Status SetEntry(const std::string& file, const TomlEntry& entry, ControllerContext& context) {
  if (entry.key.empty()) return absl::OkStatus();  // the table itself
  if (entry.key == "controller") {
    if (!entry.is_text || entry.value.empty()) return Refuse(file, entry, "an address in quotes");
    context.controller = entry.value;
    return absl::OkStatus();
  }
  if (entry.key != "insecure") {
    return Refuse(file, entry, "\"controller\" or \"insecure\" of a context");
  }
  context.insecure = entry.value == "true";
  const bool is_truth = !entry.is_text && (context.insecure || entry.value == "false");
  return is_truth ? absl::OkStatus() : Refuse(file, entry, "true or false");
}

// What stands in quotes without being changed.
bool IsPlain(absl::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char letter) {
    return absl::ascii_isgraph(static_cast<unsigned char>(letter)) && letter != '"' &&
           letter != '\\';
  });
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string Contexts::FilePath() {
  constexpr const char* kFile = "crossmesh/config.toml";
  const std::filesystem::path base = Variable("XDG_CONFIG_HOME");
  // A relative one is to be ignored, as the standard has it.
  if (base.is_absolute()) return base / kFile;
  const std::filesystem::path home = Variable("HOME");
  return home.is_absolute() ? home / ".config" / kFile : "";
}

absl::StatusOr<Contexts> Contexts::Read(const std::string& path) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) {
    if (!error || path.empty()) return Contexts();
    return absl::InvalidArgumentError(absl::StrCat("file ", path, ": ", error.message()));
  }
  if (std::filesystem::is_empty(path, error)) return Contexts();
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return Parse(path, text);
}

absl::StatusOr<Contexts> Contexts::Parse(const std::string& file, const std::string& text) {
  ASSIGN_OR_RETURN(const std::vector<TomlEntry> entries, ParseToml(file, text));
  Contexts contexts;
  for (const TomlEntry& entry : entries) {
    if (!entry.table.empty()) {
      if (!IsObjectName(entry.table)) return Refuse(file, entry, "a name of [a-z0-9._-]{1,63}");
      RETURN_IF_ERROR(SetEntry(file, entry, contexts.all_[entry.table]));
    } else if (entry.key == "current" && entry.is_text) {
      contexts.current_ = entry.value;
    } else {
      return Refuse(file, entry, "current = \"CONTEXT\" above all tables");
    }
  }
  for (const TomlEntry& entry : entries) {
    if (entry.key.empty() && contexts.all_[entry.table].controller.empty()) {
      return Refuse(file, entry, "a context with a \"controller\"");
    }
    if (entry.table.empty() && entry.key == "current" && !contexts.all_.contains(entry.value)) {
      return Refuse(file, entry, "the name of a context below");
    }
  }
  return contexts;
}

absl::StatusOr<ControllerContext> Contexts::Find(absl::string_view name) const {
  const auto found = all_.find(name);
  if (found != all_.end()) return found->second;
  const std::string names = absl::StrJoin(
      all_, ", ", [](std::string* out, const auto& entry) { absl::StrAppend(out, entry.first); });
  return absl::NotFoundError(absl::StrCat("context \"", name, "\": expected ",
                                          names.empty() ? "one of none" : "one of ", names));
}

absl::Status Contexts::Set(const std::string& name, const ControllerContext& context) {
  RETURN_IF_ERROR(CheckObjectName("context", name));
  if (!IsPlain(context.controller)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "context \"", name, "\": expected an address, found \"", context.controller, "\""));
  }
  all_[name] = context;
  return absl::OkStatus();
}

absl::Status Contexts::Use(const std::string& name) {
  RETURN_IF_ERROR(Find(name).status());
  current_ = name;
  return absl::OkStatus();
}

absl::Status Contexts::Delete(const std::string& name) {
  RETURN_IF_ERROR(Find(name).status());
  all_.erase(name);
  if (current_ == name) current_.clear();
  return absl::OkStatus();
}

std::string Contexts::ToText() const {
  std::string text;
  if (!current_.empty()) absl::StrAppend(&text, "current = \"", current_, "\"\n");
  for (const auto& [name, context] : all_) {
    absl::StrAppend(&text, "\n[", name, "]\ncontroller = \"", context.controller, "\"\n",
                    context.insecure ? "insecure = true\n" : "");
  }
  return text;
}

absl::Status Contexts::Write(const std::string& path) const {
  if (path.empty()) {
    return absl::FailedPreconditionError(
        "contexts: expected a home in HOME or XDG_CONFIG_HOME, found none");
  }
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const std::string next = absl::StrCat(path, ".", getpid());
  RETURN_IF_ERROR(WriteFile(next, ToText()));
  if (std::rename(next.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const absl::Status failed = absl::ErrnoToStatus(errno, absl::StrCat("writing ", path));
  unlink(next.c_str());
  return failed;
}

}  // namespace crossmesh
