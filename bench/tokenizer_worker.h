// A program that encodes and decodes on command, for bench/tokenizers.py, which lets several of them take turns. Lines
// of standard input are commands, each answered by a line of JSON:
//   documents TEXT ENDS          the texts to come: TEXT cut at ENDS (u64, little endian)       {"documents"}
//   encode FIRST LAST THREADS    documents [FIRST, LAST), each a text of its own                {"seconds", "tokens",
//   "hash"} decode FIRST LAST            their ids, encoded before the clock starts                     {"seconds",
//   "bytes", "hash"} whole FILE                   the file as one text                 {"seconds", "tokens", "hash",
//   "grown"}
// Seconds are those of the calls alone. `hash` is XXH3-128 of the ids as u32, little endian, or of the bytes. `grown`
// is by how much the resident set rose above what it was with the text in memory. Coder has
//   void encode(std::string_view text, std::vector<Id>& out)             appends
//   std::vector<std::vector<Id>> encode_batch(const std::vector<std::string_view>& texts, int threads)
//   std::string decode(const std::vector<Id>& ids)
//   std::string other(const std::vector<std::string>& words)             commands of its own; "" when it knows none
#pragma once

#include <xxhash.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace worker {

inline std::string read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) throw std::runtime_error(path + ": cannot be read");
  std::string data(static_cast<size_t>(in.tellg()), '\0');
  in.seekg(0);
  in.read(data.data(), static_cast<std::streamsize>(data.size()));
  return data;
}

// A figure of /proc/self/status in bytes: VmHWM, VmRSS, VmSize.
inline int64_t status_bytes(const char* name) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name)) return std::atoll(line.c_str() + std::strlen(name) + 1) * 1024;
  return 0;
}

// The peak is that from here on.
inline void reset_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

inline std::string hex(XXH128_hash_t h) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(h.high64),
                static_cast<unsigned long long>(h.low64));
  return text;
}

inline std::string hash_of(const void* data, size_t bytes) { return hex(XXH3_128bits(data, bytes)); }

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

template <class Coder>
class Worker {
 public:
  using Id = typename Coder::Id;
  using Ids = std::vector<Id>;

  explicit Worker(Coder& coder) : coder_(coder) {}

  void run() {
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream in(line);
      std::vector<std::string> words;
      for (std::string word; in >> word;) words.push_back(word);
      std::cout << answer(words) << std::endl;
    }
  }

 private:
  std::string answer(const std::vector<std::string>& words) {
    const std::string command = words.empty() ? "" : words[0];
    if (command == "documents" && words.size() == 3) return documents(words[1], words[2]);
    if (command == "encode" && words.size() == 4)
      return encode(std::stoul(words[1]), std::stoul(words[2]), std::stoi(words[3]));
    if (command == "decode" && words.size() == 3) return decode(std::stoul(words[1]), std::stoul(words[2]));
    if (command == "whole" && words.size() == 2) return whole(words[1]);
    std::string text = coder_.other(words);
    if (text.empty()) throw std::runtime_error("unknown command " + command);
    return text;
  }

  std::string documents(const std::string& text, const std::string& ends) {
    text_ = read_whole(text);
    texts_.clear();
    const std::string table = read_whole(ends);
    size_t begin = 0;
    for (size_t at = 0; at + 8 <= table.size(); at += 8) {
      uint64_t end = 0;
      std::memcpy(&end, table.data() + at, 8);
      texts_.push_back(std::string_view(text_).substr(begin, end - begin));
      begin = end;
    }
    return "{\"documents\": " + std::to_string(texts_.size()) + "}";
  }

  std::string encode(size_t first, size_t last, int threads) {
    double seconds = 0;
    Ids ids;
    if (threads == 1) {
      const Stopwatch watch;
      for (size_t i = first; i < last; ++i) coder_.encode(texts_[i], ids);
      seconds = watch.seconds();
    } else {
      const std::vector<std::string_view> texts(texts_.begin() + static_cast<ptrdiff_t>(first),
                                                texts_.begin() + static_cast<ptrdiff_t>(last));
      const Stopwatch watch;
      const auto all = coder_.encode_batch(texts, threads);
      seconds = watch.seconds();
      for (const auto& some : all) ids.insert(ids.end(), some.begin(), some.end());
    }
    return encoded(seconds, ids) + "}";
  }

  std::string decode(size_t first, size_t last) {
    Ids ids;
    for (size_t i = first; i < last; ++i) coder_.encode(texts_[i], ids);
    const Stopwatch watch;
    const std::string text = coder_.decode(ids);
    const double seconds = watch.seconds();
    return "{\"seconds\": " + std::to_string(seconds) + ", \"bytes\": " + std::to_string(text.size()) +
           ", \"hash\": \"" + hash_of(text.data(), text.size()) + "\"}";
  }

  std::string whole(const std::string& path) {
    const std::string text = read_whole(path);
    Ids ids;
    reset_peak();
    const int64_t before = status_bytes("VmRSS");
    const Stopwatch watch;
    coder_.encode(text, ids);
    const double seconds = watch.seconds();
    return encoded(seconds, ids) + ", \"grown\": " + std::to_string(status_bytes("VmHWM") - before) + "}";
  }

  static std::string encoded(double seconds, const Ids& ids) {
    static_assert(sizeof(Id) == 4);
    return "{\"seconds\": " + std::to_string(seconds) + ", \"tokens\": " + std::to_string(ids.size()) +
           ", \"hash\": \"" + hash_of(ids.data(), ids.size() * sizeof(Id)) + "\"";
  }

  Coder& coder_;
  std::string text_;
  std::vector<std::string_view> texts_;
};

template <class Coder>
int serve(Coder& coder) {
  try {
    std::cout << "{\"ready\": true}" << std::endl;
    Worker<Coder>(coder).run();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

}  // namespace worker
