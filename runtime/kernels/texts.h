// texts.h: what kernels over strings share: elements as texts, code points, numbers as text.
#pragma once

#include "kernels/move.h"

namespace opforge::kernels {

inline StringView text_at(const Texts& texts, const Tensor& tensor, int64_t k) {
  return texts.text(tensor.as<uint32_t>()[k]);
}
inline bool is_string(const Tensor& tensor) { return tensor.dtype == DType::kString; }
inline bool same_bytes(StringView a, StringView b) {
  return a.size == b.size && (a.size == 0 || std::memcmp(a.data, b.data, static_cast<size_t>(a.size)) == 0);
}

inline Status no_texts(RunContext& c) {
  return c.fail(&c, OPFORGE_STATUS_OUT_OF_MEMORY,
                "the texts of a run take more memory than there is, or than memory_limit allows");
}

// Makes element k a copy of a text.
inline bool put_text(RunContext& c, const Tensor& to, int64_t k, StringView text) {
  char* made = c.texts->make(text.size, to.as<uint32_t>() + k);
  if (made == nullptr) return false;
  if (text.size > 0) std::memcpy(made, text.data, static_cast<size_t>(text.size));
  return true;
}

// The code point at `at`, and how many bytes it takes; a byte that begins none stands for itself.
inline uint32_t code_point(StringView text, int64_t at, int64_t* bytes) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data) + at;
  const int64_t left = text.size - at;
  const int64_t n = p[0] < 0xC0 ? 1 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
  *bytes = n <= left ? n : 1;
  if (n == 1 || n > left) return p[0];
  uint32_t code = n == 2 ? p[0] & 0x1Fu : n == 3 ? p[0] & 0x0Fu : p[0] & 0x07u;
  for (int64_t k = 1; k < n; ++k) code = code << 6 | (p[k] & 0x3Fu);
  return code;
}

// Writes a code point as UTF-8; returns how many bytes it takes, at most 4. to may be null.
inline int64_t put_code_point(uint32_t code, char* to) {
  const int64_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  if (to == nullptr) return n;
  if (n == 1) {
    to[0] = static_cast<char>(code);
    return 1;
  }
  for (int64_t k = n - 1; k > 0; --k, code >>= 6) to[k] = static_cast<char>(0x80 | (code & 0x3F));
  to[0] = static_cast<char>((n == 2 ? 0xC0u : n == 3 ? 0xE0u : 0xF0u) | code);
  return n;
}

// The character that stands for this one in lower or upper case, by Unicode's one-to-one mappings; itself
// where there is none.
uint32_t lower_case(uint32_t code);
uint32_t upper_case(uint32_t code);

// A number as Python writes it, with the fewest digits that read back as the same number. Returns the length.
constexpr int64_t kNumberText = 32;
int64_t write_number(DType dtype, const void* data, int64_t k, char* to);
// Reads a whole text as a number of this dtype (f32, f64, an integer, bool): digits with sign, fraction and
// exponent, or inf, infinity and nan in any case; space around it is skipped. Integers drop a fraction. False
// where it is no number or does not fit.
bool read_number(StringView text, DType dtype, void* data, int64_t k);

}  // namespace opforge::kernels
