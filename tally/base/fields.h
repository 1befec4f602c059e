// One visitor for a configuration struct: `template <class V> void fields(V& v)` names each member once, and JSON,
// command-line flags, help, hash and diff all come from that list. A struct nests by v.group("optim", optim).
//
//   struct Optim {
//     double lr = 1e-3;
//     void fields(Fields& f) { f("lr", lr, "peak learning rate", 0, 10); }
//   };
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tally/base/json.h"

namespace tally {

// One leaf: dotted key ("optim.lr"), help, where the value lives, and what it may be.
struct Field {
  std::string key;
  std::string help;
  std::variant<bool*, int64_t*, double*, std::string*, std::vector<std::string>*> value;
  double min = 0, max = 0;           // numbers; no limits when min > max
  std::vector<std::string> choices;  // strings; any when empty

  Json get() const;
  // Checks kind, range and choices; throws Error naming `where` (a file or flag), the key and what is allowed.
  void set(const Json& value, const std::string& where) const;
  // From a flag's text ("3e-4", "true", "a,b"); same checks.
  void set_text(const std::string& text, const std::string& where) const;
};

class Fields {
 public:
  void operator()(const char* key, bool& v, const char* help);
  void operator()(const char* key, int64_t& v, const char* help, double min = 1, double max = -1);
  void operator()(const char* key, double& v, const char* help, double min = 1, double max = -1);
  void operator()(const char* key, std::string& v, const char* help, std::vector<std::string> choices = {});
  void operator()(const char* key, std::vector<std::string>& v, const char* help);
  template <class T>
  void group(const char* key, T& nested) {
    const std::string saved = prefix_;
    prefix_ += std::string(key) + ".";
    nested.fields(*this);
    prefix_ = saved;
  }
  const std::vector<Field>& all() const { return all_; }

  // The field a key means: dotted, dashes as underscores, or a leaf name that only one field has.
  // Throws Error: "unknown key optim.lrr in FILE; did you mean optim.lr?" or "lr is ambiguous: a.lr, b.lr".
  const Field& find(std::string_view key, const std::string& where) const;

 private:
  void add(Field field);
  std::string prefix_;
  std::vector<Field> all_;
};

template <class T>
Fields fields_of(T& config) {
  Fields f;
  config.fields(f);
  return f;
}

Json fields_to_json(const Fields& fields);  // nested objects by the dots
// Unknown keys are errors with the nearest known key; missing keys keep their values.
void fields_from_json(const Fields& fields, const Json& json, const std::string& where);
// "optim.lr 0.001 -> 0.0003" lines for the keys that differ.
std::vector<std::string> fields_diff(const Fields& a, const Fields& b);
// Keys, kinds, defaults, ranges and choices, aligned, for --help.
std::string fields_help(const Fields& fields);

// The candidate with the smallest edit distance, or "" when none is near (distance > max(2, length / 3)).
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace tally
