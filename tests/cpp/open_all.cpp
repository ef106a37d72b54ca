// open_all.cpp: opens every file of a folder as it is and with its checksums made right, and runs on small
// inputs what is accepted. Files may be refused; a sanitizer has nothing to say. For damaged files under
// sanitizers (tools/sanitize.py).
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "../fuzz/sign.h"
#include "opforge/runtime.h"
#include "small_inputs.h"

namespace {

std::string current;  // named when a sanitizer speaks

bool accepted(const std::vector<uint8_t>& bytes) {
  // In a block of its own size, so that a read behind the end is seen.
  const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
  opforge_session_options options = {};
  options.size = sizeof options;
  opforge::test::bound(&options);
  opforge_session* session = nullptr;
  if (opforge_session_open_memory(exact.data(), exact.size(), &options, &session) != OPFORGE_STATUS_OK)
    return false;
  opforge::test::run_small(session);
  opforge_session_close(session);
  return true;
}

}  // namespace

extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" void __asan_on_error() { std::fprintf(stderr, "open_all: %s\n", current.c_str()); }
extern "C" void __ubsan_on_report() { std::fprintf(stderr, "open_all: %s\n", current.c_str()); }

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: open_all FOLDER\n");
    return 2;
  }
  int files = 0, good = 0, good_signed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    current = entry.path().string();
    std::ifstream stream(current, std::ios::binary);
    std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(stream), {}};
    ++files;
    good += accepted(bytes);
    opforge::test::sign(bytes.data(), bytes.size());
    good_signed += accepted(bytes);
  }
  std::printf("%d files, of which %d are accepted, %d with good checksums\n", files, good, good_signed);
  return files == 0;
}
