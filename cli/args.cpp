// CLI11 finds the verb and hands its words over untouched; keys are then resolved by Fields::find, so that the command
// line, --config and config.json know the same names, ranges and suggestions.
#include "cli/args.h"

#include <fcntl.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>
#include <new>

#include "tally/base/error.h"
#include "tally/base/file.h"
#include "tally/train/config.h"

namespace tally::cli {
namespace {

bool is_flag(const std::string& word) { return word.size() > 2 && word.starts_with("--"); }

std::string dashes_to_underscores(std::string text) {
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

// The field of a flag's name; an Error says the flag as it is written on a command line.
size_t find_field(const Fields& fields, std::string name, std::span<const Alias> aliases) {
  for (const Alias& alias : aliases)
    if (dashes_to_underscores(name) == alias.name) name = alias.key;
  return static_cast<size_t>(&fields.find(name, "the command line") - fields.all().data());
}

bool is_bool(const Field& field) { return std::holds_alternative<bool*>(field.value); }
bool is_list(const Field& field) { return std::holds_alternative<std::vector<std::string>*>(field.value); }

// Reads the words behind a flag that has no "=": how many there may be depends on the field's kind.
class WordReader {
 public:
  explicit WordReader(const std::vector<std::string>& words) : words_(words) {}
  bool done() const { return at_ == words_.size(); }
  const std::string& next() { return words_[at_++]; }

  std::vector<std::string> values(const Field& field, const std::string& flag) {
    std::vector<std::string> values;
    if (is_bool(field)) {
      const bool given = !done() && (words_[at_] == "true" || words_[at_] == "false");
      return {given ? next() : "true"};
    }
    while (!done() && !words_[at_].starts_with("--")) {
      values.push_back(next());
      if (!is_list(field)) break;
    }
    if (values.empty())
      fail("{} needs a value{}", flag, done() ? "" : " (write " + flag + "=VALUE for one that begins with --)");
    return values;
  }

 private:
  const std::vector<std::string>& words_;
  size_t at_ = 0;
};

void add_positional(const Fields& fields, const char* positional, const std::string& word, Arguments& out) {
  if (positional == nullptr) fail("'{}' belongs to no flag; see --help", word);
  const size_t field = find_field(fields, positional, {});
  const bool same = !out.values.empty() && out.values.back().field == field;
  if (same && !is_list(fields.all()[field])) fail("'{}' is one word too many; see --help", word);
  if (same)
    out.values.back().words.push_back(word);
  else
    out.values.push_back({field, "--" + std::string(positional), {word}});
}

void set_field(const Field& field, const Arguments::Value& value, bool append) {
  if (!is_list(field)) return field.set_text(value.words.back(), value.flag);
  Json list = append ? field.get() : Json::array();
  for (const std::string& word : value.words) list.push_back(word);
  field.set(list, value.flag);
}

// A run's config.json is a --config too; what it says of the program that wrote it is not a key.
Json read_config(const std::string& path) {
  const Json all = Json::parse(read_file(path), path);
  if (!all.is_object()) fail("{}: the configuration must be an object", path);
  Json kept = Json::object();
  for (const auto& [key, value] : all.as_object())
    if (key != "tally_version") kept.set(key, value);
  return kept;
}

void collect_keys(const Json& json, const std::string& prefix, std::vector<std::string>& keys) {
  for (const auto& [name, value] : json.as_object()) {
    if (value.is_object())
      collect_keys(value, prefix + name + ".", keys);
    else
      keys.push_back(prefix + name);
  }
}

std::string program_help(const std::vector<Verb>& verbs) {
  std::string text =
      "tally: language models from raw text to generated text, every byte and FLOP accounted for\n\n"
      "usage: tally VERB [--key value ...] [--config FILE.json]\n       tally VERB --help | --version\n\n";
  for (const Verb& verb : verbs) text += fmt::format("  {:<20}  {}\n", verb.name, verb.summary);
  text +=
      "\nDashes may stand for underscores (--max-tokens), and a key's last name for all of it where no other key has\n"
      "that name (--lr for --optim.lr).\n";
  return text;
}

[[noreturn]] void fail_verb(const std::string& asked, const std::vector<Verb>& verbs) {
  std::vector<std::string> names;
  for (const Verb& verb : verbs) names.push_back(verb.name);
  const std::string near = nearest(asked, names);
  std::string group;
  for (const std::string& name : names)
    if (name.starts_with(asked.substr(0, asked.find(' ')) + " ")) group += (group.empty() ? "" : ", ") + name;
  fail("unknown verb '{}'{}; see tally --help", asked,
       !near.empty()    ? "; did you mean " + near + "?"
       : !group.empty() ? "; there are " + group
                        : "");
}

// The tree of verbs: one level of groups ("tokenizer") and leaves that keep all words after them as they are.
struct VerbTree {
  CLI::App app;
  std::map<std::string, CLI::App*> groups;
  std::vector<std::pair<const Verb*, CLI::App*>> leaves;

  explicit VerbTree(const std::vector<Verb>& verbs) {
    for (const Verb& verb : verbs) {
      const std::string name = verb.name;
      const size_t space = name.find(' ');
      CLI::App* parent = &app;
      if (space != std::string::npos) {
        CLI::App*& group = groups[name.substr(0, space)];
        if (group == nullptr) group = plain(app.add_subcommand(name.substr(0, space)));
        parent = group;
      }
      CLI::App* leaf = plain(parent->add_subcommand(name.substr(space == std::string::npos ? 0 : space + 1)));
      leaves.emplace_back(&verb, leaf->prefix_command());
    }
    plain(&app);
  }
  static CLI::App* plain(CLI::App* app) {
    app->set_help_flag();
    app->require_subcommand(0, 1);
    app->allow_extras();
    return app;
  }
};

int dispatch(const std::vector<std::string>& words, const std::vector<Verb>& verbs) {
  const std::string first = words.empty() ? "--help" : words[0];
  if (first == "--help" || first == "-h" || first == "help") {
    fmt::print("{}", program_help(verbs));
    return 0;
  }
  if (first == "--version") {
    fmt::print("tally {}\n", kTallyVersion);
    return 0;
  }
  VerbTree tree(verbs);
  if (const auto group = tree.groups.find(first);
      group != tree.groups.end() && words.size() == 2 && (words[1] == "--help" || words[1] == "-h")) {
    std::vector<Verb> members;
    std::copy_if(verbs.begin(), verbs.end(), std::back_inserter(members),
                 [&](const Verb& verb) { return std::string(verb.name).starts_with(first + " "); });
    fmt::print("{}", program_help(members));
    return 0;
  }
  tree.app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  for (const auto& [verb, leaf] : tree.leaves)
    if (leaf->parsed()) return verb->main(*verb, leaf->remaining());
  const bool grouped = tree.groups.contains(first) && words.size() > 1;
  fail_verb(grouped ? first + " " + words[1] : first, verbs);
}

int report(const char* message, int code, const std::string& details = {}) {
  std::string line = message;
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::fflush(stdout);
  // fmt::print throws where stderr is full
  std::fputs(fmt::format("tally: error: {}\n{}", line, details).c_str(), stderr);
  return code;
}

// A standard stream that is closed is opened the wrong way round: using it stays an error, and no file of the program
// gets its number, into which messages would then be written.
void occupy_closed_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

}  // namespace

Arguments parse_arguments(const Fields& fields, const std::vector<std::string>& words, const char* positional,
                          std::span<const Alias> aliases) {
  Arguments out;
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word == "--help" || word == "-h") out.help = true;
  }
  if (out.help) return out;
  WordReader reader(words);
  bool only_positionals = false;
  while (!reader.done()) {
    const std::string word = reader.next();
    if (only_positionals || !word.starts_with('-') || word == "-") {
      add_positional(fields, positional, word, out);
    } else if (word == "--") {
      only_positionals = true;
    } else if (!is_flag(word)) {
      fail("unknown flag {}; flags begin with two dashes, see --help", word);
    } else {
      const size_t equals = word.find('=');
      const std::string flag = word.substr(0, equals);
      const bool config = flag == "--config";
      std::string no_config;
      const Field config_field{"config", "", &no_config, 0, 0, {}};
      const size_t field = config ? 0 : find_field(fields, flag.substr(2), aliases);
      std::vector<std::string> values = equals != std::string::npos
                                            ? std::vector<std::string>{word.substr(equals + 1)}
                                            : reader.values(config ? config_field : fields.all()[field], flag);
      if (config)
        out.config = values[0];
      else
        out.values.push_back({field, flag, std::move(values)});
    }
  }
  return out;
}

void apply_arguments(const Arguments& arguments, const Fields& fields) {
  if (!arguments.config.empty()) fields_from_json(fields, read_config(arguments.config), arguments.config);
  std::vector<bool> seen(fields.all().size());
  for (const Arguments::Value& value : arguments.values) {
    set_field(fields.all()[value.field], value, seen[value.field]);
    seen[value.field] = true;
  }
}

std::vector<std::string> given_keys(const Arguments& arguments, const Fields& fields) {
  std::vector<std::string> keys;
  if (!arguments.config.empty()) collect_keys(read_config(arguments.config), "", keys);
  for (const Arguments::Value& value : arguments.values) keys.push_back(fields.all()[value.field].key);
  return keys;
}

void print_help(const Verb& verb, const Fields& fields, const char* positional, const char* details) {
  std::string words;
  if (positional != nullptr)
    words = " [" + dashes_to_underscores(positional) +
            (is_list(fields.all()[find_field(fields, positional, {})]) ? " ...]" : "]");
  fmt::print("tally {}: {}\n\nusage: tally {}{} [--key value ...] [--config FILE.json]\n\n", verb.name, verb.summary,
             verb.name, words);
  if (details[0] != '\0') fmt::print("{}\n\n", details);
  fmt::print("{}", fields_help(fields));
}

int run_program(int argc, const char* const* argv, const std::vector<Verb>& verbs) {
  std::signal(SIGPIPE, SIG_DFL);  // a reader that goes away ends the program without a word
  occupy_closed_streams();
  try {
    const int code = dispatch(std::vector<std::string>(argv + std::min(argc, 1), argv + argc), verbs);
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) return report("cannot write standard output", 1);
    return code;
  } catch (const RunError& e) {
    return report(e.what(), 1, e.details);
  } catch (const Error& e) {
    return report(e.what(), 2, e.details);
  } catch (const std::bad_alloc&) {
    return report("out of memory; use a smaller model, batch or context, or close other programs", 1);
  } catch (const std::exception& e) {
    return report(e.what(), 1);
  }
}

}  // namespace tally::cli
