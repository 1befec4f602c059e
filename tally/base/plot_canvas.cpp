#include "tally/base/plot_canvas.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tally/base/error.h"
#include "tally/base/json.h"

namespace tally {

namespace {

// Okabe and Ito's colours without yellow and black, which vanish on one of the two grounds; grey instead.
constexpr const char* kLight[kPlotColors] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                             "#e69f00", "#56b4e9", "#6f6f6f"};
constexpr const char* kDark[kPlotColors] = {"#4a9fe0", "#f0793a", "#2bc796", "#e09cc4",
                                            "#f2b740", "#9ad4f7", "#a8a8a8"};

std::string color_rules(const char* const (&colors)[kPlotColors]) {
  std::string css;
  for (int i = 0; i < kPlotColors; ++i)
    css += fmt::format(".plot .l{0}{{stroke:{1}}}.plot .f{0}{{fill:{1}}}", i, colors[i]);
  return css;
}

// Classes, not CSS variables: viewers other than browsers know the former only.
const std::string& style_sheet() {
  static const std::string css =
      ".plot{font-family:system-ui,sans-serif}.plot text{font-size:12px;fill:#1d2129}"
      ".plot .title{font-size:13px;font-weight:600}.plot .soft{fill:#565c66;font-size:11px}.plot .ground{fill:#fff}"
      ".plot .halo{paint-order:stroke;stroke:#fff;stroke-width:3px}"
      ".plot .grid{stroke:#e3e6ea}.plot .frame{stroke:#868d98}.plot .roof{stroke:#1d2129;stroke-width:1.6;fill:none}"
      ".plot .span{stroke:#868d98;stroke-dasharray:3 3}"
      ".plot .curve{fill:none;stroke-width:1.5;stroke-linejoin:round;stroke-linecap:round}"
      ".plot .dash{stroke-dasharray:5 3}.plot .area{fill-opacity:.85}.plot .point{fill-opacity:.55;stroke-width:1.2}" +
      color_rules(kLight) +
      "@media(prefers-color-scheme:dark){.plot text{fill:#e6e8eb}.plot .soft{fill:#a4abb6}.plot .ground{fill:#16181c}"
      ".plot .halo{stroke:#16181c}"
      ".plot .grid{stroke:#2c3036}.plot .frame{stroke:#7c838e}.plot .roof{stroke:#e6e8eb}" +
      color_rules(kDark) + "}";
  return css;
}

std::string tip_element(const std::string& tip) {
  return tip.empty() ? std::string() : "<title>" + escape_markup(tip) + "</title>";
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text.substr(at));
    const std::string_view piece = text.substr(at, std::max<size_t>(1, length));
    const auto first = static_cast<uint8_t>(piece[0]);
    at += piece.size();
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (first < 0x20 || first == 0x7F) {  // U+2400 + code, U+2421 for DEL
      out += "\xE2\x90";
      out += static_cast<char>(first == 0x7F ? 0xA1 : 0x80 + first);
    } else if (length == 2 && first == 0xC2 && static_cast<uint8_t>(piece[1]) < 0xA0) {  // C1 controls
      out += fmt::format("&lt;U+{:04X}&gt;", static_cast<uint8_t>(piece[1]));
    } else if (piece == "&") {
      out += "&amp;";
    } else if (piece == "<") {
      out += "&lt;";
    } else if (piece == ">") {
      out += "&gt;";
    } else if (piece == "\"") {
      out += "&quot;";
    } else if (piece == "'") {
      out += "&#39;";
    } else {
      out += piece;
    }
  }
  return out;
}

double text_width(std::string_view text, double size) {
  double width = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    width += byte < 0x80 ? 0.58 : byte >= 0xC0 ? 1.0 : 0.0;  // a letter beyond ASCII may be wide
  }
  return width * size;
}

std::string shortened(const std::string& text, double width, double size) {
  if (text_width(text, size) <= width) return text;
  std::string kept = text.substr(0, static_cast<size_t>(std::max(0.0, width)));  // far more than fits
  while (!kept.empty() && text_width(kept, size) + size > width) {
    while (!kept.empty() && (static_cast<uint8_t>(kept.back()) & 0xC0) == 0x80) kept.pop_back();
    if (!kept.empty()) kept.pop_back();
  }
  return kept + "\xE2\x80\xA6";
}

bool drawable(double value) { return std::isfinite(value) && std::abs(value) < 1e100; }

std::string number(double v) {
  std::string text = fmt::format("{:.2f}", v);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string stroke_class(size_t i) {
  return fmt::format("l{}{}", i % kPlotColors, i >= static_cast<size_t>(kPlotColors) ? " dash" : "");
}
std::string fill_class(size_t i) { return fmt::format("f{}", i % kPlotColors); }

Canvas::Canvas(const std::string& title, double height) : title_(title), height_(height) {
  if (!title.empty()) text(8, 18, shortened(title, kPlotWidth - 16, 13.5), "start", "title");
}

void Canvas::line(double x1, double y1, double x2, double y2, const char* style) {
  body_ += fmt::format(R"(<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>)", style, number(x1), number(y1),
                       number(x2), number(y2));
}

void Canvas::rect(double x, double y, double width, double height, const std::string& style, const std::string& tip) {
  body_ += fmt::format(R"(<rect class="{}" x="{}" y="{}" width="{}" height="{}">{}</rect>)", style, number(x),
                       number(y), number(width), number(height), tip_element(tip));
}

void Canvas::circle(double x, double y, double radius, const std::string& style, const std::string& tip) {
  body_ += fmt::format(R"(<circle class="{}" cx="{}" cy="{}" r="{}">{}</circle>)", style, number(x), number(y),
                       number(radius), tip_element(tip));
}

void Canvas::path(const std::string& d, const std::string& style, const std::string& tip) {
  body_ += fmt::format(R"(<path class="{}" d="{}">{}</path>)", style, d, tip_element(tip));
}

void Canvas::polyline(const std::vector<std::pair<double, double>>& points, const std::string& style,
                      const std::string& tip) {
  std::string list;
  for (const auto& [x, y] : points) list += (list.empty() ? "" : " ") + number(x) + "," + number(y);
  body_ += fmt::format(R"(<polyline class="{}" points="{}">{}</polyline>)", style, list, tip_element(tip));
}

void Canvas::text(double x, double y, const std::string& text, const char* anchor, const char* style) {
  body_ += fmt::format(R"(<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>)", style, number(x), number(y),
                       anchor, escape_markup(text));
}

double Canvas::legend(double y, const std::vector<std::string>& names, bool lines) {
  double x = 8;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string name = shortened(names[i], kPlotWidth - 40, kPlotSmall);
    const double width = 22 + text_width(name, kPlotSmall) + 10;
    if (x > 8 && x + width > kPlotWidth - 4) x = 8, y += 16;
    if (lines)
      path(fmt::format("M{} {}h16", number(x), number(y - 4)), "curve " + stroke_class(i));
    else
      rect(x + 2, y - 9, 11, 11, "area " + fill_class(i));
    text(x + (lines ? 20 : 17), y, name, "start", "soft");
    x += width;
  }
  return names.empty() ? y : y + 8;
}

void Canvas::no_data(double top, double bottom) {
  text(kPlotWidth / 2, (top + bottom) / 2, "no data", "middle", "soft");
}

std::string Canvas::finish() const {
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {0} {1}" role="img" aria-label="{2}">)"
      R"(<style>{3}</style><rect class="ground" width="{0}" height="{1}"/>{4}</svg>)",
      number(kPlotWidth), number(height_), escape_markup(title_), style_sheet(), body_);
}

}  // namespace tally
