// The parts of a self-contained HTML page: sections, tables, grids of plots. Everything passed in as text is escaped;
// `html` arguments are markup made here or by plot.h. The page loads nothing, runs no script (a content security policy
// says so to the browser) and follows the reader's light or dark setting.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tally {

struct HtmlTable {
  struct Row {
    std::vector<std::string> cells;
    const char* style = "";  // "marked", "sum", "part" (a heading within the table)
  };
  std::vector<std::string> head;
  std::vector<Row> rows;
  size_t numbers_from = 1;  // columns from here on are set to the right
  bool tall = false;        // scrolls within 26 lines
};
std::string html_table(const HtmlTable& table);

std::string html_note(const std::string& text);  // a paragraph in soft ink
std::string html_grid(const std::vector<std::string>& svgs);
// Figures with their names, as large text.
std::string html_tiles(const std::vector<std::pair<std::string, std::string>>& tiles);
// At most `most` bytes, ending with a whole character and an ellipsis where it is cut. Not markup.
std::string cut_text(const std::string& text, size_t most);
// Text as it stands, line by line; control characters are visible; cut at `most` bytes.
std::string html_text(const std::string& text, size_t most);
std::string html_folded(const std::string& summary, const std::string& html);
std::string html_section(const std::string& id, const std::string& title, const std::string& html);
std::string html_page(const std::string& title, const std::string& subtitle, const std::string& html);

}  // namespace tally
