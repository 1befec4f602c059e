#include "tally/base/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tally/base/error.h"
#include "tally/base/plot_canvas.h"

namespace tally {

namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();
using Points = std::vector<std::pair<double, double>>;

struct Range {
  double low = kNone, high = -kNone;
  void add(double v) { low = std::min(low, v), high = std::max(high, v); }
  bool empty() const { return low > high; }
};

bool shown(const LineChart& c, const Series& s, size_t i) {
  return drawable(s.x[i]) && drawable(s.y[i]) && (!c.log_y || s.y[i] > 1e-100);
}

size_t size_of(const Series& s) { return std::min(s.x.size(), s.y.size()); }

// M4: of the points in one column of width `column` the first, lowest, highest and last, in their order.
Points thinned(const Points& points, double column) {
  Points out;
  for (size_t begin = 0; begin < points.size();) {
    const double cell = std::floor(points[begin].first / column);
    size_t end = begin, low = begin, high = begin;
    for (; end < points.size() && std::floor(points[end].first / column) == cell; ++end) {
      if (points[end].second > points[low].second) low = end;
      if (points[end].second < points[high].second) high = end;
    }
    std::vector<size_t> kept = {begin, low, high, end - 1};
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (size_t i : kept) out.push_back(points[i]);
    begin = end;
  }
  return out;
}

void draw_series(Canvas& canvas, const LineChart& chart, size_t index, const Axis& x, const Axis& y) {
  const Series& s = chart.series[index];
  const double column = std::max(1.0, static_cast<double>(chart.series.size()) / 8);
  size_t count = 0;
  Points stretch;
  const auto flush = [&] {
    if (stretch.size() > 1)
      canvas.polyline(thinned(stretch, column), "curve " + stroke_class(index), s.name);
    else if (stretch.size() == 1)
      canvas.circle(stretch[0].first, stretch[0].second, 2.5, fill_class(index), s.name);
    stretch.clear();
  };
  for (size_t i = 0; i < size_of(s); ++i) {
    if (shown(chart, s, i))
      stretch.emplace_back(x.at(s.x[i]), y.at(s.y[i])), ++count;
    else
      flush();
  }
  flush();
  if (count > 12) return;  // few points, of validation say, are marked
  for (size_t i = 0; i < size_of(s); ++i)
    if (shown(chart, s, i))
      canvas.circle(x.at(s.x[i]), y.at(s.y[i]), 2.2, fill_class(index),
                    fmt::format("{}: {}", value_text(s.x[i], chart.x_unit), value_text(s.y[i], chart.y_unit)));
}

}  // namespace

std::string line_chart_svg(const LineChart& chart) {
  constexpr double kPlotHeight = 180;
  std::vector<std::string> names;
  Range xs, ys;
  for (const Series& s : chart.series) {
    names.push_back(s.name);
    for (size_t i = 0; i < size_of(s); ++i)
      if (shown(chart, s, i)) xs.add(s.x[i]), ys.add(s.y[i]);
  }
  if (names.size() < 2) names.clear();
  Canvas measure("", 0);
  const double top = names.empty() ? 34 : measure.legend(36, names, true) + 8, bottom = top + kPlotHeight;
  Canvas canvas(chart.title, bottom + 40);
  canvas.legend(36, names, true);
  if (xs.empty()) {
    canvas.no_data(top, bottom);
    return canvas.finish();
  }
  if (chart.from_zero && !chart.log_y) ys.add(0);
  Axis x = Axis::linear(xs.low, xs.high, chart.x_unit, 6, false);
  Axis y = chart.log_y ? Axis::logarithmic(ys.low, ys.high, chart.y_unit, 5)
                       : Axis::linear(ys.low, ys.high, chart.y_unit, 5, true);
  draw_axes(canvas, x, y, top, bottom, chart.x_label);
  for (size_t i = 0; i < chart.series.size(); ++i) draw_series(canvas, chart, i, x, y);
  return canvas.finish();
}

namespace {

// A value of a layer that counts: what is negative or not drawable is 0.
double layer_value(const StackedSteps::Layer& layer, size_t i) {
  return i < layer.values.size() && drawable(layer.values[i]) ? std::max(0.0, layer.values[i]) : 0;
}

// The area between the step curves `lower` and `upper`, clockwise.
std::string area_between(const std::vector<double>& edges, const std::vector<double>& lower,
                         const std::vector<double>& upper, const Axis& x, const Axis& y) {
  std::string d = fmt::format("M{} {}", number(x.at(edges[0])), number(y.at(upper[0])));
  for (size_t i = 0; i < upper.size(); ++i) {
    if (i > 0 && upper[i] != upper[i - 1]) d += "V" + number(y.at(upper[i]));
    if (i + 1 == upper.size() || upper[i + 1] != upper[i]) d += "H" + number(x.at(edges[i + 1]));
  }
  for (size_t i = lower.size(); i-- > 0;) {
    if (i + 1 == lower.size() || lower[i] != lower[i + 1]) d += "V" + number(y.at(lower[i]));
    if (i == 0 || lower[i - 1] != lower[i]) d += "H" + number(x.at(edges[i]));
  }
  return d + "Z";
}

void draw_spans(Canvas& canvas, const StackedSteps& plot, const Axis& x, double top, double bottom) {
  double free = 0;
  for (const StackedSteps::Span& span : plot.spans) {
    const double from = std::max(span.from, x.low()), to = std::min(span.to, x.high());
    if (!(to > from)) continue;
    if (from > x.low()) canvas.line(x.at(from), top - 12, x.at(from), bottom, "span");
    const double width = x.at(to) - x.at(from);
    const double begin = x.at(from) + 3;
    if (begin < free || begin + text_width(span.name, kPlotSmall) > kPlotWidth - 2) continue;
    if (text_width(span.name, kPlotSmall) > width + 30) continue;
    canvas.text(begin, top - 3, span.name, "start", "soft");
    free = begin + text_width(span.name, kPlotSmall) + 4;
  }
}

}  // namespace

std::string stacked_steps_svg(const StackedSteps& plot) {
  constexpr double kPlotHeight = 200;
  const size_t n = plot.edges.empty() ? 0 : plot.edges.size() - 1;
  std::vector<const StackedSteps::Layer*> layers;
  std::vector<std::string> names;
  double most = 0;
  std::vector<double> sums(n);
  for (const StackedSteps::Layer& layer : plot.layers) {
    double largest = 0;
    for (size_t i = 0; i < n; ++i) sums[i] += layer_value(layer, i), largest = std::max(largest, layer_value(layer, i));
    if (largest > 0) layers.push_back(&layer), names.push_back(layer.name);
  }
  for (double s : sums) most = std::max(most, s);
  Canvas measure("", 0);
  const double top = measure.legend(36, names, false) + 20, bottom = top + kPlotHeight;
  Canvas canvas(plot.title, bottom + 40);
  canvas.legend(36, names, false);
  const bool rising = std::is_sorted(plot.edges.begin(), plot.edges.end()) &&
                      std::all_of(plot.edges.begin(), plot.edges.end(), drawable);
  if (layers.empty() || !rising || !(plot.edges.back() > plot.edges.front()) || !drawable(most)) {
    canvas.no_data(top, bottom);
    return canvas.finish();
  }
  Axis x = Axis::linear(plot.edges.front(), plot.edges.back(), plot.x_unit, 6, false);
  Axis y = Axis::linear(0, most, plot.y_unit, 5, true);
  draw_axes(canvas, x, y, top, bottom, plot.x_label);
  std::vector<double> lower(n), upper(n);
  for (size_t l = 0; l < layers.size(); ++l, lower = upper) {
    for (size_t i = 0; i < n; ++i) upper[i] = lower[i] + layer_value(*layers[l], i);
    canvas.path(area_between(plot.edges, lower, upper, x, y), "area " + fill_class(l), names[l]);
  }
  draw_spans(canvas, plot, x, top, bottom);
  return canvas.finish();
}

std::string bars_svg(const BarChart& chart) {
  constexpr double kRow = 22;
  double most = 0, label_width = 40, text_room = 20;
  for (const BarChart::Bar& bar : chart.bars) {
    double sum = 0;
    for (double part : bar.parts) sum += drawable(part) ? std::max(0.0, part) : 0;
    most = std::max(most, sum);
    label_width = std::max(label_width, std::min(130.0, text_width(bar.label, kPlotSmall)));
    text_room = std::max(text_room, text_width(bar.text, kPlotSmall));
  }
  const std::vector<std::string> names = chart.parts.size() > 1 ? chart.parts : std::vector<std::string>();
  Canvas measure("", 0);
  const double top = measure.legend(36, names, false) + (names.empty() ? -4 : 4);
  const double bottom = top + std::max<double>(2, static_cast<double>(chart.bars.size())) * kRow;
  Canvas canvas(chart.title, bottom + 8);
  canvas.legend(36, names, false);
  if (chart.bars.empty() || !(most > 0)) {
    canvas.no_data(top, bottom);
    return canvas.finish();
  }
  const double left = 8 + label_width + 6, full = kPlotWidth - 8 - text_room - 6 - left;
  double y = top;
  for (const BarChart::Bar& bar : chart.bars) {
    canvas.text(left - 6, y + 14, shortened(bar.label, label_width, kPlotSmall), "end", "soft");
    double x = left;
    for (size_t i = 0; i < bar.parts.size(); ++i) {
      const double part = drawable(bar.parts[i]) ? std::max(0.0, bar.parts[i]) : 0;
      const double width = full * (part / most);
      if (width > 0.05)
        canvas.rect(x, y + 3, width, kRow - 7, "area " + fill_class(i),
                    i < chart.parts.size() ? bar.label + ", " + chart.parts[i] : bar.label);
      x += width;
    }
    canvas.text(x + 6, y + 14, bar.text, "start", "soft");
    y += kRow;
  }
  return canvas.finish();
}

}  // namespace tally
