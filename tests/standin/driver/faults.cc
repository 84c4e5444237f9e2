#include "tests/standin/driver/faults.h"

#include "tests/standin/driver/journal.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kNames[] = {
    "abort_hangs",   "async_error_at",    "broken_result", "context_result",
    "corrupt_at",    "corrupt_copy_at",   "driver_result", "illegal_address_at",
    "import_result", "in_progress_polls", "init_fails",    "init_never_ends",
    "m2n_fails_at",  "out_of_memory_at",  "stall_at"};

bool IsName(absl::string_view name) {
  for (const absl::string_view known : kNames) {
    if (name == known) return true;
  }
  return false;
}

std::string TextOf(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

// Empty when there is no such file.
std::string ContentOf(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  return std::string(absl::StripAsciiWhitespace(content.str()));
}

}  // namespace

Faults& Faults::OfProcess() {
  static Faults& faults = *[] {
    auto* made = new Faults;
    const std::string text = absl::StrCat(TextOf("CROSSMESH_STANDIN_FAULTS"), ",",
                                          ContentOf(TextOf("CROSSMESH_STANDIN_FAULTS_FILE")));
    if (!made->Set(text)) {
      Journal::OfProcess().Violate(absl::StrCat("faults cannot be read: '", text, "'"));
    }
    return made;
  }();
  return faults;
}

bool Faults::Set(absl::string_view text) {
  std::map<std::string, Fault, std::less<>> read;
  for (const absl::string_view entry : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    int64_t value = 0;
    if (!IsName(parts.first) || !absl::SimpleAtoi(parts.second, &value)) return false;
    read[std::string(parts.first)].value = value;
  }
  MutexLock lock(mutex_);
  faults_ = std::move(read);
  return true;
}

int64_t Faults::Value(absl::string_view name) {
  MutexLock lock(mutex_);
  const auto found = faults_.find(name);
  return found == faults_.end() ? 0 : found->second.value;
}

bool Faults::Due(absl::string_view name) {
  MutexLock lock(mutex_);
  const auto found = faults_.find(name);
  return found != faults_.end() && ++found->second.events == found->second.value;
}

}  // namespace crossmesh
