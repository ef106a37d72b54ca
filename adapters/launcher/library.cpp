// library.cpp: finds what stands behind the launcher in its own file, and gives a host the table that it
// holds.
//
// The file ends with a trailer: "OPFORGEK", the format's version, the CRC-32 and the size of what comes
// before it. Numbers are little-endian. The writer is src/opforge/build/cuda/payload.py.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "launcher/payload.h"
#include "launcher/table.h"

namespace opforge::launcher {
namespace {

constexpr char kMagic[8] = {'O', 'P', 'F', 'O', 'R', 'G', 'E', 'K'};
constexpr uint32_t kVersion = 1;
constexpr size_t kTrailer = 24;

// The table, for as long as the process lives, or the reason why there is none.
struct Held {
  std::unique_ptr<char[]> bytes;
  size_t size = 0;
  Table table;
  std::string reason;

  Held() {
    if (read_file()) reason = table.read(bytes.get(), size);
  }

  bool no(const std::string& why) { return reason = why, false; }

  bool read_file() {
    Dl_info self = {};
    if (dladdr(reinterpret_cast<const void*>(&kMagic), &self) == 0 || self.dli_fname == nullptr)
      return no("the loader does not say which file it is");
    const int file = open(self.dli_fname, O_RDONLY | O_CLOEXEC);
    if (file < 0)
      return no(std::string("its file cannot be read: ") + self.dli_fname + ": " + strerror(errno));
    const bool done = read_from(file);
    close(file);
    return done;
  }

  bool read_from(int file) {
    struct stat status = {};
    char trailer[kTrailer];
    if (fstat(file, &status) != 0) return no(std::string("its file cannot be read: ") + strerror(errno));
    const auto whole = static_cast<uint64_t>(status.st_size);
    if (whole < kTrailer || !read_at(file, trailer, kTrailer, whole - kTrailer))
      return no("its file cannot be read");
    Payload fields(trailer, kTrailer);
    if (memcmp(fields.take(sizeof kMagic), kMagic, sizeof kMagic) != 0)
      return no("it holds no kernels: it is the launcher alone, or its end was cut off");
    const uint32_t version = fields.number<uint32_t>(), checksum = fields.number<uint32_t>();
    const uint64_t all = fields.number<uint64_t>();
    if (version != kVersion)
      return no("its kernels are in format " + std::to_string(version) + ", this launcher reads " +
                std::to_string(kVersion) + "; build it again");
    if (all > whole - kTrailer)
      return no("its kernels are damaged: they are said to be larger than the file");
    size = static_cast<size_t>(all);
    bytes.reset(new char[size]);
    if (!read_at(file, bytes.get(), size, whole - kTrailer - all)) return no("its file cannot be read");
    if (crc32(bytes.get(), size) != checksum)
      return no("its kernels are damaged: their checksum is another; build it again");
    return true;
  }

  static bool read_at(int file, char* to, size_t count, uint64_t from) {
    while (count > 0) {
      const ssize_t got = pread(file, to, count, static_cast<off_t>(from));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      to += got;
      from += static_cast<uint64_t>(got);
      count -= static_cast<size_t>(got);
    }
    return true;
  }
};

const Held& held() {
  static const Held* made = new Held;  // hosts keep its pointers until the process ends
  return *made;
}

}  // namespace
}  // namespace opforge::launcher

extern "C" OPFORGE_EXPORT const opforge_library* opforge_library_v1(const opforge_host* host) {
  using opforge::launcher::held;
  const auto refuse = [host](const char* reason) {
    if (host != nullptr && host->reason != nullptr && host->reason_size > 0)
      snprintf(host->reason, host->reason_size, "%s", reason);
    return nullptr;
  };
  if (host != nullptr && host->abi != OPFORGE_ABI) {
    char reason[80];
    snprintf(reason, sizeof reason, "it is built for ABI %u, the host speaks ABI %u", OPFORGE_ABI, host->abi);
    return refuse(reason);
  }
  try {
    return held().reason.empty() ? &held().table.library : refuse(held().reason.c_str());
  } catch (...) {
    return refuse("there is no memory for its kernels");
  }
}
