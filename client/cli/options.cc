#include "client/cli/options.h"

#include <CLI/CLI.hpp>

namespace crossmesh {

Option& Option::Required(bool required) {
  option_->required(required);
  return *this;
}

Option& Option::ShowDefault() {
  option_->capture_default_str();
  return *this;
}

Option& Option::SplitAt(char delimiter) {
  option_->delimiter(delimiter);
  return *this;
}

Option& Option::Expect(int count) {
  option_->expected(count);
  return *this;
}

Option& Option::OneOf(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Option& Option::Between(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::NotNegative() {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

Option AddOption(CLI::App& command, const std::string& name, std::string& value,
                 const std::string& help) {
  return Option(command.add_option(name, value, help));
}

Option AddOption(CLI::App& command, const std::string& name, int32_t& value,
                 const std::string& help) {
  return Option(command.add_option(name, value, help));
}

Option AddOption(CLI::App& command, const std::string& name, int64_t& value,
                 const std::string& help) {
  return Option(command.add_option(name, value, help));
}

Option AddOption(CLI::App& command, const std::string& name, uint64_t& value,
                 const std::string& help) {
  return Option(command.add_option(name, value, help));
}

Option AddOption(CLI::App& command, const std::string& name, double& value,
                 const std::string& help) {
  return Option(command.add_option(name, value, help));
}

Option AddOption(CLI::App& command, const std::string& name, std::optional<int64_t>& value,
                 const std::string& help) {
  return Option(command.add_option(name, value, help));
}

Option AddOption(CLI::App& command, const std::string& name, std::vector<std::string>& value,
                 const std::string& help) {
  return Option(command.add_option(name, value, help));
}

Option AddOption(CLI::App& command, const std::string& name, std::vector<int32_t>& value,
                 const std::string& help) {
  return Option(command.add_option(name, value, help));
}

void AddFlag(CLI::App& command, const std::string& name, bool& given, const std::string& help) {
  command.add_flag(name, given, help);
}

}  // namespace crossmesh
