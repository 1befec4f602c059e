// Scalars as TensorBoard event files: TFRecord framing (u64 length, masked crc32c of it, data, masked crc32c of the
// data) around Event messages with the fields wall_time = 1, step = 2, file_version = 3, summary = 5 (Value: tag = 1,
// simple_value = 2) and session_log = 7 (status = 1).
// Sources: tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto,
// tensorflow/core/lib/io/record_writer.cc; CRC-32C: RFC 3720, B.4.
//
// A process writes one file, events.out.tfevents.0000000001.tally and so on: readers take the files of a folder in the
// order of their names, so a number, which no clock can set back. A resume at step s cuts what lies behind s out of the
// files that are there, and begins its own with SessionLog START at s + 1, by which a TensorBoard that runs drops what
// it had read behind s. So no step is there twice for any reader.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tally/train/append_file.h"

namespace tally {

uint32_t crc32c(std::string_view bytes);

class TensorBoardFile {
 public:
  // Makes the folder, cuts its files at `step` and opens a new one. Throws Error naming the file.
  TensorBoardFile(const fs::path& folder, int64_t step);

  void add(int64_t step, const std::vector<std::pair<std::string, double>>& scalars);
  AppendFile& file() { return *file_; }

 private:
  std::unique_ptr<AppendFile> file_;
};

// The length of the whole records of an event file up to and without the first event behind `step`.
size_t events_until(std::string_view bytes, int64_t step);

}  // namespace tally
