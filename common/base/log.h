// Structured logging to standard error: one JSON object per line, or readable text when it is a
// terminal.
//
//   LogInfo("worker_joined", {{"worker_id", id}, {"devices", device_count}});
//
// gives
// {"time":"2025-03-01T12:00:00.123Z","level":"info","event":"worker_joined","worker_id":"w1","devices":4}
//
// The event is a constant in snake_case; what varies goes into fields. Not to be called under a
// lock. Thread-safe.

#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// "debug", "info", "warning", "error".
absl::string_view LogLevelName(LogLevel level);
std::optional<LogLevel> ParseLogLevel(absl::string_view name);

struct LogField {
  using Value = std::variant<std::string, int64_t, double, bool>;

  LogField(absl::string_view field_key, absl::string_view text)
      : key(field_key), value(std::string(text)) {}
  template <std::integral T>
  LogField(absl::string_view field_key, T number)
      : key(field_key), value(std::conditional_t<std::same_as<T, bool>, bool, int64_t>(number)) {}
  template <std::floating_point T>
  LogField(absl::string_view field_key, T number) : key(field_key), value(double{number}) {}

  friend bool operator==(const LogField&, const LogField&) = default;

  std::string key;
  Value value;
};

struct LogRecord {
  absl::Time time;
  LogLevel level = LogLevel::kInfo;
  std::string event;
  std::vector<LogField> fields;

  std::string ToJson() const;  // Without a newline; bytes that are not UTF-8 are replaced.
  std::string ToText() const;  // Without a newline, in UTC.
};

void Log(LogLevel level, absl::string_view event, std::initializer_list<LogField> fields = {});
void LogDebug(absl::string_view event, std::initializer_list<LogField> fields = {});
void LogInfo(absl::string_view event, std::initializer_list<LogField> fields = {});
void LogWarning(absl::string_view event, std::initializer_list<LogField> fields = {});
void LogError(absl::string_view event, std::initializer_list<LogField> fields = {});

// Records below `level` are dropped. The level at start is kInfo.
void SetMinimumLogLevel(LogLevel level);
LogLevel MinimumLogLevel();

// The last records that were written, as JSON, oldest first; at most `count`, and kLogLinesKept.
inline constexpr std::size_t kLogLinesKept = 1000;
std::vector<std::string> LastLogLines(std::size_t count);

// While it lives, records go to `sink` instead of standard error; for tests. One at a time in a
// process. The sink is called by the logging threads, one after the other, and must not log itself.
class ScopedLogSink {
 public:
  explicit ScopedLogSink(std::function<void(const LogRecord&)> sink);
  ~ScopedLogSink();

  ScopedLogSink(const ScopedLogSink&) = delete;
  ScopedLogSink& operator=(const ScopedLogSink&) = delete;
};

}  // namespace crossmesh
