// What the plots of plot.h share: the SVG under construction, axes with ticks at round numbers, legends.
#pragma once

#include <string>
#include <vector>

#include "tally/base/plot.h"

namespace tally {

constexpr double kPlotWidth = 380, kPlotText = 12, kPlotSmall = 11;
constexpr int kPlotColors = 7;  // then they begin again, dashed

double text_width(std::string_view text, double size);                      // about
std::string shortened(const std::string& text, double width, double size);  // with an ellipsis where it does not fit
// A value that can be drawn: finite and of a size whose differences stay finite.
bool drawable(double value);

class Canvas {
 public:
  Canvas(const std::string& title, double height);
  // `style` holds class names of the style sheet in plot_canvas.cpp.
  void line(double x1, double y1, double x2, double y2, const char* style);
  void rect(double x, double y, double width, double height, const std::string& style, const std::string& tip = "");
  void circle(double x, double y, double radius, const std::string& style, const std::string& tip = "");
  void path(const std::string& d, const std::string& style, const std::string& tip = "");
  void polyline(const std::vector<std::pair<double, double>>& points, const std::string& style, const std::string& tip);
  // anchor: "start", "middle" or "end".
  void text(double x, double y, const std::string& text, const char* anchor, const char* style = "");
  // Names with their colours, in rows between 8 and kPlotWidth - 8; returns the y below. lines: strokes, not squares.
  double legend(double y, const std::vector<std::string>& names, bool lines);
  void no_data(double top, double bottom);
  std::string finish() const;

 private:
  std::string title_, body_;
  double height_;
};

std::string stroke_class(size_t series);  // "l0" to "l6", then "l0 dash"
std::string fill_class(size_t series);
std::string number(double coordinate);  // two decimals, no zeros behind

struct Tick {
  double value = 0;
  std::string label;  // may be empty
};

// Maps values to coordinates.
class Axis {
 public:
  // From `low` to `high`, both drawable. A linear axis that is to end at ticks (`round`) is widened to them.
  static Axis linear(double low, double high, PlotUnit unit, int ticks, bool round);
  static Axis logarithmic(double low, double high, PlotUnit unit, int most_ticks);  // 0 < low
  void place(double from, double to) { from_ = from, to_ = to; }
  double at(double value) const;
  bool log() const { return log_; }
  double low() const { return low_; }
  double high() const { return high_; }
  const std::vector<Tick>& ticks() const { return ticks_; }
  double label_width() const;

 private:
  double low_ = 0, high_ = 1, from_ = 0, to_ = 1;
  bool log_ = false;
  std::vector<Tick> ticks_;
};

// The frame of a plot: room for labels, grid lines, labels; afterwards both axes are placed. Returns nothing to draw
// over: the plot area is x.at(low..high), y.at(low..high).
void draw_axes(Canvas& canvas, Axis& x, Axis& y, double top, double bottom, const std::string& x_label);

}  // namespace tally
