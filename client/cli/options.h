#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace crossmesh {

// An option that a command has. Those of commands are added by these functions alone: CLI11's own
// are templates, and each file that instantiates them takes ten seconds to compile.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& Required(bool required = true);
  // Its value before parsing stands in the help text.
  Option& ShowDefault();
  // Values are separated by it, as well as by naming the option again.
  Option& SplitAt(char delimiter);
  // So many values, no more.
  Option& Expect(int count);
  // What else a value may be is an error of parsing that lists these.
  Option& OneOf(const std::vector<std::string>& values);
  Option& Between(double least, double most);
  Option& NotNegative();

 private:
  CLI::Option* option_;
};

// An option `--name`, or an argument by its place where `name` has no dashes. Parsing sets `value`,
// which has to live until then. Values are texts, numbers and lists of them: options.cc has all.
template <typename Value>
Option AddOption(CLI::App& command, const std::string& name, Value& value, const std::string& help);

// One that has no value, and sets `given`.
void AddFlag(CLI::App& command, const std::string& name, bool& given, const std::string& help);

}  // namespace crossmesh
