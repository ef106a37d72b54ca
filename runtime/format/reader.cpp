// reader.cpp: verifies header, section table and checksums. Bounds come before checksums, checksums before
// use.
#include "format/reader.h"

#include <cstring>

#include "format/crc32c.h"

namespace opforge::format {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are read in place");

constexpr const char* kNames[kKinds] = {"",          "strings",   "dimensions", "values", "program",
                                        "bytecode",  "signature", "operators",  "target", "metadata",
                                        "checksums", "weights",   "plan",       "debug"};
constexpr bool kAlways[kKinds] = {false, true, true, true, true, false, true};

constexpr const char* kAgain = "compile the model again, or fetch the file again";

unsigned long long u(uint64_t value) { return value; }

Status check_header(const Header& header, uint64_t size, Error* error) {
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "this is no opforge bin").at("header").advise("%s", kAgain);
  }
  if (crc32c(0, &header, 60) != header.header_crc) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "checksum differs").at("header").advise("%s", kAgain);
  }
  if (header.min_reader > kVersion) {
    return error->fail(OPFORGE_STATUS_UNSUPPORTED, "the file needs a newer reader")
        .at("header")
        .wanted("format version <= %u", kVersion)
        .found("%u", header.min_reader)
        .advise("upgrade opforge");
  }
  if (header.file_size != size) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "the file is cut or too long")
        .at("header")
        .wanted("%llu bytes", u(header.file_size))
        .found("%llu bytes", u(size))
        .advise("%s", kAgain);
  }
  if (header.sections == 0 || header.sections > kMaxSections) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "bad number of sections")
        .at("header")
        .wanted("1 to %u", kMaxSections)
        .found("%u", header.sections);
  }
  if (header.table_offset != sizeof(Header) || header.entry_size != sizeof(SectionEntry)) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "the section table is not where it must be").at("header");
  }
  return OPFORGE_STATUS_OK;
}

// One entry: bounds, order, kind. `end` is where the previous section ended.
Status check_entry(const SectionEntry& entry, uint64_t size, uint64_t* end, File* file, Error* error) {
  char name[sizeof entry.name + 1] = "";
  for (size_t k = 0; k < sizeof entry.name && entry.name[k] != '\0'; ++k) {
    name[k] = entry.name[k] >= ' ' && entry.name[k] < 127 ? entry.name[k] : '?';
  }
  const uint64_t expected = (*end + kAlignment - 1) / kAlignment * kAlignment;
  if (entry.offset != expected || entry.size > size || entry.offset > size - entry.size) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "a section does not lie where it must")
        .at("section '%s'", name)
        .wanted("offset %llu, end <= %llu", u(expected), u(size))
        .found("offset %llu, size %llu", u(entry.offset), u(entry.size))
        .advise("%s", kAgain);
  }
  for (uint64_t k = *end; k < expected; ++k) {
    if (file->bytes[k] == 0) continue;
    return error->fail(OPFORGE_STATUS_CORRUPT, "the bytes before a section are not zero")
        .at("section '%s'", name)
        .found("byte %llu is %u", u(k), file->bytes[k])
        .advise("%s", kAgain);
  }
  *end = entry.offset + entry.size;
  if (entry.kind == 0 || entry.kind >= kKinds) {
    if ((entry.flags & kSectionRequired) == 0) return OPFORGE_STATUS_OK;
    return error->fail(OPFORGE_STATUS_UNSUPPORTED, "a required section is unknown to this reader")
        .at("section '%s'", name)
        .found("kind %u", entry.kind)
        .advise("upgrade opforge");
  }
  if (entry.kind != kWeights && entry.size > kMaxSection) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "a section is too large")
        .at("section '%s'", name)
        .wanted("<= %llu bytes", u(kMaxSection))
        .found("%llu bytes", u(entry.size));
  }
  Section& section = file->sections[entry.kind];
  if (section.data != nullptr) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "a section occurs twice").at("section '%s'", name);
  }
  section = {file->bytes + entry.offset, entry.size, entry.count};
  if (entry.kind != kWeights && crc32c(0, section.data, section.size) != entry.crc) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "checksum differs")
        .at("section '%s'", kind_name(entry.kind))
        .advise("%s", kAgain);
  }
  return OPFORGE_STATUS_OK;
}

Status check_checksums(const File& file, Error* error) {
  const Section& weights = file.sections[kWeights];
  const Section& checks = file.sections[kChecksums];
  if (weights.size == 0 && checks.data == nullptr) return OPFORGE_STATUS_OK;
  const uint64_t blocks = (weights.size + kBlock - 1) / kBlock;
  uint32_t head[2] = {0, 0};
  if (checks.size >= 8) std::memcpy(head, checks.data, 8);
  if (checks.size != 8 + 4 * blocks || head[0] != kBlock || head[1] != blocks) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "the checksums do not cover the weights")
        .at("section 'checksums'")
        .wanted("%llu blocks of %llu bytes", u(blocks), u(kBlock))
        .found("%u blocks of %u bytes, section of %llu bytes", head[1], head[0], u(checks.size));
  }
  return OPFORGE_STATUS_OK;
}

}  // namespace

const char* kind_name(uint32_t kind) { return kind < kKinds ? kNames[kind] : "?"; }

Status open(const void* bytes, uint64_t size, File* file, Error* error) {
  *file = File();
  file->bytes = static_cast<const uint8_t*>(bytes);
  file->size = size;
  if (size < sizeof(Header) || size > kMaxBytes) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "the file is too short or too long to be an opforge bin")
        .at("header")
        .wanted("%zu to %llu bytes", sizeof(Header), u(kMaxBytes))
        .found("%llu bytes", u(size));
  }
  const Header& header = *reinterpret_cast<const Header*>(file->bytes);
  if (Status status = check_header(header, size, error)) return status;
  const uint64_t table_size = uint64_t{header.sections} * sizeof(SectionEntry);
  if (table_size > size - sizeof(Header)) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "the file ends inside the section table").at("section table");
  }
  const auto* table = reinterpret_cast<const SectionEntry*>(file->bytes + sizeof(Header));
  if (crc32c(0, table, table_size) != header.table_crc) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "checksum differs").at("section table").advise("%s", kAgain);
  }
  uint64_t end = sizeof(Header) + table_size;
  for (uint32_t k = 0; k < header.sections; ++k) {
    if (Status status = check_entry(table[k], size, &end, file, error)) return status;
  }
  if (end != size) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "the file does not end with its last section")
        .at("section table")
        .wanted("%llu bytes", u(end))
        .found("%llu bytes", u(size));
  }
  for (uint32_t kind = 0; kind < kKinds; ++kind) {
    if ((kAlways[kind] || kind == kTarget) && file->sections[kind].data == nullptr) {
      return error->fail(OPFORGE_STATUS_CORRUPT, "a section is missing").at("section '%s'", kind_name(kind));
    }
  }
  return check_checksums(*file, error);
}

bool weights_block_good(const File& file, uint32_t block) {
  const Section& weights = file.sections[kWeights];
  const uint64_t begin = uint64_t{block} * kBlock;
  const uint64_t size = weights.size - begin < kBlock ? weights.size - begin : kBlock;
  uint32_t expected;
  std::memcpy(&expected, file.sections[kChecksums].data + 8 + 4 * uint64_t{block}, 4);
  return crc32c(0, weights.data + begin, size) == expected;
}

}  // namespace opforge::format
