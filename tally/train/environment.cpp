#include "tally/train/environment.h"

#include <sys/utsname.h>

#include <ctime>
#include <fstream>

#include "tally/base/error.h"
#include "tally/base/parallel.h"
#include "tally/core/hardware.h"
#include "tally/ops/launch.h"
#include "tally/ops/matmul.h"
#include "tally/train/config.h"

namespace tally {

namespace {

// "Debian GNU/Linux 12 (bookworm), Linux 6.1.0 x86_64": os-release(5) and uname(2).
std::string os_name() {
  std::string name;
  std::ifstream in("/etc/os-release");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("PRETTY_NAME=")) {
      name = line.substr(12);
      std::erase(name, '"');
      name += ", ";
    }
  utsname kernel{};
  if (::uname(&kernel) != 0) return name.empty() ? "unknown" : name.substr(0, name.size() - 2);
  return name + fmt::format("{} {} {}", kernel.sysname, kernel.release, kernel.machine);
}

}  // namespace

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[64];
  const size_t n = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return std::string(text, n);
}

Json environment_json() {
  return Json::object()
      .set("tally_version", kTallyVersion)
      .set("cpu", cpu_model_name())
      .set("isa", cpu_isa())
      .set("threads", num_threads())
      .set("matmul", name_of(matmul_precision()))
      .set("os", os_name())
      .set("started", utc_now());
}

}  // namespace tally
