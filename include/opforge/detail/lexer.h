// lexer.h: tokens, literals and the error form shared by signatures, types and gradient programs.
//
// The same scanner as src/opforge/schema/lexer.py: both read the same texts and give the same words for the
// same mistake, which tests/data/signature_vectors.json holds. Nothing here throws; a failed call leaves a
// Problem and returns false.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "opforge/abi.h"

namespace opforge::detail {

// What went wrong, with the answers of every error of opforge. The kinds are the Python classes.
struct Problem {
  enum Kind { kNone, kArgument, kDtype, kSchema };
  Kind kind = kNone;
  std::string what, where, expected, got;

  // Records the first problem only; always returns false.
  bool set(Kind new_kind, std::string new_what, std::string new_where, std::string new_expected,
           std::string new_got) {
    if (kind != kNone) return false;
    kind = new_kind;
    what = std::move(new_what);
    where = std::move(new_where);
    expected = std::move(new_expected);
    got = std::move(new_got);
    return false;
  }
  opforge_status status() const {
    return kind == kNone    ? OPFORGE_STATUS_OK
           : kind == kDtype ? OPFORGE_STATUS_TYPE
                            : OPFORGE_STATUS_INVALID_ARGUMENT;
  }
  std::string message() const {
    std::string text = where.empty() ? what : where + ": " + what;
    if (!expected.empty()) text += "\n  expected: " + expected;
    if (!got.empty()) text += "\n  got: " + got;
    return text;
  }
};

inline std::string join(const std::vector<std::string>& words, const char* between = ", ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

// A literal as it is written or as a host passes it: one scalar, or a list of scalars.
struct Scalar {
  int32_t kind = OPFORGE_ATTRIBUTE_INT;  // INT, FLOAT, STRING or BOOL
  int64_t i = 0;                         // INT and BOOL
  double f = 0;                          // FLOAT
  std::string s;                         // STRING
};

struct Literal {
  bool list = false;
  std::vector<Scalar> items;

  static Literal of_int(int64_t value) { return {false, {Scalar{OPFORGE_ATTRIBUTE_INT, value, 0, {}}}}; }
  static Literal of_bool(bool value) { return {false, {Scalar{OPFORGE_ATTRIBUTE_BOOL, value, 0, {}}}}; }
  static Literal of_float(double value) { return {false, {Scalar{OPFORGE_ATTRIBUTE_FLOAT, 0, value, {}}}}; }
  static Literal of_string(std::string value) {
    return {false, {Scalar{OPFORGE_ATTRIBUTE_STRING, 0, 0, std::move(value)}}};
  }
};

// The fewest digits that give the same float32.
inline std::string format_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double wanted = static_cast<float>(value);
  std::string text;
  for (int digits = 1; digits < 10; ++digits) {
    char buffer[64];
    const auto end =
        std::to_chars(buffer, buffer + sizeof buffer, wanted, std::chars_format::general, digits);
    double back = 0;
    std::from_chars(buffer, end.ptr, back);
    text.assign(buffer, end.ptr);
    if (static_cast<double>(static_cast<float>(back)) == wanted) break;
  }
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

inline std::string format_string(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (byte < 0x20) {
      const size_t simple = std::string_view("\b\t\n\f\r").find(c);
      char escape[8];
      if (simple != std::string_view::npos)
        std::snprintf(escape, sizeof escape, "\\%c", "btnfr"[simple]);
      else
        std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      text += escape;
    } else {
      text += c;
    }
  }
  return text + '"';
}

inline std::string format_literal(const Literal& literal) {
  std::vector<std::string> items;
  for (const Scalar& item : literal.items) {
    if (item.kind == OPFORGE_ATTRIBUTE_BOOL) items.push_back(item.i ? "true" : "false");
    if (item.kind == OPFORGE_ATTRIBUTE_INT) items.push_back(std::to_string(item.i));
    if (item.kind == OPFORGE_ATTRIBUTE_FLOAT) items.push_back(format_float(item.f));
    if (item.kind == OPFORGE_ATTRIBUTE_STRING) items.push_back(format_string(item.s));
  }
  return literal.list ? "[" + join(items) + "]" : join(items);
}

// Nesting of parentheses that is read; a bound on recursion for texts from foreign files.
inline constexpr int kMaxDepth = 64;

// A scanner over one text with one token of look-ahead. The text must outlive it.
class Cursor {
 public:
  enum Kind { kName, kFloat, kInt, kString, kMark, kEnd, kBad };

  Cursor(std::string_view text, const char* subject, std::string where, Problem* problem)
      : text_(text), subject_(subject), where_(std::move(where)), problem_(problem) {
    advance();
  }

  Kind kind() const { return kind_; }
  std::string_view token() const { return token_; }
  const std::string& where() const { return where_; }
  Problem* problem() const { return problem_; }
  bool is_name(std::string_view name) const { return kind_ == kName && token_ == name; }
  bool at(std::string_view mark) const { return kind_ == kMark && token_ == mark; }

  std::string advance() {
    std::string previous(token_);
    while (next_ < text_.size() && is_space(text_[next_])) ++next_;
    start_ = next_;
    size_t end = next_;
    if (end == text_.size()) {
      kind_ = kEnd;
    } else if (is_letter(text_[end])) {
      kind_ = kName;
      while (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end]))) ++end;
    } else if (is_digit(text_[end])) {
      end = scan_number(end);
    } else if (text_[end] == '"') {
      end = scan_string(end);
    } else {
      const std::string_view two = text_.substr(end, 2);
      const bool pair = two == "->" || two == "//" || two == "::";
      kind_ = pair || std::string_view("()[],;:?*+-=@.").find(text_[end]) != std::string_view::npos ? kMark
                                                                                                    : kBad;
      if (kind_ == kMark) end += pair ? 2 : 1;
    }
    token_ = text_.substr(start_, end - start_);
    next_ = end;
    return previous;
  }

  // Records a problem that points at the token ahead; always false.
  bool fail(const std::string& expected) {
    size_t column = 0;  // in characters, not bytes
    for (size_t k = 0; k < start_; ++k) column += (static_cast<unsigned char>(text_[k]) & 0xC0) != 0x80;
    std::string shown(text_);
    for (char& c : shown)
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    return problem_->set(
        Problem::kSchema,
        "syntax error in " + std::string(subject_) + " at column " + std::to_string(column + 1), where_,
        expected, shown + "\n       " + std::string(column, ' ') + "^");
  }
  bool accept(std::string_view mark) {
    if (!at(mark)) return false;
    advance();
    return true;
  }
  bool expect(const std::string& mark) { return accept(mark) || fail("'" + mark + "'"); }
  bool name(std::string* out, const char* expected = "a name") {
    if (kind_ != kName) return fail(expected);
    *out = advance();
    return true;
  }
  bool end() { return kind_ == kEnd || fail("the end"); }

  // Reads digits; `negative` stands before them and lets -2**63 through.
  bool integer(int64_t* out, bool negative = false) {
    uint64_t value = 0;
    const auto result = std::from_chars(token_.data(), token_.data() + token_.size(), value);
    if (result.ec != std::errc() || value > static_cast<uint64_t>(INT64_MAX) + negative)
      return fail("an integer of 64 bits");
    *out = negative ? static_cast<int64_t>(~value + 1) : static_cast<int64_t>(value);
    advance();
    return true;
  }

  bool literal(Literal* out) {
    out->items.clear();
    out->list = accept("[");
    if (out->list && accept("]")) return true;
    do {
      out->items.emplace_back();
      if (!scalar(&out->items.back())) return false;
    } while (out->list && accept(","));
    return !out->list || accept("]") || fail("',' or ']'");
  }

 private:
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

  size_t digits(size_t at) const {
    while (at < text_.size() && is_digit(text_[at])) ++at;
    return at;
  }
  // The end of a whole exponent that begins at `at`, or `at` where there is none.
  size_t exponent(size_t at) const {
    if (at >= text_.size() || (text_[at] != 'e' && text_[at] != 'E')) return at;
    size_t first = at + 1;
    if (first < text_.size() && (text_[first] == '+' || text_[first] == '-')) ++first;
    const size_t last = digits(first);
    return last == first ? at : last;
  }
  size_t scan_number(size_t at) {
    const size_t whole = digits(at);
    size_t end = whole;
    if (end < text_.size() && text_[end] == '.') end = digits(end + 1);
    end = exponent(end);
    kind_ = end == whole ? kInt : kFloat;
    return end;
  }
  size_t scan_string(size_t at) {
    for (size_t end = at + 1; end < text_.size(); ++end) {
      const char c = text_[end];
      if (c == '"') {
        kind_ = kString;
        return end + 1;
      }
      if (c == '\\' && ++end < text_.size() && text_[end] != '\n') continue;
      if (static_cast<unsigned char>(c) < 0x20 || c == '\\') break;
    }
    kind_ = kBad;
    return at;
  }

  bool scalar(Scalar* out) {
    const bool negative = accept("-");
    if (kind_ == kInt) {
      out->kind = OPFORGE_ATTRIBUTE_INT;
      return integer(&out->i, negative);
    }
    if (kind_ == kFloat || is_name("inf") || is_name("nan")) {
      out->kind = OPFORGE_ATTRIBUTE_FLOAT;
      const std::string text = advance();
      if (text == "inf" || text == "nan") {
        out->f = text == "inf" ? INFINITY : NAN;
      } else if (std::from_chars(text.data(), text.data() + text.size(), out->f).ec != std::errc()) {
        // out of range: the exponent tells on which side, or without one the leading digit
        const size_t e = text.find_first_of("eE");
        out->f = (e == std::string::npos ? text[0] == '0' : text[e + 1] == '-') ? 0.0 : INFINITY;
      }
      if (negative) out->f = -out->f;
      return true;
    }
    if (negative) return fail("a number");
    if (is_name("true") || is_name("True") || is_name("false") || is_name("False")) {
      out->kind = OPFORGE_ATTRIBUTE_BOOL;
      const char first = advance()[0];
      out->i = first == 't' || first == 'T';
      return true;
    }
    if (kind_ == kString) {
      out->kind = OPFORGE_ATTRIBUTE_STRING;
      if (!unescape(token_.substr(1, token_.size() - 2), &out->s)) return fail("a JSON string");
      advance();
      return true;
    }
    return fail("a literal");
  }

  static bool hex4(std::string_view text, size_t at, uint32_t* out) {
    if (at + 4 > text.size()) return false;
    *out = 0;
    for (size_t k = at; k < at + 4; ++k) {
      const char c = text[k];
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return false;
      *out = *out * 16 + static_cast<uint32_t>(digit);
    }
    return true;
  }
  static bool unescape(std::string_view text, std::string* out) {
    out->clear();
    for (size_t k = 0; k < text.size(); ++k) {
      if (text[k] != '\\') {
        *out += text[k];
        continue;
      }
      const char c = text[++k];
      const size_t simple = std::string_view("\"\\/bfnrt").find(c);
      if (simple != std::string_view::npos) {
        *out += "\"\\/\b\f\n\r\t"[simple];
        continue;
      }
      uint32_t point = 0, low = 0;
      if (c != 'u' || !hex4(text, k + 1, &point)) return false;
      k += 4;
      if (point >= 0xD800 && point < 0xDC00 && text.substr(k + 1, 2) == "\\u" && hex4(text, k + 3, &low) &&
          low >= 0xDC00 && low < 0xE000) {
        point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
        k += 6;
      }
      if (point >= 0xD800 && point < 0xE000) return false;  // half of a pair
      append_utf8(point, out);
    }
    return true;
  }
  static void append_utf8(uint32_t point, std::string* out) {
    if (point < 0x80) {
      *out += static_cast<char>(point);
      return;
    }
    const int extra = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static constexpr uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
    *out += static_cast<char>(kLead[extra] | (point >> (6 * extra)));
    for (int k = extra - 1; k >= 0; --k) *out += static_cast<char>(0x80 | (point >> (6 * k) & 0x3F));
  }

  std::string_view text_;
  const char* subject_;
  std::string where_;
  Problem* problem_;
  size_t next_ = 0;
  size_t start_ = 0;
  Kind kind_ = kEnd;
  std::string_view token_;
};

}  // namespace opforge::detail
