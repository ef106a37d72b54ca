// npy.h: reads and writes NumPy's .npy files (versions 1 to 3, C order), for opforge-run.
#pragma once

#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "opforge/abi.h"

namespace opforge::cli {

struct NpyArray {
  std::string descr;  // without byte order: "f4", "i8", "b1", "V2"
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};

// The descr of a dtype; bf16 and float8 travel as raw bytes ("V2", "V1"), as NumPy itself saves them.
inline std::string npy_descr(opforge_dtype dtype) {
  const std::string size = std::to_string(dtype.bits / 8);
  switch (dtype.code) {
    case OPFORGE_CODE_INT:
      return "i" + size;
    case OPFORGE_CODE_UINT:
      return "u" + size;
    case OPFORGE_CODE_FLOAT:
      return "f" + size;
    case OPFORGE_CODE_BOOL:
      return "b1";
    case OPFORGE_CODE_STRING:
      return "string";
    default:
      return "V" + size;
  }
}

namespace npy_detail {

// The text after 'key': in the header's dictionary.
inline std::string value_of(const std::string& header, const std::string& key) {
  const size_t at = header.find("'" + key + "'");
  const size_t colon = at == std::string::npos ? at : header.find(':', at);
  if (colon == std::string::npos) return "";
  const size_t begin = header.find_first_not_of(' ', colon + 1);
  if (begin == std::string::npos) return "";
  const size_t end = header[begin] == '(' ? header.find(')', begin) : header.find_first_of(",}", begin);
  return end == std::string::npos ? "" : header.substr(begin, end - begin);
}

inline bool parse_shape(const std::string& text, std::vector<int64_t>* shape) {
  if (text.empty() || text[0] != '(') return false;
  const char* p = text.c_str() + 1;
  while (*p != '\0') {
    while (*p == ' ' || *p == ',') ++p;
    if (*p == '\0') break;
    if (std::isdigit(static_cast<unsigned char>(*p)) == 0 || shape->size() >= 32) return false;
    char* end = nullptr;
    shape->push_back(std::strtoll(p, &end, 10));
    p = end;
  }
  return true;
}

}  // namespace npy_detail

// Empty = good; else what is wrong.
inline std::string read_npy(const std::string& path, NpyArray* array) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return std::string("cannot be opened: ") + std::strerror(errno);
  uint8_t head[12] = {};
  if (std::fread(head, 1, 10, file.get()) != 10 || std::memcmp(head, "\x93NUMPY", 6) != 0)
    return "this is no .npy file";
  uint32_t length = head[8] | static_cast<uint32_t>(head[9]) << 8;
  if (head[6] >= 2) {
    if (std::fread(head + 10, 1, 2, file.get()) != 2) return "the header is cut";
    length |= static_cast<uint32_t>(head[10]) << 16 | static_cast<uint32_t>(head[11]) << 24;
  }
  if (length > 1u << 20) return "the header is too long";
  std::string header(length, '\0');
  if (std::fread(header.data(), 1, length, file.get()) != length) return "the header is cut";
  const std::string descr = npy_detail::value_of(header, "descr");
  if (npy_detail::value_of(header, "fortran_order") != "False") return "it is in Fortran order";
  if (!npy_detail::parse_shape(npy_detail::value_of(header, "shape"), &array->shape))
    return "its shape is not valid";
  if (descr.size() < 4 || descr.size() > 6 || descr[1] == '>')
    return "its dtype is not a plain little-endian one: " + descr;
  array->descr = descr.substr(2, descr.size() - 3);
  if (array->descr == "f1") array->descr = "V1";  // what NumPy calls ml_dtypes.float8_e5m2
  const long size = std::strtol(array->descr.c_str() + 1, nullptr, 10);
  if (size < 1 || size > 16) return "its dtype is not supported: " + descr;
  uint64_t bytes = static_cast<uint64_t>(size);
  for (int64_t dim : array->shape) {
    if (dim < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes) || bytes > 1ull << 40) {
      return "it is too large";
    }
  }
  const long data = std::ftell(file.get());
  std::fseek(file.get(), 0, SEEK_END);
  if (static_cast<uint64_t>(std::ftell(file.get()) - data) < bytes) return "it is cut";
  std::fseek(file.get(), data, SEEK_SET);
  array->bytes.resize(bytes);
  return std::fread(array->bytes.data(), 1, bytes, file.get()) == bytes ? "" : "it cannot be read";
}

// False (and errno) when it cannot be written; a part of it may be left behind.
inline bool write_npy(const std::string& path, const std::string& descr, const int64_t* shape, int32_t ndim,
                      const void* data, size_t bytes) {
  const bool single = descr == "b1" || descr.back() == '1';
  std::string header =
      "{'descr': '" + std::string(single ? "|" : "<") + descr + "', 'fortran_order': False, 'shape': (";
  for (int32_t k = 0; k < ndim; ++k)
    header += std::to_string(shape[k]) + (ndim == 1 || k + 1 < ndim ? ", " : "");
  header += "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const uint8_t head[10] = {0x93,
                            'N',
                            'U',
                            'M',
                            'P',
                            'Y',
                            1,
                            0,
                            static_cast<uint8_t>(header.size() & 0xFF),
                            static_cast<uint8_t>(header.size() >> 8)};
  bool good = std::fwrite(head, 1, 10, file) == 10;
  good = good && std::fwrite(header.data(), 1, header.size(), file) == header.size();
  good = good && (bytes == 0 || std::fwrite(data, 1, bytes, file) == bytes);
  return std::fclose(file) == 0 && good;
}

}  // namespace opforge::cli
