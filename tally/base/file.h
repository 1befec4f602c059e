// Files: read-only memory maps and writes that are complete or absent.
// write_file_atomic: temporary name in the same folder, flush, rename, flush of the folder (POSIX rename(2) is atomic).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tally {

namespace fs = std::filesystem;

// A whole file mapped read-only; unmapped on destruction. Movable. An empty file gives an empty span.
// Throws Error naming the file when it is missing, a folder or unreadable.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const fs::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const fs::path& path() const { return path_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  fs::path path_;
};

// Whole text of a file ("-" is standard input). Throws Error naming the file.
std::string read_file(const fs::path& path);

// Reads a file ("-" is standard input; pipes too) from start to end. Throws Error naming the file.
class FileReader {
 public:
  explicit FileReader(const fs::path& path);
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  ~FileReader();

  // Fills the buffer; fewer bytes mean that the file has ended.
  size_t read(char* buffer, size_t bytes);
  int64_t size() const { return size_; }  // of a regular file, else -1
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  int fd_ = -1;
  int64_t size_ = -1;
};

// Writes sequentially to a temporary beside `path`; commit() flushes, renames and flushes the folder.
// Without commit() the temporary is removed. Throws RunError naming the file on a full disk or I/O error,
// Error when the folder is missing or not writable.
class AtomicFile {
 public:
  explicit AtomicFile(const fs::path& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Overwrite earlier bytes (a header whose sums are known at the end).
  void write_at(uint64_t offset, const void* data, size_t bytes);
  void commit();

 private:
  void flush_buffer();
  fs::path path_, temporary_;
  int fd_ = -1;
  std::vector<char> buffer_;
};

void write_file_atomic(const fs::path& path, std::string_view text);

// Creates the folder (and its parents); throws Error when it cannot.
void make_folder(const fs::path& path);

// fsync of a folder, so that a rename in it survives a power cut.
void sync_folder(const fs::path& path);

// Expands *, ? and [..] in the last components; a pattern without a match is an Error naming it. Sorted.
std::vector<fs::path> glob_files(const std::string& pattern);

}  // namespace tally
