#include "client/cli/options.h"

#include <cstdint>
#include <optional>

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

template <typename Value>
Option AddOption(CLI::App& command, const std::string& name, Value& value,
                 const std::string& help) {
  return Option(command.add_option(name, value, help));
}
template Option AddOption(CLI::App&, const std::string&, std::string&, const std::string&);
template Option AddOption(CLI::App&, const std::string&, int32_t&, const std::string&);
template Option AddOption(CLI::App&, const std::string&, int64_t&, const std::string&);
template Option AddOption(CLI::App&, const std::string&, uint64_t&, const std::string&);
template Option AddOption(CLI::App&, const std::string&, double&, const std::string&);
template Option AddOption(CLI::App&, const std::string&, std::optional<int64_t>&,
                          const std::string&);
template Option AddOption(CLI::App&, const std::string&, std::vector<std::string>&,
                          const std::string&);
template Option AddOption(CLI::App&, const std::string&, std::vector<int32_t>&, const std::string&);

void AddFlag(CLI::App& command, const std::string& name, bool& given, const std::string& help) {
  command.add_flag(name, given, help);
}

}  // namespace crossmesh
