// Parsing by nlohmann-json's SAX interface (RFC 8259; iterative, so depth costs no stack); building, checks and
// writing are ours. Line and column of an error come from the byte that the lexer has reached.
#include "tally/base/json.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tally/base/error.h"

namespace tally {
namespace {

constexpr size_t kMaxDepth = 128;

// Reads the text and leaves in *reached how far the lexer has come.
struct Cursor {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  const char* at = nullptr;
  const char** reached = nullptr;
  const char& operator*() const { return *at; }
  Cursor& operator++() {
    *reached = ++at;
    return *this;
  }
  Cursor operator++(int) {
    Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& o) const { return at == o.at; }
  bool operator!=(const Cursor& o) const { return at != o.at; }
};

// "parse error at line 1, column 5: syntax error while parsing X - Y; last read: 'Z'" -> "Y", printable.
std::string plain_message(const char* text) {
  std::string s = text;
  s = s.substr(0, s.find("; last read: '"));
  if (const size_t dash = s.find(" - "); dash != std::string::npos) s = s.substr(dash + 3);
  if (const size_t bracket = s.find("] "); s.starts_with('[') && bracket != std::string::npos)
    s = s.substr(bracket + 2);
  for (char& c : s)
    if (c < 0x20 || c > 0x7e) c = '?';
  return printable(s);
}

class Builder {
 public:
  using number_integer_t = int64_t;
  using number_unsigned_t = uint64_t;
  using number_float_t = double;
  using string_t = std::string;
  using binary_t = nlohmann::json::binary_t;

  Builder(std::string_view text, const std::string& source) : text_(text), source_(source), reached_(text.data()) {}

  const char** reached() { return &reached_; }
  // nlohmann-json takes a NUL for the end of the text and would not see what stands behind it.
  void refuse_nul() const {
    if (const size_t at = text_.find('\0'); at != std::string_view::npos) fail_at(at + 1, "a NUL byte");
  }
  Json take() { return std::move(root_); }

  bool null() { return add(Json()); }
  bool boolean(bool v) { return add(Json(v)); }
  bool number_integer(int64_t v) { return add(Json(v)); }
  bool number_unsigned(uint64_t v) {
    return add(v <= uint64_t{INT64_MAX} ? Json(static_cast<int64_t>(v)) : Json(static_cast<double>(v)));
  }
  bool number_float(double v, const std::string&) { return add(Json(v)); }
  bool string(std::string& v) { return add(Json(std::move(v))); }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool key(std::string& k) {
    stack_.back().value.as_object().emplace_back().first = std::move(k);
    stack_.back().key_ends.push_back(static_cast<size_t>(reached_ - text_.data()));
    return true;
  }
  bool end_object() {
    refuse_twice(stack_.back());
    return close();
  }
  bool end_array() { return close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) {
    fail_at(std::min(position, text_.size() + 1), plain_message(e.what()));
  }

 private:
  struct Frame {
    Json value;
    std::vector<size_t> key_ends;  // offset behind each key
  };

  [[noreturn]] void fail_at(size_t end, const std::string& message) const {
    const size_t at = end > 0 ? end - 1 : 0;
    const std::string_view before = text_.substr(0, at);
    const size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
    const size_t last = before.rfind('\n');
    const size_t column = at - (last == std::string_view::npos ? 0 : last + 1) + 1;
    fail("{}:{}:{}: {}", source_, line, column, message);
  }

  bool open(Json container) {
    if (stack_.size() == kMaxDepth)
      fail_at(static_cast<size_t>(reached_ - text_.data()), fmt::format("nested deeper than {}", kMaxDepth));
    stack_.push_back({std::move(container), {}});
    return true;
  }

  bool close() {
    Json done = std::move(stack_.back().value);
    stack_.pop_back();
    return add(std::move(done));
  }

  bool add(Json value) {
    if (stack_.empty())
      root_ = std::move(value);
    else if (Json& parent = stack_.back().value; parent.is_array())
      parent.as_array().push_back(std::move(value));
    else
      parent.as_object().back().second = std::move(value);
    return true;
  }

  void refuse_twice(const Frame& frame) const {
    const Json::Object& object = frame.value.as_object();
    std::vector<size_t> order(object.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return object[a].first < object[b].first; });
    size_t second = object.size();
    for (size_t i = 1; i < order.size(); ++i)
      if (object[order[i]].first == object[order[i - 1]].first) second = std::min(second, order[i]);
    if (second == object.size()) return;
    fail_at(frame.key_ends[second],
            fmt::format("the key {} stands twice in one object", in_quotes(object[second].first)));
  }

  std::string_view text_;
  const std::string& source_;
  const char* reached_;
  std::vector<Frame> stack_;
  Json root_;
};

const char* kind_name(const Json& j) {
  if (j.is_null()) return "null";
  if (j.is_bool()) return "a boolean";
  if (j.is_number()) return "a number";
  if (j.is_string()) return "a string";
  return j.is_array() ? "an array" : "an object";
}

[[noreturn]] void fail_kind(const char* expected, const Json& found) {
  fail("expected {}, found {}", expected, kind_name(found));
}

}  // namespace

size_t utf8_length(std::string_view s) {
  const auto byte = [&](size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const auto tail = [&](size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned a = byte(0), b = byte(1);
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a <= 0xDF) return tail(1) ? 2 : 0;
  if (a >= 0xE0 && a <= 0xEF) {
    const bool fits = tail(1) && !(a == 0xE0 && b < 0xA0) && !(a == 0xED && b > 0x9F);
    return fits && tail(2) ? 3 : 0;
  }
  if (a >= 0xF0 && a <= 0xF4) {
    const bool fits = tail(1) && !(a == 0xF0 && b < 0x90) && !(a == 0xF4 && b > 0x8F);
    return fits && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

namespace {

void write_escaped(std::string& out, std::string_view s) {
  while (!s.empty()) {
    const char c = s[0];
    size_t length = 1;
    static constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    if (const size_t i = kEscaped.find(c); i != std::string_view::npos) {
      out += '\\', out += kLetters[i];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else if (length = utf8_length(s); length > 0) {
      out += s.substr(0, length);
    } else {
      out += "\xEF\xBF\xBD", length = 1;  // U+FFFD: the output is always valid JSON
    }
    s.remove_prefix(length);
  }
}

void write_string(std::string& out, std::string_view s) {
  out += '"';
  write_escaped(out, s);
  out += '"';
}

void write_double(std::string& out, double v) {
  if (!std::isfinite(v)) {
    out += "null";
    return;
  }
  const std::string text = fmt::format("{}", v);  // the shortest digits that read back equal
  out += text;
  if (text.find_first_of(".e") == std::string::npos) out += ".0";  // reads back as a double
}

void write_break(std::string& out, int indent, int depth) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(indent) * static_cast<size_t>(depth), ' ');
}

void write_value(std::string& out, const Json& j, int indent, int depth) {
  if (j.is_null()) {
    out += "null";
  } else if (j.is_bool()) {
    out += j.as_bool() ? "true" : "false";
  } else if (j.is_int()) {
    out += fmt::format("{}", j.as_int());
  } else if (j.is_number()) {
    write_double(out, j.as_double());
  } else if (j.is_string()) {
    write_string(out, j.as_string());
  } else if (j.is_array()) {
    out += '[';
    const bool numbers =
        std::all_of(j.as_array().begin(), j.as_array().end(), [](const Json& v) { return v.is_number(); });
    if (numbers) indent = -1;  // on one line
    for (size_t i = 0; i < j.as_array().size(); ++i) {
      if (i > 0) out += ',';
      write_break(out, indent, depth + 1);
      write_value(out, j.as_array()[i], indent, depth + 1);
    }
    if (!j.as_array().empty()) write_break(out, indent, depth);
    out += ']';
  } else {
    out += '{';
    for (size_t i = 0; i < j.as_object().size(); ++i) {
      if (i > 0) out += ',';
      write_break(out, indent, depth + 1);
      write_string(out, j.as_object()[i].first);
      out += indent < 0 ? ":" : ": ";
      write_value(out, j.as_object()[i].second, indent, depth + 1);
    }
    if (!j.as_object().empty()) write_break(out, indent, depth);
    out += '}';
  }
}

}  // namespace

Json::Json(const Json&) = default;
[[gnu::noinline]] Json::Json(Json&& other) noexcept : value_(std::move(other.value_)) {}
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

Json Json::parse(std::string_view text, const std::string& source) {
  Builder builder(text, source);
  builder.refuse_nul();
  const Cursor begin{text.data(), builder.reached()}, end{text.data() + text.size(), builder.reached()};
  nlohmann::json::sax_parse(begin, end, &builder);
  return builder.take();
}

bool Json::as_bool() const {
  if (const bool* v = std::get_if<bool>(&value_)) return *v;
  fail_kind("a boolean", *this);
}

int64_t Json::as_int() const {
  if (const int64_t* v = std::get_if<int64_t>(&value_)) return *v;
  if (const double* v = std::get_if<double>(&value_)) fail("expected a whole number, found {}", Json(*v).dump());
  fail_kind("a whole number", *this);
}

double Json::as_double() const {
  if (const double* v = std::get_if<double>(&value_)) return *v;
  if (const int64_t* v = std::get_if<int64_t>(&value_)) return static_cast<double>(*v);
  fail_kind("a number", *this);
}

const std::string& Json::as_string() const {
  if (const auto* v = std::get_if<std::string>(&value_)) return *v;
  fail_kind("a string", *this);
}

const Json::Array& Json::as_array() const {
  if (const auto* v = std::get_if<Array>(&value_)) return *v;
  fail_kind("an array", *this);
}

const Json::Object& Json::as_object() const {
  if (const auto* v = std::get_if<Object>(&value_)) return *v;
  fail_kind("an object", *this);
}

Json::Array& Json::as_array() { return const_cast<Array&>(static_cast<const Json&>(*this).as_array()); }
Json::Object& Json::as_object() { return const_cast<Object&>(static_cast<const Json&>(*this).as_object()); }

const Json* Json::find(std::string_view key) const {
  for (const auto& [k, v] : as_object())
    if (k == key) return &v;
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  if (const Json* v = find(key)) return *v;
  fail("the key \"{}\" is missing", key);
}

Json& Json::set(std::string key, Json value) {
  for (auto& [k, v] : as_object()) {
    if (k == key) {
      v = std::move(value);
      return *this;
    }
  }
  as_object().emplace_back(std::move(key), std::move(value));
  return *this;
}

void Json::push_back(Json value) { as_array().push_back(std::move(value)); }

std::string printable(std::string_view text) {
  size_t shown = text.size();
  if (shown > kShownBytes) {  // not in the middle of a character
    shown = kShownBytes;
    for (int i = 0; i < 3 && (static_cast<unsigned char>(text[shown]) & 0xC0u) == 0x80u; ++i) --shown;
  }
  std::string escaped, out;
  write_escaped(escaped, text.substr(0, shown));
  for (const char c : escaped) out += c == 0x7f ? std::string("\\u007f") : std::string(1, c);
  return shown < text.size() ? out + "..." : out;
}

std::string in_quotes(std::string_view text) { return '"' + printable(text) + '"'; }

std::string Json::dump(int indent) const {
  std::string out;
  write_value(out, *this, indent, 0);
  return out;
}

}  // namespace tally
