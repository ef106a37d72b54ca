// text_parts.cpp: StringSplit and StringNormalizer: strings cut into pieces, in another case, or left out.
#include "kernels/texts.h"

namespace opforge {
namespace {

using namespace kernels;

// Space as Unicode has it, and Python's str.split().
bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

struct Cut {
  StringView delimiter;  // empty = runs of space
  int64_t most;          // cuts, -1 = any number
};

Cut cut_of(const Attributes& attributes) {
  const int64_t most = attributes.get_int("maxsplit", -1);
  return {attributes.get_string("delimiter", ""), most < 0 ? -1 : most};
}

StringView part(StringView text, int64_t begin, int64_t end) { return {text.data + begin, end - begin}; }

// Calls f with each piece; returns how many there are.
template <class F>
int64_t for_pieces(StringView text, const Cut& cut, F&& f) {
  int64_t count = 0, begin = 0, bytes = 0;
  if (cut.delimiter.size > 0) {
    const int64_t n = cut.delimiter.size;
    for (int64_t at = 0; at + n <= text.size && count != cut.most;) {
      if (std::memcmp(text.data + at, cut.delimiter.data, static_cast<size_t>(n)) != 0) {
        ++at;
        continue;
      }
      f(count++, part(text, begin, at));
      begin = at += n;
    }
    f(count++, part(text, begin, text.size));
    return count;
  }
  for (;;) {
    while (begin < text.size && is_space(code_point(text, begin, &bytes))) begin += bytes;
    if (begin == text.size) return count;
    int64_t end = begin;
    if (count == cut.most) {
      f(count++, part(text, begin, text.size));
      return count;
    }
    while (end < text.size && !is_space(code_point(text, end, &bytes))) end += bytes;
    f(count++, part(text, begin, end));
    begin = end;
  }
}

Status split_infer(InferContext& c) {
  if (Status status = check_movable(c, -1)) return status;
  const Tensor& x = c.inputs[0];
  if (!is_string(x) || c.outputs[0].dtype != DType::kString ||
      (c.n_outputs > 1 && c.outputs[1].present() && c.outputs[1].dtype != DType::kI64))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "StringSplit takes strings and gives strings and i64");
  if (x.shape.rank == kMaxRank)
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "the result has more than %d dimensions", kMaxRank);
  const int64_t n = x.shape.elements();
  if (n > 0 && (x.data == nullptr || c.texts == nullptr)) return c.need_data(0);
  const Cut cut = cut_of(*c.attributes);
  int64_t most = 0;
  for (int64_t k = 0; k < n; ++k)
    most = greater(most, for_pieces(text_at(*c.texts, x, k), cut, [](int64_t, StringView) {}));
  Shape& y = c.outputs[0].shape;
  y = x.shape;
  y.dims[y.rank++] = most;
  if (c.n_outputs > 1) c.outputs[1].shape = x.shape;
  return OPFORGE_STATUS_OK;
}

Status split_run(RunContext& c) {
  const Tensor &x = c.inputs[0], &y = c.outputs[0];
  const Cut cut = cut_of(*c.attributes);
  const int64_t n = x.shape.elements(), width = y.shape[-1];
  auto* counts = c.n_outputs > 1 && c.outputs[1].present() ? c.outputs[1].as<int64_t>() : nullptr;
  for (int64_t k = 0; k < n; ++k) {
    uint32_t* row = y.as<uint32_t>() + k * width;
    for (int64_t i = 0; i < width; ++i) row[i] = 0;  // the empty text
    const StringView text = text_at(*c.texts, x, k);
    bool good = true;
    const int64_t count = for_pieces(text, cut, [&](int64_t i, StringView piece) {
      good = good && i < width && put_text(c, y, k * width + i, piece);
    });
    if (!good) return no_texts(c);
    if (counts != nullptr) counts[k] = count;
  }
  return OPFORGE_STATUS_OK;
}

enum class Case : uint8_t { kNone, kLower, kUpper };

struct Normalizer {
  Case change = Case::kNone;
  bool sensitive = false;
  int64_t stopwords = 0;
};

Status normalizer_load(LoadContext& c) {
  Normalizer* s = new_state<Normalizer>(c);
  if (s == nullptr) return no_memory(c);
  const StringView change = c.attributes->get_string("case_change_action", "NONE");
  if (equals(change, "LOWER"))
    s->change = Case::kLower;
  else if (equals(change, "UPPER"))
    s->change = Case::kUpper;
  else if (!equals(change, "NONE"))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "case_change_action is none of LOWER, UPPER and NONE");
  s->sensitive = c.attributes->get_int("is_case_sensitive", 0) != 0;
  while (c.attributes->get_text("stopwords", s->stopwords).data != nullptr) ++s->stopwords;
  return OPFORGE_STATUS_OK;
}

// A row keeps what is no stopword: at least one element, which is empty where nothing is left.
Status normalizer_infer(InferContext& c) {
  if (Status status = check_movable(c)) return status;
  const Shape& x = c.inputs[0].shape;
  if (!is_string(c.inputs[0]) || x.rank < 1 || x.rank > 2 || (x.rank == 2 && x.dims[0] != 1))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT,
                  "StringNormalizer takes strings of shape [C] or [1, C]");
  c.outputs[0].shape = x;
  c.outputs[0].shape.dims[x.rank - 1] = greater<int64_t>(1, x[-1]);
  return OPFORGE_STATUS_OK;
}

bool same_but_case(StringView a, StringView b) {
  int64_t i = 0, j = 0, in_a = 0, in_b = 0;
  for (; i < a.size && j < b.size; i += in_a, j += in_b)
    if (lower_case(code_point(a, i, &in_a)) != lower_case(code_point(b, j, &in_b))) return false;
  return i == a.size && j == b.size;
}

bool stopword(const Normalizer& s, const Attributes& attributes, StringView text) {
  for (int64_t k = 0; k < s.stopwords; ++k) {
    const StringView word = attributes.get_text("stopwords", k);
    if (s.sensitive ? same_bytes(text, word) : same_but_case(text, word)) return true;
  }
  return false;
}

bool put_changed(RunContext& c, Case change, StringView text, const Tensor& to, int64_t k) {
  if (change == Case::kNone) return put_text(c, to, k, text);
  int64_t size = 0, bytes = 0;
  const auto other = [&](uint32_t code) {
    return change == Case::kLower ? lower_case(code) : upper_case(code);
  };
  for (int64_t at = 0; at < text.size; at += bytes)
    size += put_code_point(other(code_point(text, at, &bytes)), nullptr);
  char* made = c.texts->make(size, to.as<uint32_t>() + k);
  if (made == nullptr) return false;
  for (int64_t at = 0; at < text.size; at += bytes)
    made += put_code_point(other(code_point(text, at, &bytes)), made);
  return true;
}

Status normalizer_run(RunContext& c) {
  const Normalizer& s = *static_cast<Normalizer*>(c.state);
  const Tensor& x = c.inputs[0];
  Tensor& y = c.outputs[0];
  int64_t kept = 0;
  for (int64_t k = 0; k < x.shape.elements(); ++k) {
    const StringView text = text_at(*c.texts, x, k);
    if (stopword(s, *c.attributes, text)) continue;
    if (!put_changed(c, s.change, text, y, kept++)) return no_texts(c);
  }
  if (kept == 0) y.as<uint32_t>()[kept++] = 0;
  y.shape.dims[y.shape.rank - 1] = kept;
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "StringSplit", 20, kNewest, nullptr, split_infer, split_run, kStrings, 1, 0, 2},
    {"", "StringNormalizer", 10, kNewest, normalizer_load, normalizer_infer, normalizer_run,
     kStrings | kBounded},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(text_parts, opforge::kRows);
