#include "client/cli/completion.h"

#include "common/base/check.h"

#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>

namespace crossmesh {
namespace {

struct Word {
  std::string text;
  std::string description;
};

// What may follow a command, named by the words that lead to it: " mesh list"; of the program "".
struct Place {
  std::string path;
  std::vector<Word> commands;
  std::vector<Word> flags;
};

void Collect(const CLI::App& app, const std::string& path, std::vector<Place>& places) {
  Place place = {.path = path};
  std::vector<std::pair<const CLI::App*, std::string>> below;
  for (const CLI::App* command : app.get_subcommands({})) {
    place.commands.push_back({command->get_name(), command->get_description()});
    below.emplace_back(command, absl::StrCat(path, " ", command->get_name()));
  }
  for (const CLI::Option* option : app.get_options({})) {
    for (const std::string& name : option->get_lnames()) {
      place.flags.push_back({"--" + name, option->get_description()});
    }
  }
  places.push_back(std::move(place));
  for (const auto& [command, its_path] : below) Collect(*command, its_path, places);
}

// In single quotes of a shell.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::string Names(const std::vector<Word>& words) {
  return absl::StrJoin(words, " ", [](std::string* out, const Word& word) { *out += word.text; });
}

// The command that the words before the cursor name: what is none of one's commands, flags and
// their values, leads nowhere. In bash and zsh.
std::string FindPath(const std::vector<Place>& places, absl::string_view words) {
  std::vector<std::string> paths;
  for (const Place& place : places) {
    if (!place.path.empty()) paths.push_back(Quoted(place.path));
  }
  return absl::StrCat("  local place=\"\" word\n  for word in ", words,
                      "; do\n    case \"$place $word\" in\n      ", absl::StrJoin(paths, "|"),
                      ") place=\"$place $word\" ;;\n    esac\n  done\n");
}

std::string BashScript(const std::vector<Place>& places) {
  std::string cases;
  for (const Place& place : places) {
    absl::StrAppend(&cases, "    ", Quoted(place.path),
                    ")\n      commands=", Quoted(Names(place.commands)),
                    "\n      flags=", Quoted(Names(place.flags)), " ;;\n");
  }
  return absl::StrCat(
      "_crossmesh() {\n  local current=\"${COMP_WORDS[COMP_CWORD]}\" commands flags\n",
      FindPath(places, "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\""), "  case \"$place\" in\n", cases,
      "  esac\n"
      "  case \"$current\" in\n"
      "    -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$current\")) ;;\n"
      "    *) COMPREPLY=($(compgen -W \"$commands\" -- \"$current\")) ;;\n"
      "  esac\n"
      "}\n"
      // Files where there is nothing of the program's own.
      "complete -o default -F _crossmesh crossmesh\n");
}

// 'list:Lists all meshes'.
std::string Described(const std::vector<Word>& words) {
  return absl::StrJoin(words, " ", [](std::string* out, const Word& word) {
    *out += Quoted(absl::StrCat(word.text, ":", word.description));
  });
}

std::string ZshScript(const std::vector<Place>& places) {
  std::string cases;
  for (const Place& place : places) {
    absl::StrAppend(&cases, "    ", Quoted(place.path), ")\n      commands=(",
                    Described(place.commands), ")\n      flags=(", Described(place.flags),
                    ") ;;\n");
  }
  return absl::StrCat("#compdef crossmesh\n_crossmesh() {\n  local -a commands flags\n",
                      FindPath(places, "${words[2,CURRENT-1]}"), "  case \"$place\" in\n", cases,
                      "  esac\n"
                      "  if [[ $words[CURRENT] == -* ]]; then\n"
                      "    _describe flag flags\n"
                      "  elif (( $#commands )); then\n"
                      "    _describe command commands\n"
                      "  else\n"
                      "    _files\n"
                      "  fi\n"
                      "}\n"
                      // Read as a function of its own, or by a shell's start.
                      "if [ \"$funcstack[1]\" = _crossmesh ]; then\n"
                      "  _crossmesh \"$@\"\n"
                      "else\n"
                      "  compdef _crossmesh crossmesh\n"
                      "fi\n");
}

std::string FishScript(const std::vector<Place>& places) {
  std::vector<std::string> paths;
  for (const Place& place : places) paths.push_back(Quoted(place.path));
  std::string script = absl::StrCat(
      "function __crossmesh_at\n"
      "  set -l path ''\n"
      "  for word in (commandline -opc)[2..]\n"
      "    contains -- \"$path $word\" ",
      absl::StrJoin(paths, " "),
      "; and set path \"$path $word\"\n"
      "  end\n"
      "  test \"$path\" = \"$argv[1]\"\n"
      "end\n");
  for (const Place& place : places) {
    const std::string where =
        absl::StrCat("complete -c crossmesh -n \"__crossmesh_at '", place.path, "'\"");
    for (const Word& word : place.commands) {
      absl::StrAppend(&script, where, " -f -a ", word.text, " -d ", Quoted(word.description), "\n");
    }
    for (const Word& word : place.flags) {
      absl::StrAppend(&script, where, " -l ", word.text.substr(2), " -d ", Quoted(word.description),
                      "\n");
    }
  }
  return script;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, absl::string_view shell) {
  std::vector<Place> places;
  Collect(app, "", places);
  if (shell == "bash") return BashScript(places);
  if (shell == "zsh") return ZshScript(places);
  CHECK(shell == "fish") << shell;
  return FishScript(places);
}

}  // namespace crossmesh
