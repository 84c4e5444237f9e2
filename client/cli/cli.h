#pragma once

#include "client/cli/contexts.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <google/protobuf/message.h>
#include <nlohmann/json_fwd.hpp>

namespace CLI {
class App;
}  // namespace CLI

namespace crossmesh {

class Client;
struct ClientOptions;

// How the program ends; docs/running.md has the table for its users.
enum class ExitCode : uint8_t {
  kDone = 0,
  kFailed = 1,
  kMisused = 2,
  kPartial = 3,
  kCancelled = 4,
  kUnavailable = 5,
  kTimeout = 6,
};

// What all commands share: flags, the connection to the controller, printing. A command group adds
// its subcommands to the parser and says with Run what each does; main runs that once all flags are
// read. Thread-compatible.
class Cli {
 public:
  // The subcommand `name` of `parent` with the flag --json; `examples` end its help, and the first
  // of them that of its group.
  CLI::App& AddCommand(CLI::App& parent, const std::string& name, const std::string& description,
                       const std::string& examples);
  // Of a command that lists or shows things: --output, of which --json is one form.
  void AddOutputFlag(CLI::App& command);
  // Another name of a command, which scripts have and no help lists.
  static void AddOtherName(CLI::App& command, const std::string& name);
  // A group of subcommands, of which one must be given.
  CLI::App& AddGroup(CLI::App& parent, const std::string& name, const std::string& description);
  // The flags --controller, --context, --insecure and --timeout, of a command that asks a
  // controller, and of its group. Those of a group and of the application stand before the command,
  // and mean the same.
  void AddControllerFlags(CLI::App& command);

  using Action = std::function<absl::Status()>;
  void Run(CLI::App& command, Action action);
  // The action of the command that was given.
  const Action& action() const { return action_; }

  // InvalidArgument: --controller or --context stands before a command that asks none, is given
  // twice with two values, or both are; --timeout is no duration; --json and another --output.
  // Errors of the file of contexts, where it matters.
  absl::Status CheckFlags();

  // What is printed: one document, or the names alone of what is listed or shown, or text.
  bool json() const { return json_ || form_ == kJsonOutput; }
  bool names() const { return form_ == kNameOutput; }
  // Most of the time that the command may take.
  absl::Duration timeout() const { return timeout_; }

  bool has_controller() const { return !target_.controller.empty(); }
  // FailedPrecondition: nothing says which controller.
  absl::StatusOr<Client> Connect() const;
  // For a command that asks again and again: a call takes so long at most, and is made once.
  absl::StatusOr<Client> Connect(absl::Duration patience) const;

  // Each prints on standard output. With --json exactly one document is printed, or events. Of text
  // all control characters but the ends of lines are escaped: names come from users.
  void Print(absl::string_view text);
  void PrintDocument(const google::protobuf::Message& message);
  void PrintDocument(const nlohmann::json& document);
  // The document with --json, else the text. OK, so that it can end a command.
  absl::Status Answer(const google::protobuf::Message& message, absl::string_view text);
  absl::Status Answer(const nlohmann::json& document, absl::string_view text);
  // The same of one thing with a name, which alone is printed with --output name.
  absl::Status AnswerNamed(absl::string_view name, const google::protobuf::Message& message,
                           absl::string_view text);
  bool printed_document() const { return printed_document_; }
  // With --json, of a command that tells one thing after the other: a document in a line of its
  // own. After the last one no error's document is to follow.
  void PrintEvent(const nlohmann::json& event, bool is_last);

  // What standard output did not take: the error of the first time, if there was one.
  const absl::Status& OutputError() const { return output_; }

  // How the program ends with this error; by its code, unless SetExitCode has said otherwise.
  ExitCode ExitCodeOf(const absl::Status& error) const;
  void SetExitCode(ExitCode code) { exit_code_ = code; }

 private:
  static constexpr absl::string_view kJsonOutput = "json";
  static constexpr absl::string_view kNameOutput = "name";
  static constexpr absl::string_view kTableOutput = "table";

  // What --controller says, else --context, else CROSSMESH_CONTROLLER, else the context in use; an
  // empty flag is no controller. The variable is looked at here and not by the parser, which asks
  // it for all commands, also for those that were not given, and so would put it over the flag of
  // the one that was.
  absl::StatusOr<ControllerContext> FindTarget() const;

  absl::StatusOr<Client> ConnectWith(ClientOptions options) const;
  void Write(absl::string_view text);

  std::vector<std::string> controllers_;  // as the flags say, before and after the command
  std::vector<std::string> contexts_;     // likewise
  ControllerContext target_;              // which controller is asked
  bool insecure_ = false;
  bool json_ = false;
  std::string form_;  // of --output; empty: as --json says
  std::string timeout_text_;
  absl::Duration timeout_ = absl::InfiniteDuration();
  bool printed_document_ = false;
  bool printed_event_ = false;
  absl::Status output_;  // of the first time that standard output took less than it was given
  std::optional<ExitCode> exit_code_;
  const CLI::App* command_ = nullptr;  // the one that was given
  Action action_;
};

// As in the API's JSON: field names as in the .proto files, 64-bit numbers as strings.
nlohmann::json ToJson(const google::protobuf::Message& message);

// Reads what ToJson writes, or people write as the API's JSON; InvalidArgument names `file`.
absl::Status FromJson(const std::string& file, const std::string& json,
                      google::protobuf::Message& message);

// {"error": {"code": "NOT_FOUND", "message": "...", "object": "...", "expected": "...",
// "found": "..."}}, the last three as in ErrorDetails where they are known.
nlohmann::json ErrorDocument(const absl::Status& status);

// InvalidArgument, naming `path`, when the file cannot be read; "-" is standard input.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// The system's error, naming `path`, when the file cannot be written.
absl::Status WriteFile(const std::string& path, const std::string& text);

// Absolute path of a file in share/crossmesh, which lies beside the folder of this program.
std::string SharedFile(const std::string& name);

// The command groups.
void AddContextCommands(Cli& cli, CLI::App& app);
void AddDemoCommand(Cli& cli, CLI::App& app);
void AddDoctorCommand(Cli& cli, CLI::App& app);
void AddGpuCommands(Cli& cli, CLI::App& app);
void AddGridCommands(Cli& cli, CLI::App& app);
void AddHealthCommand(Cli& cli, CLI::App& app);
void AddLayoutCommands(Cli& cli, CLI::App& app);
void AddManualCommands(Cli& cli, CLI::App& app);
void AddManifestCommands(Cli& cli, CLI::App& app);
void AddMeshCommands(Cli& cli, CLI::App& app);
void AddNetworkCommands(Cli& cli, CLI::App& app);
void AddOperationCommands(Cli& cli, CLI::App& app);
void AddPipelineCommands(Cli& cli, CLI::App& app);
void AddPlanCommand(Cli& cli, CLI::App& app);
void AddRedistributeCommand(Cli& cli, CLI::App& app);
void AddReshardCommand(Cli& cli, CLI::App& app);
void AddSimulateCommand(Cli& cli, CLI::App& app);
void AddStatusCommands(Cli& cli, CLI::App& app);
void AddStorageCommands(Cli& cli, CLI::App& app);
void AddUpkeepCommands(Cli& cli, CLI::App& app);
void AddWorkerCommands(Cli& cli, CLI::App& app);

// Of the group `storage`.
void AddStorageRegistryCommands(Cli& cli, CLI::App& group);

// Of the group `pipeline`.
void AddPipelineConvertCommand(Cli& cli, CLI::App& group);
void AddPipelineRegistryCommands(Cli& cli, CLI::App& group);
void AddPipelineRunCommands(Cli& cli, CLI::App& group);

}  // namespace crossmesh
