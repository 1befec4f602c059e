// Plots as SVG text: lines, a stacked step curve, horizontal bars and a roofline. Pure functions of plain data.
// A picture scales with its width (viewBox, 380 units wide so that its 12-unit text is readable on a telephone), needs
// no script and no other file, and follows the reader's light or dark setting. Colours are those of Okabe and Ito
// ("Color Universal Design", 2008), which people with any kind of colour vision can tell apart, lighter on dark. All
// text is escaped. Values that are not finite are gaps; what is left with no values says "no data".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tally {

// Text for HTML and SVG: & < > " ' escaped, control characters (newline and tab too) as the Unicode pictures U+2400
// ff., bytes that are not UTF-8 as U+FFFD.
std::string escape_markup(std::string_view text);

enum class PlotUnit {
  kNumber,   // 0.25, 12 k, 3 M
  kBytes,    // 1.5 MiB
  kSeconds,  // 20 ms
};

// At most four digits before the unit; "-" when it is not finite.
std::string value_text(double value, PlotUnit unit);

struct Series {
  std::string name;
  std::vector<double> x, y;  // as many; x rising
};

struct LineChart {
  std::string title, x_label;
  std::vector<Series> series;  // a legend from two on; drawn in order
  bool log_y = false;          // values that are not positive are gaps
  bool from_zero = false;      // the y axis begins at 0
  PlotUnit x_unit = PlotUnit::kNumber, y_unit = PlotUnit::kNumber;
};
// A series with more points than the picture can show is drawn by the first, lowest, highest and last of each column
// (M4: Jugel et al., VLDB 2014), which looks the same.
std::string line_chart_svg(const LineChart& chart);

// Layers on top of each other, each constant between two edges: memory by category over a step.
struct StackedSteps {
  struct Layer {
    std::string name;
    std::vector<double> values;  // one fewer than edges; not negative
  };
  struct Span {  // a stretch of x with a name, drawn above: "forward"
    std::string name;
    double from = 0, to = 0;
  };
  std::string title, x_label;
  std::vector<double> edges;  // rising
  std::vector<Layer> layers;  // the first at the bottom; those that are 0 throughout are left out
  std::vector<Span> spans;
  PlotUnit x_unit = PlotUnit::kNumber, y_unit = PlotUnit::kBytes;
};
std::string stacked_steps_svg(const StackedSteps& plot);

struct BarChart {
  struct Bar {
    std::string label;
    std::vector<double> parts;  // one for each name of `parts`; not negative
    std::string text;           // at the end of the bar: "12.3 ms"
  };
  std::string title;
  std::vector<std::string> parts;  // what the colours stand for: "forward", "backward"; a legend from two on
  std::vector<Bar> bars;           // from the top
};
std::string bars_svg(const BarChart& chart);

// FLOP/s over FLOPs a byte, both logarithmic, under what the machine allows: min(peak_flops, intensity * peak_bytes)
// (Williams, Waterman and Patterson, "Roofline", CACM 2009).
struct RooflinePoint {
  std::string name;
  double intensity = 0;  // FLOPs a byte
  double flops_per_second = 0;
  double share = 0;  // of the time, 0 to 1: the area of the point
};
struct Roofline {
  std::string title;
  double peak_flops = 0;  // a second
  double peak_bytes = 0;  // a second
  std::vector<RooflinePoint> points;
};
// Points without FLOPs have no place and are named below the plot with their share.
std::string roofline_svg(const Roofline& roofline);

}  // namespace tally
