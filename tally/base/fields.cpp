// The list of leaves that fields() makes, and what is done with it. Values are checked and converted before anything
// is stored, so a configuration is never half changed.
#include "tally/base/fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "tally/base/error.h"

namespace tally {
namespace {

using Value = std::variant<bool, int64_t, double, std::string, std::vector<std::string>>;

std::string number_text(double v) {
  if (std::abs(v) < 1e15 && v == std::floor(v)) return fmt::format("{}", static_cast<int64_t>(v));
  return fmt::format("{}", v);
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& w : words) all += (all.empty() ? "" : ", ") + w;
  return all;
}

const char* kind_of(const Field& field) {
  static constexpr const char* kKinds[] = {"true or false", "a whole number", "a number", "a string",
                                           "a list of strings"};
  return kKinds[field.value.index()];
}

[[noreturn]] void fail_kind(const Field& field, const std::string& found, const std::string& where) {
  fail("{}: {} must be {}, found {}", where, field.key, kind_of(field), found);
}

void check_range(const Field& field, double v, const std::string& text, const std::string& where) {
  if (!std::isfinite(v)) fail("{}: {} is {}; it must be a finite number", where, field.key, text);
  if (field.min <= field.max && !(v >= field.min && v <= field.max))
    fail("{}: {} is {}; it must be from {} to {}", where, field.key, text, number_text(field.min),
         number_text(field.max));
}

// A double that is a whole number below 2^53 (1e6 is a fair way to write steps).
bool whole(double v) { return std::abs(v) <= 0x1p53 && v == std::floor(v); }

Value checked_string(const Field& field, const std::string& text, const std::string& where) {
  const auto& choices = field.choices;
  if (choices.empty() || std::find(choices.begin(), choices.end(), text) != choices.end()) return text;
  const std::string near = nearest(text, choices);
  fail("{}: {} is {}; it must be one of {}{}", where, field.key, in_quotes(text), joined(choices),
       near.empty() ? "" : "; did you mean " + near + "?");
}

Value checked_number(const Field& field, const Json& value, const std::string& where) {
  const std::string text = value.dump();
  check_range(field, value.as_double(), text, where);
  if (std::holds_alternative<double*>(field.value)) return value.as_double();
  if (value.is_int()) return value.as_int();
  if (!whole(value.as_double())) fail_kind(field, text, where);
  return static_cast<int64_t>(value.as_double());
}

Value checked(const Field& field, const Json& value, const std::string& where) {
  const std::string shown = value.is_object()   ? "an object"
                            : value.is_array()  ? "an array"
                            : value.is_string() ? in_quotes(value.as_string())
                                                : value.dump();
  switch (field.value.index()) {
    case 0:
      if (!value.is_bool()) fail_kind(field, shown, where);
      return value.as_bool();
    case 1:
    case 2:
      if (!value.is_number()) fail_kind(field, shown, where);
      return checked_number(field, value, where);
    case 3:
      if (!value.is_string()) fail_kind(field, shown, where);
      return checked_string(field, value.as_string(), where);
    default: {
      if (!value.is_array()) fail_kind(field, shown, where);
      std::vector<std::string> words;
      for (const Json& word : value.as_array()) {
        if (!word.is_string()) fail_kind(field, "an array that holds something else", where);
        words.push_back(word.as_string());
      }
      return words;
    }
  }
}

void store(const Field& field, Value value) {
  std::visit([&](auto* target) { *target = std::get<std::remove_pointer_t<decltype(target)>>(std::move(value)); },
             field.value);
}

// True when `key` names the field: in full, or its last dotted parts.
bool is_suffix(const std::string& full, std::string_view key) {
  return full == key || (full.size() > key.size() && full.ends_with(key) && full[full.size() - key.size() - 1] == '.');
}

[[noreturn]] void fail_unknown(const Fields& fields, std::string_view key, const std::string& where) {
  std::vector<std::string> full, last;
  for (const Field& f : fields.all()) {
    full.push_back(f.key);
    last.push_back(f.key.substr(f.key.rfind('.') + 1));
  }
  std::string near = nearest(key, full);
  if (near.empty() && key.find('.') == std::string_view::npos) near = nearest(key, last);
  if (!near.empty() && near == key)
    near = full[static_cast<size_t>(std::find(last.begin(), last.end(), near) - last.begin())];
  fail("unknown key {} in {}{}", printable(key), where, near.empty() ? "" : "; did you mean " + near + "?");
}

const Field* find_exact(const Fields& fields, std::string_view key) {
  for (const Field& f : fields.all())
    if (f.key == key) return &f;
  return nullptr;
}

bool is_group(const Fields& fields, const std::string& key) {
  return std::any_of(fields.all().begin(), fields.all().end(),
                     [&](const Field& f) { return f.key.starts_with(key + "."); });
}

using Changes = std::vector<std::pair<const Field*, Value>>;

void collect(const Fields& fields, const Json& json, const std::string& prefix, const std::string& where,
             Changes& changes) {
  for (const auto& [name, value] : json.as_object()) {
    const std::string key = prefix + name;
    if (const Field* field = find_exact(fields, key)) {
      changes.emplace_back(field, checked(*field, value, where));
    } else if (is_group(fields, key)) {
      if (!value.is_object()) fail("{}: {} must be an object", where, key);
      collect(fields, value, key + ".", where, changes);
    } else {
      fail_unknown(fields, key, where);
    }
  }
}

}  // namespace

Json Field::get() const {
  if (auto* const* words = std::get_if<std::vector<std::string>*>(&value)) {
    Json list = Json::array();
    for (const std::string& w : **words) list.push_back(w);
    return list;
  }
  return std::visit(
      [](auto* v) -> Json {
        if constexpr (std::is_same_v<decltype(v), std::vector<std::string>*>)
          return Json();
        else
          return Json(*v);
      },
      value);
}

void Field::set(const Json& json, const std::string& where) const { store(*this, checked(*this, json, where)); }

void Field::set_text(const std::string& text, const std::string& where) const {
  const char *begin = text.data(), *end = begin + text.size();
  switch (value.index()) {
    case 0:
      if (text != "true" && text != "false" && text != "1" && text != "0") fail_kind(*this, in_quotes(text), where);
      return store(*this, text == "true" || text == "1");
    case 1:
      if (int64_t whole_number = 0; std::from_chars(begin, end, whole_number).ptr == end && begin != end &&
                                    std::from_chars(begin, end, whole_number).ec == std::errc())
        return set(Json(whole_number), where);
      [[fallthrough]];  // 1e6
    case 2: {
      double number = 0;
      const auto [stop, status] = std::from_chars(begin, end, number);
      if (stop != end || begin == end || status != std::errc()) fail_kind(*this, in_quotes(text), where);
      check_range(*this, number, printable(text), where);
      return set(Json(number), where);
    }
    case 3:
      return set(Json(text), where);
    default: {
      std::vector<std::string> words;
      for (size_t at = 0; !text.empty() && at <= text.size();) {
        const size_t comma = std::min(text.find(',', at), text.size());
        words.push_back(text.substr(at, comma - at));
        at = comma + 1;
      }
      return store(*this, words);
    }
  }
}

void Fields::add(Field field) {
  field.key = prefix_ + field.key;
  TALLY_ASSERT(find_exact(*this, field.key) == nullptr);
  all_.push_back(std::move(field));
}

void Fields::operator()(const char* key, bool& v, const char* help) { add({key, help, &v, 0, 0, {}}); }
void Fields::operator()(const char* key, int64_t& v, const char* help, double min, double max) {
  add({key, help, &v, min, max, {}});
}
void Fields::operator()(const char* key, double& v, const char* help, double min, double max) {
  add({key, help, &v, min, max, {}});
}
void Fields::operator()(const char* key, std::string& v, const char* help, std::vector<std::string> choices) {
  add({key, help, &v, 0, 0, std::move(choices)});
}
void Fields::operator()(const char* key, std::vector<std::string>& v, const char* help) {
  add({key, help, &v, 0, 0, {}});
}

const Field& Fields::find(std::string_view key, const std::string& where) const {
  std::string wanted(key);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  if (const Field* field = find_exact(*this, wanted)) return *field;
  std::vector<const Field*> matches;
  for (const Field& f : all_)
    if (!wanted.empty() && is_suffix(f.key, wanted)) matches.push_back(&f);
  if (matches.size() == 1) return *matches[0];
  if (matches.empty()) fail_unknown(*this, wanted, where);
  std::vector<std::string> names;
  for (const Field* f : matches) names.push_back(f->key);
  fail("{} in {} is ambiguous: {}", wanted, where, joined(names));
}

Json fields_to_json(const Fields& fields) {
  Json root = Json::object();
  for (const Field& f : fields.all()) {
    Json* at = &root;
    size_t begin = 0;
    for (size_t dot = f.key.find('.'); dot != std::string::npos; begin = dot + 1, dot = f.key.find('.', begin)) {
      const std::string group = f.key.substr(begin, dot - begin);
      if (at->find(group) == nullptr) at->set(group, Json::object());
      at = const_cast<Json*>(at->find(group));
    }
    at->set(f.key.substr(begin), f.get());
  }
  return root;
}

void fields_from_json(const Fields& fields, const Json& json, const std::string& where) {
  if (!json.is_object()) fail("{}: the configuration must be an object", where);
  Changes changes;
  collect(fields, json, "", where, changes);
  for (auto& [field, value] : changes) store(*field, std::move(value));
}

std::vector<std::string> fields_diff(const Fields& a, const Fields& b) {
  std::vector<std::string> lines;
  for (const Field& before : a.all()) {
    const Field* after = find_exact(b, before.key);
    const std::string x = before.get().dump(), y = after == nullptr ? "(absent)" : after->get().dump();
    if (x != y) lines.push_back(before.key + " " + x + " -> " + y);
  }
  for (const Field& after : b.all())
    if (find_exact(a, after.key) == nullptr) lines.push_back(after.key + " (absent) -> " + after.get().dump());
  return lines;
}

std::string fields_help(const Fields& fields) {
  static constexpr const char* kKinds[] = {"BOOL", "INT", "NUMBER", "TEXT", "A B .."};
  std::vector<std::string> heads;
  size_t width = 0;
  for (const Field& f : fields.all()) {
    heads.push_back("--" + f.key + " " + kKinds[f.value.index()]);
    width = std::max(width, heads.back().size());
  }
  std::string out;
  for (size_t i = 0; i < heads.size(); ++i) {
    const Field& f = fields.all()[i];
    const bool number = f.value.index() == 1 || f.value.index() == 2;
    std::string allowed;
    if (number && f.min <= f.max) allowed = number_text(f.min) + " to " + number_text(f.max) + "; ";
    if (!f.choices.empty()) allowed = joined(f.choices) + "; ";
    const Json value = f.get();
    const std::string now = number ? number_text(value.as_double()) : value.dump();
    out += fmt::format("  {:<{}}  {} ({}default {})\n", heads[i], width, f.help, allowed, now);
  }
  return out;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(word.size(), candidate.size()), shorter = std::min(word.size(), candidate.size());
    if (longer - shorter >= best_distance) continue;
    // Levenshtein distance, one row at a time.
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < word.size(); ++i) {
      size_t diagonal = row[0]++;
      for (size_t j = 0; j < candidate.size(); ++j) {
        const size_t replaced = diagonal + (word[i] == candidate[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
      }
    }
    if (row.back() < best_distance) best_distance = row.back(), best = candidate;
  }
  return best;
}

}  // namespace tally
