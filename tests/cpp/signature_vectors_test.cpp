// signature_vectors_test.cpp: runs tests/data/signature_vectors.json through the C++ form of the schema.
// Usage: signature_vectors_test FILE. Vectors with dimensions given by name belong to Python alone.
//
// Each bind vector runs twice: over int64_t, and over Traced, a type of its own that stands for a host's
// symbolic integers and proves that the template touches a dimension through its traits only.
#include <stdio.h>

#include <fstream>
#include <sstream>

#include "json.h"
#include "opforge/detail/gradient.h"
#include "opforge/detail/infer.h"

namespace {

struct Traced {
  int64_t hidden;
};

}  // namespace

template <>
struct opforge::detail::DimTraits<Traced> {
  using Plain = DimTraits<int64_t>;
  static std::optional<Traced> from_host(Traced dim) {
    return dim.hidden < 0 ? std::nullopt : std::optional<Traced>(dim);
  }
  static Traced unknown() { return {-1}; }
  static Traced from(int64_t number) { return {number}; }
  static std::optional<int64_t> constant(Traced dim) { return dim.hidden; }
  static bool require_equal(Traced a, Traced b) { return a.hidden == b.hidden; }
  static bool require_nonnegative(Traced a) { return a.hidden >= 0; }
  static bool require_divisible(Traced a, int64_t b) { return a.hidden % b == 0; }
  static bool decide_one(Traced a) { return a.hidden == 1; }
  static bool compute(char op, Traced a, Traced b, Traced* out) {
    return Plain::compute(op, a.hidden, b.hidden, &out->hidden);
  }
  static std::string text(Traced dim) { return std::to_string(dim.hidden); }
};

namespace {

using namespace opforge::detail;
using test::Json;

const std::string kWhere = "test::Op";
int failures = 0;
int checked = 0;

void check(const Json& vector, const char* what, const std::string& expected, const std::string& got) {
  ++checked;
  if (expected == got) return;
  ++failures;
  printf("FAIL %s, %s\n--- expected\n%s\n--- got\n%s\n", vector["name"].text.c_str(), what, expected.c_str(),
         got.c_str());
}

// Checks the problem against the vector's error; true where the vector is a good one and there was none.
bool check_problem(const Json& vector, const Problem& problem) {
  static const char* const kKinds[] = {"", "argument", "dtype", "schema"};
  if (!vector.has("error") && problem.kind == Problem::kNone) return true;
  check(vector, "error", vector["error"]["message"].text, problem.message());
  check(vector, "kind of error", vector["error"]["kind"].text, kKinds[problem.kind]);
  return false;
}

void run_parse(const Json& vector) {
  Signature signature;
  Problem problem;
  const std::string types = vector["types"].text;
  parse_signature(vector["signature"].text, vector.has("types") ? types.c_str() : nullptr, kWhere, &signature,
                  &problem);
  if (check_problem(vector, problem))
    check(vector, "canonical", vector["canonical"].text, to_string(signature));
}

Literal literal_of(const Json& value) {
  if (value.kind == Json::kArray) {
    Literal list;
    list.list = true;
    for (const Json& item : value.items) list.items.push_back(literal_of(item).items[0]);
    return list;
  }
  if (value.kind == Json::kBool) return Literal::of_bool(value.boolean);
  if (value.kind == Json::kInt) return Literal::of_int(value.integer());
  if (value.kind == Json::kFloat) return Literal::of_float(value.number());
  return Literal::of_string(value.text);
}

opforge_dtype dtype_of(const Json& name) {
  if (name.kind == Json::kNull) return {};
  if (name.text == "u16") return {OPFORGE_CODE_UINT, 16, 1};
  return *find_dtype(name.text);
}

int64_t hidden(int64_t dim) { return dim; }
int64_t hidden(Traced dim) { return dim.hidden; }

template <class D>
void run_bind(const Json& vector) {
  Signature signature;
  Problem problem;
  const std::string types = vector["types"].text;
  if (!parse_signature(vector["signature"].text, vector.has("types") ? types.c_str() : nullptr, kWhere,
                       &signature, &problem))
    return check(vector, "signature", "", problem.message());

  std::vector<std::vector<D>> owned;
  std::vector<ShapeView<D>> shapes;
  std::vector<opforge_dtype> dtypes;
  for (const Json& shape : vector["shapes"].items) {
    std::vector<D> dims;
    for (const Json& dim : shape.items) dims.push_back({dim.kind == Json::kNull ? -1 : dim.integer()});
    owned.push_back(dims);
  }
  for (size_t k = 0; k < owned.size(); ++k) {
    const Json& shape = vector["shapes"].items[k];
    const int32_t rank = shape.kind == Json::kNull     ? kUnknownRank
                         : shape.kind == Json::kString ? kAbsent
                                                       : static_cast<int32_t>(owned[k].size());
    shapes.push_back({owned[k].data(), rank});
    dtypes.push_back(dtype_of(vector["dtypes"].items[k]));
  }
  std::vector<NamedLiteral> given;
  for (const auto& [name, value] : vector["attributes"].members) given.push_back({name, literal_of(value)});
  std::vector<AttributeValue> values;
  Binding<D> binding;
  for (int round = 0; round < 2 && problem.kind == Problem::kNone; ++round)  // a binding can be used again
    if (coerce_all(signature.attributes, given, kWhere, &values, &problem))
      bind<D>(signature, kWhere, shapes, dtypes, integers_of(values).data(), &binding, &problem);
  if (!check_problem(vector, problem)) return;

  std::string expected, got;
  for (size_t k = 0; k < vector["output_shapes"].items.size(); ++k) {
    const Json& shape = vector["output_shapes"].items[k];
    const Json& dtype = vector["output_dtypes"].items[k];
    expected += dtype.kind == Json::kNull ? "?" : dtype.text;
    expected += shape.kind == Json::kNull ? " unranked" : "";
    for (const Json& dim : shape.items) expected += " " + (dim.kind == Json::kNull ? "-1" : dim.text);
    expected += "\n";
  }
  for (size_t k = 0; k < binding.shapes.size(); ++k) {
    got += is_known(binding.dtypes[k]) ? dtype_name(binding.dtypes[k]) : "?";
    got += binding.shapes[k].ranked ? "" : " unranked";
    for (const D& dim : binding.shapes[k].dims) got += " " + std::to_string(hidden(dim));
    got += "\n";
  }
  check(vector, "outputs", expected, got);
  expected.clear();
  got.clear();
  for (const Json& count : vector["output_counts"].items) expected += count.text + " ";
  for (const int32_t count : binding.output_counts) got += std::to_string(count) + " ";
  check(vector, "output counts", expected, got);
  for (size_t k = 0; k < values.size(); ++k)
    if (const Json& value = vector["values"][signature.attributes[k].name.c_str()]; value.kind != Json::kNull)
      check(vector, "attribute", value.text, format_literal(to_literal(values[k])));
}

bool is_symbolic(const Json& vector) {
  for (const Json& shape : vector["shapes"].items)
    for (const Json& dim : shape.items)
      if (dim.kind == Json::kString) return true;
  return false;
}

void run_gradient(const Json& vector) {
  GradientProgram program;
  Problem problem;
  if (parse_gradient(vector["text"].text, kWhere, &program, &problem) && vector.has("signature")) {
    Signature signature;
    if (parse_signature(vector["signature"].text, nullptr, kWhere, &signature, &problem))
      check_gradient(program, signature, kWhere, &problem);
  }
  if (!check_problem(vector, problem)) return;
  check(vector, "canonical", vector["canonical"].text, to_string(program));
  for (const Json& entry : vector["prune"].items) {
    std::vector<bool> wanted;
    for (const Json& flag : entry["wanted"].items) wanted.push_back(flag.boolean);
    const GradientProgram pruned = prune(program, wanted);
    check(vector, "pruned", entry["program"].text, to_string(pruned));
    for (const char* kind : {"i", "o", "g", "v"}) {
      std::string expected, got;
      for (const Json& number : entry[kind].items) expected += number.text + " ";
      for (const int32_t number : reads(pruned, kind[0])) got += std::to_string(number) + " ";
      check(vector, kind, expected, got);
    }
  }
}

// The packed form that kernels get.
void check_packed() {
  Json vector;
  vector.members["name"].text = "packed attributes";
  Signature signature;
  Problem problem;
  std::vector<AttributeValue> values;
  const char* text =
      "(x: T[n]; a: int = -3, b: float = 0.1, c: string = \"hi\", d: bool = true, e: ints = [7, 8],"
      " f: floats = [0.5], g: strings = [\"p\", \"qr\"], h: bools = [false, true]) -> (y: T[n])";
  if (!parse_signature(text, nullptr, kWhere, &signature, &problem) ||
      !coerce_all(signature.attributes, {}, kWhere, &values, &problem))
    return check(vector, "problem", "", problem.message());
  const PackedAttributes packed(values);
  const opforge_attribute* a = packed.data();
  std::ostringstream got;
  for (size_t k = 0; k < values.size(); ++k) got << a[k].kind << "x" << a[k].count << " ";
  got << a[0].value.i << " " << (a[1].value.f == static_cast<double>(0.1f)) << " "
      << std::string(a[2].value.s.data, static_cast<size_t>(a[2].value.s.size)) << " " << a[3].value.i << " "
      << a[4].value.ints[1] << " " << a[5].value.floats[0] << " " << a[6].value.strings[1].size << " "
      << a[7].value.ints[1];
  check(vector, "values", "1x1 2x1 3x1 4x1 5x2 6x1 7x2 8x2 -3 1 hi 1 8 0.5 2 1", got.str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s signature_vectors.json\n", argv[0]);
    return 2;
  }
  std::ifstream file(argv[1]);
  std::stringstream text;
  text << file.rdbuf();
  const Json vectors = test::JsonReader(text.str().empty() ? "[]" : text.str()).read();
  int symbolic = 0;
  for (const Json& vector : vectors.items) {
    const std::string& kind = vector["kind"].text;
    if (kind == "parse") run_parse(vector);
    if (kind == "gradient") run_gradient(vector);
    if (kind == "bind" && is_symbolic(vector)) ++symbolic;
    if (kind == "bind" && !is_symbolic(vector)) {
      run_bind<int64_t>(vector);
      run_bind<Traced>(vector);
    }
  }
  check_packed();
  printf("%zu vectors, %d for Python alone, %d checks, %d failures\n", vectors.items.size(), symbolic,
         checked, failures);
  return failures != 0 || vectors.items.size() < 80;
}
