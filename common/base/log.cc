#include "common/base/log.h"

#include "common/base/check.h"
#include "common/base/mutex.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <deque>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/time/clock.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr std::array<absl::string_view, 4> kLevelNames = {"debug", "info", "warning", "error"};

// Where records go belongs to the process, as standard error itself does.
struct LogTarget {
  std::atomic<LogLevel> minimum_level = LogLevel::kInfo;
  const bool terminal = isatty(STDERR_FILENO) == 1;

  Mutex mutex;
  std::function<void(const LogRecord&)> sink ABSL_GUARDED_BY(mutex);
  std::deque<std::string> last_lines ABSL_GUARDED_BY(mutex);
};

LogTarget& Target() {
  // Never destroyed, so that threads which outlive main may log.
  static LogTarget& target = *new LogTarget;
  return target;
}

// In one write as a rule, so that lines of several threads and processes do not mix.
void WriteToStandardError(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // Nowhere left to report to.
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void Keep(LogTarget& target, std::string line) {
  MutexLock lock(target.mutex);
  if (target.last_lines.size() == kLogLinesKept) target.last_lines.pop_front();
  target.last_lines.push_back(std::move(line));
}

// Hands the record to the sink of a test, if there is one.
bool WriteToSink(LogTarget& target, const LogRecord& record) {
  MutexLock lock(target.mutex);
  if (!target.sink) return false;
  target.sink(record);
  return true;
}

nlohmann::ordered_json ToJsonValue(const LogField::Value& value) {
  return std::visit([](const auto& typed) { return nlohmann::ordered_json(typed); }, value);
}

std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Quotes text only where a reader could not tell where it ends.
std::string ToTextValue(const LogField::Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return Dump(ToJsonValue(value));
  const bool plain = !text->empty() && text->find_first_of(" \t\r\n\"=\\\033") == std::string::npos;
  return plain ? *text : Dump(*text);
}

}  // namespace

absl::string_view LogLevelName(LogLevel level) {
  return kLevelNames[static_cast<std::size_t>(level)];
}

std::optional<LogLevel> ParseLogLevel(absl::string_view name) {
  for (std::size_t i = 0; i < kLevelNames.size(); ++i) {
    if (kLevelNames[i] == name) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

std::string LogRecord::ToJson() const {
  nlohmann::ordered_json json;
  json["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
  json["level"] = std::string(LogLevelName(level));
  json["event"] = event;
  for (const LogField& field : fields) json[field.key] = ToJsonValue(field.value);
  return Dump(json);
}

std::string LogRecord::ToText() const {
  std::string text = absl::StrCat(absl::FormatTime("%H:%M:%E3S", time, absl::UTCTimeZone()), " ",
                                  LogLevelName(level), " ", event);
  for (const LogField& field : fields) {
    absl::StrAppend(&text, " ", field.key, "=", ToTextValue(field.value));
  }
  return text;
}

void Log(LogLevel level, absl::string_view event, std::initializer_list<LogField> fields) {
  LogTarget& target = Target();
  if (level < target.minimum_level.load(std::memory_order_relaxed)) return;
  const LogRecord record = {
      .time = absl::Now(), .level = level, .event = std::string(event), .fields = fields};
  if (WriteToSink(target, record)) return;
  std::string line = record.ToJson();
  WriteToStandardError(absl::StrCat(target.terminal ? record.ToText() : line, "\n"));
  Keep(target, std::move(line));
}

void LogDebug(absl::string_view event, std::initializer_list<LogField> fields) {
  Log(LogLevel::kDebug, event, fields);
}

void LogInfo(absl::string_view event, std::initializer_list<LogField> fields) {
  Log(LogLevel::kInfo, event, fields);
}

void LogWarning(absl::string_view event, std::initializer_list<LogField> fields) {
  Log(LogLevel::kWarning, event, fields);
}

void LogError(absl::string_view event, std::initializer_list<LogField> fields) {
  Log(LogLevel::kError, event, fields);
}

void SetMinimumLogLevel(LogLevel level) {
  Target().minimum_level.store(level, std::memory_order_relaxed);
}

LogLevel MinimumLogLevel() { return Target().minimum_level.load(std::memory_order_relaxed); }

std::vector<std::string> LastLogLines(std::size_t count) {
  LogTarget& target = Target();
  MutexLock lock(target.mutex);
  const std::size_t skipped = target.last_lines.size() - std::min(count, target.last_lines.size());
  return {target.last_lines.begin() + static_cast<std::ptrdiff_t>(skipped),
          target.last_lines.end()};
}

ScopedLogSink::ScopedLogSink(std::function<void(const LogRecord&)> sink) {
  LogTarget& target = Target();
  MutexLock lock(target.mutex);
  CHECK(!target.sink) << "only one log sink at a time";
  target.sink = std::move(sink);
}

ScopedLogSink::~ScopedLogSink() {
  LogTarget& target = Target();
  MutexLock lock(target.mutex);
  target.sink = nullptr;
}

}  // namespace crossmesh
