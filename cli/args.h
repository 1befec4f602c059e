// The command line of a verb. A verb is a struct with its flags and its work:
//
//   struct Count {
//     std::vector<std::string> input;
//     bool dry_run = false;
//     static constexpr const char* kPositional = "input";  // optional: the key that words without a flag go to
//     static constexpr Alias kAliases[] = {{"data", "data.path"}};  // optional: further names of keys
//     static constexpr const char* kDetails = "...";       // optional: text under the usage line of --help
//     void fields(Fields& f) { f("input", input, "files"), f("dry_run", dry_run, "say what would be done"); }
//     void prepare(const Count& asked, const std::vector<std::string>& given);  // optional, see below
//     int run();                                           // the exit code
//   };
//
// `tally VERB --key value --group.key=value --flag --list a b c --config FILE.json`: dashes stand for underscores, the
// last part of a key is enough where only one key has it, a boolean needs no value. Later flags win over earlier ones.
// Order of precedence: the struct's defaults, prepare() (a preset, a run's configuration), --config, flags.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tally/base/fields.h"

namespace tally::cli {

struct Alias {
  const char* name;
  const char* key;
};

struct Verb {
  const char* name;  // "train", "tokenizer encode"
  const char* summary;
  int (*main)(const Verb& verb, const std::vector<std::string>& arguments);
};

// Runs the verb that the arguments name. Never throws: an Error is one line on standard error and exit code 2, a
// RunError or any other failure exit code 1.
int run_program(int argc, const char* const* argv, const std::vector<Verb>& verbs);

// A verb's arguments, each resolved to a field of the list they were parsed with, values not yet checked.
struct Arguments {
  struct Value {
    size_t field;      // index into Fields::all()
    std::string flag;  // as written: "--lr"
    std::vector<std::string> words;
  };
  bool help = false;
  std::string config;  // file of --config, or ""
  std::vector<Value> values;
};

// Throws Error: an unknown or ambiguous flag (with the nearest key), a flag without its value, a word that belongs to
// nothing. `positional` is a key or null.
Arguments parse_arguments(const Fields& fields, const std::vector<std::string>& words, const char* positional,
                          std::span<const Alias> aliases);

// Stores --config's values and then the flags'. A list given by several flags is their concatenation.
void apply_arguments(const Arguments& arguments, const Fields& fields);

// The keys that --config and the flags set.
std::vector<std::string> given_keys(const Arguments& arguments, const Fields& fields);

void print_help(const Verb& verb, const Fields& fields, const char* positional, const char* details);

// prepare(asked, given): `asked` holds all that was asked for on top of the defaults and `given` the keys that were
// set. It changes defaults of *this (asked.preset names a model, say); --config and flags are applied again afterwards.
template <class V>
int run_verb(const Verb& verb, const std::vector<std::string>& words) {
  const char* positional = nullptr;
  const char* details = "";
  std::span<const Alias> aliases;
  if constexpr (requires { V::kPositional; }) positional = V::kPositional;
  if constexpr (requires { V::kDetails; }) details = V::kDetails;
  if constexpr (requires { V::kAliases; }) aliases = V::kAliases;
  V v{};
  const Fields fields = fields_of(v);
  const Arguments arguments = parse_arguments(fields, words, positional, aliases);
  if (arguments.help) {
    print_help(verb, fields, positional, details);
    return 0;
  }
  if constexpr (requires(std::vector<std::string> given) { v.prepare(v, given); }) {
    V asked{};
    apply_arguments(arguments, fields_of(asked));
    v.prepare(asked, given_keys(arguments, fields));
  }
  apply_arguments(arguments, fields);
  return v.run();
}

template <class V>
Verb make_verb(const char* name, const char* summary) {
  return {name, summary, run_verb<V>};
}

}  // namespace tally::cli
