// print(a, b, ...) in Python's words, so that the outputs of notes.cpp and notes.py are the same text: 1.0, True, (2,
// 3).
#pragma once

#include <charconv>
#include <cmath>
#include <iostream>
#include <string>

#include "tally/tally.h"

inline std::string words(bool b) { return b ? "True" : "False"; }
inline std::string words(const char* s) { return s; }
inline std::string words(const std::string& s) { return s; }
inline std::string words(const tally::Tensor& x) { return tally::str(x); }
inline std::string words(int n) { return std::to_string(n); }
inline std::string words(int64_t n) { return std::to_string(n); }
inline std::string words(double v) {
  char text[32];
  std::string s(text, std::to_chars(text, text + sizeof text, v).ptr);
  return s.find_first_of(".en") == std::string::npos ? s + ".0" : s;
}
inline std::string words(const tally::Dims& d) {
  std::string s;
  for (int i = 0; i < d.rank; ++i) s += (i ? ", " : "") + std::to_string(d[i]);
  return "(" + s + (d.rank == 1 ? ",)" : ")");
}

template <class... T>
void print(const T&... all) {
  const char* between = "";
  ((std::cout << between << words(all), between = " "), ...);
  std::cout << "\n";
}
