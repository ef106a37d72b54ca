// ngrams.cpp: TfIdfVectorizer over integers: counts of n-grams of a pool, with gaps between their members.
#include "kernels/move.h"
#include "kernels/types.h"

namespace opforge {
namespace {

using namespace kernels;

enum class Weighing { kCount, kPresence, kProduct };

struct Grams {
  Weighing weighing = Weighing::kCount;
  int64_t least = 1, most = 1, gaps = 0;
  const int64_t *starts = nullptr, *columns = nullptr, *pool = nullptr;
  const float* weights = nullptr;
  int64_t lengths = 0, grams = 0, pool_size = 0, width = 0;

  // First member of the n-grams of length n in the pool, and one past the last.
  int64_t begin(int64_t n) const { return n - 1 < lengths ? starts[n - 1] : pool_size; }
  int64_t end(int64_t n) const { return n < lengths ? starts[n] : pool_size; }
};

bool read_grams(const Attributes& a, Grams* g) {
  const StringView mode = a.get_string("mode", "");
  if (!equals(mode, "TF") && !equals(mode, "IDF") && !equals(mode, "TFIDF")) return false;
  g->weighing = equals(mode, "TF")    ? Weighing::kCount
                : equals(mode, "IDF") ? Weighing::kPresence
                                      : Weighing::kProduct;
  g->least = a.get_int("min_gram_length", 0), g->most = a.get_int("max_gram_length", 0);
  g->gaps = a.get_int("max_skip_count", 0);
  int64_t weights = 0;
  if (!a.get_ints("ngram_counts", &g->starts, &g->lengths) ||
      !a.get_ints("ngram_indexes", &g->columns, &g->grams) ||
      !a.get_ints("pool_int64s", &g->pool, &g->pool_size) || g->least < 1 || g->most < g->least ||
      g->most > 64 || g->gaps < 0 || g->gaps > INT32_MAX || g->lengths < 1)
    return false;
  if (a.get_floats("weights", &g->weights, &weights) && weights != g->grams) return false;
  int64_t grams = 0;
  for (int64_t n = 1; n <= g->lengths; ++n) {
    const int64_t begin = g->begin(n), size = g->end(n) - begin;
    if (begin < 0 || begin > g->pool_size || size < 0 || size % n != 0) return false;
    grams += size / n;
  }
  if (g->starts[0] != 0 || grams != g->grams) return false;
  for (int64_t k = 0; k < g->grams; ++k) {
    if (g->columns[k] < 0 || g->columns[k] > INT32_MAX) return false;
    g->width = greater(g->width, g->columns[k] + 1);
  }
  return true;
}

Status grams_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  const Tensor& x = c.inputs[0];
  Grams g;
  if (!is_index(x) || !is_plain(x)) return no_type(c);
  if (x.shape.rank < 1 || x.shape.rank > 2 || !read_grams(*c.attributes, &g))
    return c.fail(
        &c, OPFORGE_STATUS_INVALID_ARGUMENT,
        "TfIdfVectorizer takes one or two dimensions and a pool of integers that its lists describe");
  Shape& y = c.outputs[0].shape;
  y = x.shape;
  y.dims[y.rank - 1] = g.width;
  return OPFORGE_STATUS_OK;
}

// Adds 1 to the column of every occurrence.
void count(const Grams& g, const Tensor& x, int64_t first, int64_t length, float* to) {
  int64_t gram = 0;  // number of the first n-gram of length n
  for (int64_t n = 1; n <= lesser(g.most, g.lengths); ++n) {
    const int64_t *pool = g.pool + g.begin(n), number = (g.end(n) - g.begin(n)) / n;
    // Single elements have no gaps.
    for (int64_t step = 1; n >= g.least && step <= (n == 1 ? 1 : g.gaps + 1); ++step) {
      const int64_t span = (n - 1) * step;
      if (span >= length) break;
      for (int64_t at = 0; at + span < length; ++at)
        for (int64_t k = 0; k < number; ++k) {
          int64_t same = 0;
          while (same < n && index_at(x, first + at + same * step) == pool[k * n + same]) ++same;
          if (same == n) to[g.columns[gram + k]] += 1;
        }
    }
    gram += number;
  }
}

Status grams_run(RunContext& c) {
  const Tensor& x = c.inputs[0];
  Grams g;
  read_grams(*c.attributes, &g);
  const int64_t rows = x.shape.rank == 1 ? 1 : x.shape[0], length = x.shape[-1];
  c.parallel(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* to = c.outputs[0].as<float>() + row * g.width;
      for (int64_t k = 0; k < g.width; ++k) to[k] = 0;
      count(g, x, row * length, length, to);
      if (g.weighing == Weighing::kPresence)
        for (int64_t k = 0; k < g.width; ++k) to[k] = to[k] > 0 ? 1.0f : 0.0f;
      if (g.weighing == Weighing::kCount || g.weights == nullptr) continue;
      for (int64_t k = 0; k < lesser(g.grams, g.width); ++k) to[k] *= g.weights[k];  // one for each column
    }
  });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "TfIdfVectorizer", 9, kNewest, nullptr, grams_infer, grams_run},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(ngrams, opforge::kRows);
