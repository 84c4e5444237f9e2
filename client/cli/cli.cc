#include "client/cli/cli.h"

#include "client/cli/duration_flag.h"
#include "client/cli/report_text.h"
#include "client/client.h"
#include "common/base/check.h"
#include "common/base/standard_output.h"
#include "common/base/status_macros.h"
#include "common/mesh/json_reader.h"
#include "common/rpc/error_details.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>
#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

constexpr const char* kControllerFlag = "--controller";
constexpr const char* kContextFlag = "--context";
constexpr const char* kControllerVariable = "CROSSMESH_CONTROLLER";

}  // namespace

CLI::App& Cli::AddCommand(CLI::App& parent, const std::string& name, const std::string& description,
                          const std::string& examples) {
  CLI::App& command = *parent.add_subcommand(name, description);
  command.add_flag("--json", json_, "Print one JSON document on standard output");
  // A footer is the parent's until it is set.
  command.footer(examples.empty() ? "" : "Examples:\n" + examples);
  if (parent.get_parent() != nullptr) {
    parent.footer(parent.get_footer() + examples.substr(0, examples.find('\n') + 1));
  }
  return command;
}

void Cli::AddOutputFlag(CLI::App& command) {
  command.add_option("-o,--output", form_, "What to print: json (as --json), table or name")
      ->check(CLI::IsMember(
          {std::string(kJsonOutput), std::string(kTableOutput), std::string(kNameOutput)}));
}

void Cli::AddOtherName(CLI::App& command, const std::string& name) { command.alias(name); }

CLI::App& Cli::AddGroup(CLI::App& parent, const std::string& name, const std::string& description) {
  CLI::App& group = *parent.add_subcommand(name, description);
  group.require_subcommand(1);
  group.footer("Examples:\n");
  return group;
}

void Cli::AddControllerFlags(CLI::App& command) {
  CLI::App* const group = command.get_parent();
  if (group != nullptr && group->get_option_no_throw(kControllerFlag) == nullptr) {
    AddControllerFlags(*group);
  }
  command.add_option_function<std::string>(
      kControllerFlag, [this](const std::string& address) { controllers_.push_back(address); },
      absl::StrCat("Address, e.g. 127.0.0.1:7400 or unix:/run/c.sock, or those of several "
                   "controllers, with commas (default: that of ",
                   kControllerVariable, ", else the context in use)"));
  command.add_option_function<std::string>(
      kContextFlag, [this](const std::string& name) { contexts_.push_back(name); },
      "Name of the controller, as in crossmesh context list");
  command.add_flag("--insecure", insecure_, "Allow an address that other machines can reach");
  command.add_option("--timeout", timeout_text_,
                     "Most of the time to wait, e.g. 90s; what was begun goes on");
}

void Cli::Run(CLI::App& command, Action action) {
  command.callback([this, &command, action = std::move(action)] {
    command_ = &command;
    action_ = action;
  });
}

absl::Status Cli::CheckFlags() {
  if (json_ && !form_.empty() && form_ != kJsonOutput) {
    return absl::InvalidArgumentError(
        absl::StrCat("--output: expected json beside --json, found ", form_));
  }
  if (!timeout_text_.empty()) {
    ASSIGN_OR_RETURN(timeout_, ParseDurationFlag("timeout", timeout_text_));
  }
  const bool asks = command_->get_option_no_throw(kControllerFlag) != nullptr;
  for (const auto& [flag, values] :
       {std::pair(kControllerFlag, &controllers_), std::pair(kContextFlag, &contexts_)}) {
    if (values->empty()) continue;
    if (!asks) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": expected a command that asks a controller, found \"",
                       command_->get_name(), "\""));
    }
    if (values->front() != values->back()) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": expected one ", flag == kContextFlag ? "context" : "address",
                       ", found \"", values->front(), "\" and \"", values->back(), "\""));
    }
  }
  if (asks) {
    ASSIGN_OR_RETURN(target_, FindTarget());
  }
  return absl::OkStatus();
}

absl::StatusOr<ControllerContext> Cli::FindTarget() const {
  if (!controllers_.empty() && !contexts_.empty()) {
    return absl::InvalidArgumentError("expected --controller or --context, found both");
  }
  if (!controllers_.empty()) return ControllerContext{.controller = controllers_.front()};
  const char* const variable = std::getenv(kControllerVariable);
  if (contexts_.empty() && variable != nullptr && *variable != '\0') {
    return ControllerContext{.controller = variable};
  }
  ASSIGN_OR_RETURN(const Contexts contexts, Contexts::Read(Contexts::FilePath()));
  const std::string& name = contexts_.empty() ? contexts.current() : contexts_.front();
  return name.empty() ? ControllerContext() : contexts.Find(name);
}

absl::StatusOr<Client> Cli::Connect() const { return ConnectWith({}); }

absl::StatusOr<Client> Cli::Connect(absl::Duration patience) const {
  return ConnectWith({.call_timeout = patience, .retry_for = absl::ZeroDuration()});
}

absl::StatusOr<Client> Cli::ConnectWith(ClientOptions options) const {
  if (target_.controller.empty()) {
    return absl::FailedPreconditionError(
        "controller: expected an address by --controller, --context or CROSSMESH_CONTROLLER, or a "
        "context in use, found none");
  }
  options.insecure = insecure_ || target_.insecure;
  options.timeout = timeout_;
  return Client::Connect(target_.controller, options);
}

void Cli::Write(absl::string_view text) { output_.Update(WriteToStandardOutput(text)); }

void Cli::Print(absl::string_view text) { Write(Printable(text)); }

void Cli::PrintDocument(const google::protobuf::Message& message) {
  PrintDocument(ToJson(message));
}

void Cli::PrintDocument(const nlohmann::json& document) {
  CHECK(!printed_document_) << "one document";
  printed_document_ = true;
  // A document after events is one of them.
  const int indent = printed_event_ ? -1 : 2;
  Write(document.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void Cli::PrintEvent(const nlohmann::json& event, bool is_last) {
  printed_event_ = true;
  printed_document_ = printed_document_ || is_last;
  Write(event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

ExitCode Cli::ExitCodeOf(const absl::Status& error) const {
  if (exit_code_.has_value()) return *exit_code_;
  switch (error.code()) {
    case absl::StatusCode::kCancelled:
      return ExitCode::kCancelled;
    case absl::StatusCode::kUnavailable:
      return ExitCode::kUnavailable;
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kTimeout;
    default:
      return ExitCode::kFailed;
  }
}

absl::Status Cli::Answer(const google::protobuf::Message& message, absl::string_view text) {
  // Only if it is wanted: measurements of runs are long.
  return json() ? Answer(ToJson(message), text) : Answer(nlohmann::json(), text);
}

absl::Status Cli::Answer(const nlohmann::json& document, absl::string_view text) {
  if (json()) {
    PrintDocument(document);
  } else {
    Print(text);
  }
  return absl::OkStatus();
}

absl::Status Cli::AnswerNamed(absl::string_view name, const google::protobuf::Message& message,
                              absl::string_view text) {
  return names() ? Answer(nlohmann::json(), absl::StrCat(name, "\n")) : Answer(message, text);
}

nlohmann::json ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  CHECK(status.ok()) << status.ToString();
  return nlohmann::json::parse(text);
}

absl::Status FromJson(const std::string& file, const std::string& json,
                      google::protobuf::Message& message) {
  // Strictly first: what the library makes of a key given twice, or of bytes after a zero, is not
  // what was meant.
  RETURN_IF_ERROR(ParseJson(file, json).status());
  const auto status = google::protobuf::util::JsonStringToMessage(json, &message);
  if (status.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file, ": expected the JSON of a ",
                                                 message.GetDescriptor()->name(), ": ",
                                                 std::string(status.message())));
}

nlohmann::json ErrorDocument(const absl::Status& status) {
  nlohmann::json error = {{"code", absl::StatusCodeToString(status.code())},
                          {"message", std::string(status.message())}};
  const ErrorDetails details = DetailsOf(status);
  if (!details.object.empty()) error["object"] = details.object;
  if (!details.expected.empty()) error["expected"] = details.expected;
  if (!details.found.empty()) error["found"] = details.found;
  return {{"error", std::move(error)}};
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  std::ifstream file(path, std::ios::binary);
  if (!file || !(text << file.rdbuf())) {
    return absl::InvalidArgumentError(absl::StrCat("file ", path, ": cannot be read, or is empty"));
  }
  return text.str();
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("writing ", path));
}

std::string SharedFile(const std::string& name) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return program.parent_path().parent_path() / "share" / "crossmesh" / name;
}

}  // namespace crossmesh
