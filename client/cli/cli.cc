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
      absl::StrCat("Address, e.g. 127.0.0.1:7400 or unix:/run/c.sock (default: that of ",
                   kControllerVariable, ")"));
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

absl::Status Cli::CheckControllerFlags() {
  if (!timeout_text_.empty()) {
    ASSIGN_OR_RETURN(timeout_, ParseDurationFlag("timeout", timeout_text_));
  }
  if (controllers_.empty()) return absl::OkStatus();
  if (command_->get_option_no_throw(kControllerFlag) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--controller: expected a command that asks a controller, found \"",
                     command_->get_name(), "\""));
  }
  if (controllers_.front() == controllers_.back()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--controller: expected one address, found \"",
                                                 controllers_.front(), "\" and \"",
                                                 controllers_.back(), "\""));
}

std::string Cli::Controller() const {
  if (!controllers_.empty()) return controllers_.front();
  const char* const variable = std::getenv(kControllerVariable);
  return variable == nullptr ? "" : variable;
}

absl::StatusOr<Client> Cli::Connect() const {
  const std::string controller = Controller();
  if (controller.empty()) {
    return absl::FailedPreconditionError(
        "controller: expected an address by --controller or CROSSMESH_CONTROLLER, found none");
  }
  return Client::Connect(controller, {.insecure = insecure_, .timeout = timeout_});
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
  return json_ ? Answer(ToJson(message), text) : Answer(nlohmann::json(), text);
}

absl::Status Cli::Answer(const nlohmann::json& document, absl::string_view text) {
  if (json_) {
    PrintDocument(document);
  } else {
    Print(text);
  }
  return absl::OkStatus();
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
