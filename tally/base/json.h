// A JSON value of our own: null, bool, i64, double, string, array, object (keys keep their order).
// nlohmann-json does the parsing inside json.cpp, so that its 4-second header is compiled once.
// dump() is canonical: the same value gives the same bytes (doubles as the shortest text that reads back equal).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tally {

// Length of the well-formed UTF-8 sequence at the start of s (Unicode 15, table 3-7), 0 when it is malformed.
size_t utf8_length(std::string_view s);

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() = default;  // null
  // Out of line: g++ 12 warns wrongly (maybe-uninitialized) where a variant's move is inlined.
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();
  Json(bool v) : value_(v) {}
  Json(int v) : value_(static_cast<int64_t>(v)) {}
  Json(int64_t v) : value_(v) {}
  Json(double v) : value_(v) {}
  Json(const char* v) : value_(std::string(v)) {}
  Json(std::string v) : value_(std::move(v)) {}
  Json(Array v) : value_(std::move(v)) {}
  Json(Object v) : value_(std::move(v)) {}
  static Json array() { return Json(Array{}); }
  static Json object() { return Json(Object{}); }

  // Throws Error naming `source` (a file name) with line and column. Integers beyond i64 become doubles;
  // a NUL byte, a key that stands twice in one object and nesting deeper than 128 are errors.
  static Json parse(std::string_view text, const std::string& source);

  bool is_null() const { return value_.index() == 0; }
  bool is_bool() const { return value_.index() == 1; }
  bool is_int() const { return value_.index() == 2; }
  bool is_number() const { return value_.index() == 2 || value_.index() == 3; }
  bool is_string() const { return value_.index() == 4; }
  bool is_array() const { return value_.index() == 5; }
  bool is_object() const { return value_.index() == 6; }

  // Throw Error "expected a number, found a string" when the kind differs. as_double accepts an int.
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;
  const std::string& as_string() const;
  const Array& as_array() const;
  const Object& as_object() const;
  Array& as_array();
  Object& as_object();

  // Objects: find returns nullptr when absent; at throws Error naming the key; set replaces or appends.
  const Json* find(std::string_view key) const;
  const Json& at(std::string_view key) const;
  Json& set(std::string key, Json value);  // returns *this
  void push_back(Json value);              // arrays

  // indent < 0: one line without spaces, as arrays of numbers always are. Non-finite doubles are written as null, a
  // byte that is not UTF-8 as U+FFFD.
  std::string dump(int indent = -1) const;

  bool operator==(const Json& other) const { return value_ == other.value_; }

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

// For messages about text that a user or a file gave: escaped as in a JSON string (DEL too), "..." for what is longer
// than kShownBytes. One printable line whatever the text holds; in_quotes adds the quotes.
inline constexpr size_t kShownBytes = 100;
std::string printable(std::string_view text);
std::string in_quotes(std::string_view text);

}  // namespace tally
