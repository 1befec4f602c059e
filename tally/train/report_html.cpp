#include "tally/train/report_html.h"

#include "tally/base/error.h"
#include "tally/base/plot.h"

namespace tally {

namespace {

constexpr const char* kStyle =
    ":root{color-scheme:light dark;--ink:#1d2129;--soft:#565c66;--line:#dfe2e7;--ground:#f5f6f8;--card:#fff;"
    "--mark:#fff4d6}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#a4abb6;--line:#2c3036;--ground:#0f1113;"
    "--card:#16181c;--mark:#3a3013}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif}"
    "main{max-width:1240px;margin:0 auto;padding:16px}"
    "h1{font-size:22px;line-height:1.25;margin:4px 0;overflow-wrap:anywhere}h2{font-size:17px;margin:0 0 10px}"
    "p{margin:8px 0}.soft{color:var(--soft);font-size:13.5px;overflow-wrap:anywhere}"
    "nav{display:flex;flex-wrap:wrap;gap:4px 14px;font-size:13.5px;margin:8px 0}nav a{color:inherit}"
    "section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px;margin:14px 0}"
    ".grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,350px),1fr));gap:12px}"
    ".grid>*{min-width:0}.grid>svg{display:block;width:100%;max-width:520px}"
    ".scroll{overflow:auto;max-width:100%}.tall{max-height:38em}"
    "table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums}"
    "th,td{padding:3px 10px;text-align:left;white-space:nowrap;border-bottom:1px solid var(--line);vertical-align:top}"
    "td.w{white-space:pre-wrap;overflow-wrap:anywhere;min-width:8em;max-width:34em}"
    "th.n,td.n{text-align:right}thead th{position:sticky;top:0;background:var(--card)}"
    "tr.marked td{background:var(--mark)}tr.sum td{font-weight:600}tr.part td{color:var(--soft);padding-top:10px}"
    "dl.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:12px;margin:0}"
    "dl.tiles "
    "div{display:flex;flex-direction:column-reverse;justify-content:flex-end}dt{color:var(--soft);font-size:13px}"
    "dd{margin:0;font-size:19px;font-weight:600;overflow-wrap:anywhere}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate;background:var(--ground);padding:10px;"
    "border-radius:6px;font:13px/1.45 ui-monospace,monospace;margin:6px 0}"
    "@media(max-width:600px){main{padding:8px}section{padding:10px}th,td{padding:3px 7px}}"
    "summary{cursor:pointer;font-size:14px}details{margin:8px 0}";

}  // namespace

std::string html_table(const HtmlTable& table) {
  std::string html = fmt::format("<div class=\"scroll{}\"><table>", table.tall ? " tall" : "");
  const auto style_of = [&](size_t column) { return column >= table.numbers_from ? " class=\"n\"" : ""; };
  if (!table.head.empty()) {
    html += "<thead><tr>";
    for (size_t i = 0; i < table.head.size(); ++i)
      html += fmt::format("<th{}>{}</th>", style_of(i), escape_markup(table.head[i]));
    html += "</tr></thead>";
  }
  html += "<tbody>";
  for (const HtmlTable::Row& row : table.rows) {
    html += *row.style ? fmt::format("<tr class=\"{}\">", row.style) : "<tr>";
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const bool wide = i < table.numbers_from && row.cells[i].size() > 48;  // wrapped
      html += fmt::format("<td{}>{}</td>", wide ? " class=\"w\"" : style_of(i), escape_markup(row.cells[i]));
    }
    html += "</tr>";
  }
  return html + "</tbody></table></div>";
}

std::string html_note(const std::string& text) { return "<p class=\"soft\">" + escape_markup(text) + "</p>"; }

std::string html_grid(const std::vector<std::string>& svgs) {
  std::string html = "<div class=\"grid\">";
  for (const std::string& svg : svgs) html += svg;
  return html + "</div>";
}

std::string html_tiles(const std::vector<std::pair<std::string, std::string>>& tiles) {
  std::string html = "<dl class=\"tiles\">";
  for (const auto& [name, value] : tiles)
    html += "<div><dt>" + escape_markup(name) + "</dt><dd>" + escape_markup(value) + "</dd></div>";
  return html + "</dl>";
}

std::string cut_text(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<uint8_t>(text[most]) & 0xC0) == 0x80) --most;
  return text.substr(0, most) + " \xE2\x80\xA6";
}

std::string html_text(const std::string& text, size_t most) {
  std::string html = "<pre>\n";  // a line break right after the tag does not count, one of the text does
  const std::string shown = cut_text(text, most);
  for (size_t at = 0; at <= shown.size();) {
    const size_t end = std::min(shown.find('\n', at), shown.size());
    html += (at > 0 ? "\n" : "") + escape_markup(std::string_view(shown).substr(at, end - at));
    at = end + 1;
  }
  return html + "</pre>";
}

std::string html_folded(const std::string& summary, const std::string& html) {
  return "<details><summary>" + escape_markup(summary) + "</summary>" + html + "</details>";
}

std::string html_section(const std::string& id, const std::string& title, const std::string& html) {
  return fmt::format("<section id=\"{}\"><h2>{}</h2>{}</section>\n", escape_markup(id), escape_markup(title), html);
}

std::string html_page(const std::string& title, const std::string& subtitle, const std::string& html) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
      "<title>{0}</title><style>{1}</style></head>\n<body><main><header><h1>{0}</h1>{2}</header>\n{3}</main></body>"
      "</html>\n",
      escape_markup(title), kStyle, html_note(subtitle), html);
}

}  // namespace tally
