// loader_fuzz.cpp: libFuzzer over the loader and over programs that pass it.
//
// Checksums would stop nearly every mutation at the door, so they are made right before the file is opened:
// what is fuzzed are the checks behind them, and every program that is accepted is planned and run on small
// inputs.
#include <cstring>
#include <vector>

#include "format/crc32c.h"
#include "format/format.h"
#include "opforge/runtime.h"
#include "small_inputs.h"

namespace {

namespace format = opforge::format;

void sign(std::vector<uint8_t>* bytes) {
  if (bytes->size() < sizeof(format::Header)) return;
  auto* header = reinterpret_cast<format::Header*>(bytes->data());
  std::memcpy(header->magic, format::kMagic, sizeof header->magic);
  header->file_size = bytes->size();
  const uint64_t table = uint64_t{header->sections} * sizeof(format::SectionEntry);
  if (header->sections <= format::kMaxSections && table <= bytes->size() - sizeof(format::Header)) {
    auto* entries = reinterpret_cast<format::SectionEntry*>(bytes->data() + sizeof(format::Header));
    for (uint32_t k = 0; k < header->sections; ++k) {
      format::SectionEntry& entry = entries[k];
      if (entry.size > bytes->size() || entry.offset > bytes->size() - entry.size) continue;
      if (entry.kind != format::kWeights) {
        entry.crc = opforge::crc32c(0, bytes->data() + entry.offset, static_cast<size_t>(entry.size));
      }
    }
    header->table_crc = opforge::crc32c(0, entries, static_cast<size_t>(table));
  }
  header->header_crc = opforge::crc32c(0, header, 60);
}

}  // namespace

// An allocation that fails is an error of the run, not of the process.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  sign(&bytes);
  opforge_session_options options = {};
  options.size = sizeof options;
  opforge::test::bound(&options);
  opforge_session* session = nullptr;
  if (opforge_session_open_memory(bytes.data(), bytes.size(), &options, &session) != OPFORGE_STATUS_OK)
    return 0;
  opforge::test::run_small(session);
  opforge_session_close(session);
  return 0;
}
