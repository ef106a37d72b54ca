// plugin_test.cpp: the C++ plugins as TensorRT uses them: loads the library, reads fields, makes a plugin,
// asks it for types, shapes, formats and workspace, keeps and restores it, and launches it on host memory,
// which the emulated kernels take for a device's.  plugin_test LIBRARY
#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <NvInfer.h>

using namespace nvinfer1;

static int failures = 0;
static void check(bool fits, const char* what, int line) {
  if (fits) return;
  std::printf("line %d: %s\n", line, what);
  ++failures;
}
#define CHECK(condition) check(condition, #condition, __LINE__)

struct Log : ILogger {
  std::string words;
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"ILogger", 1, 0}; }
  void log(Severity, const AsciiChar* text) noexcept override { words += std::string(text) + "\n"; }
};
struct Finder : ILoggerFinder {
  Log log;
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"ILoggerFinder", 1, 0}; }
  ILogger* findLogger() override { return &log; }
};

// Expressions over sizes that the builder does not know while the plugin asks.
struct Value : apiv::VDimensionExpr {
  bool constant;
  int64_t number;
  Value(bool known, int64_t value) : constant(known), number(value) {}
  bool isConstant() const override { return constant; }
  int64_t getConstantValue() const override { return constant ? number : INT64_MIN; }
  bool isSizeTensor() const override { return false; }
};
struct Expression : IDimensionExpr {
  explicit Expression(Value* value) { mImpl = value; }
};
struct Builder : apiv::VExprBuilder {
  std::deque<Value> values;
  std::deque<Expression> expressions;
  const IDimensionExpr* make(bool known, int64_t number) {
    values.emplace_back(known, number);
    expressions.emplace_back(&values.back());
    return &expressions.back();
  }
  int64_t number(const IDimensionExpr& one) const {
    for (size_t k = 0; k < expressions.size(); ++k) {
      if (&expressions[k] == &one) return values[k].number;
    }
    std::abort();
  }
  const IDimensionExpr* constant(int64_t value) override { return make(true, value); }
  const IDimensionExpr* operation(DimensionOperation op, const IDimensionExpr& first,
                                  const IDimensionExpr& second) override {
    const int64_t a = number(first), b = number(second);
    const bool known = first.isConstant() && second.isConstant();
    switch (op) {
      case DimensionOperation::kSUM:
        return make(known, a + b);
      case DimensionOperation::kPROD:
        return make(known, a * b);
      case DimensionOperation::kSUB:
        return make(known, a - b);
      case DimensionOperation::kEQUAL:
        return make(known, a == b);
      case DimensionOperation::kFLOOR_DIV:
        return make(known, a / b - (a % b != 0 && (a < 0) != (b < 0)));
      default:
        std::abort();
    }
  }
  const IDimensionExpr* declareSizeTensor(int32_t, const IDimensionExpr&, const IDimensionExpr&) override {
    return nullptr;
  }
};
struct PublicBuilder : IExprBuilder {
  explicit PublicBuilder(Builder* builder) { mImpl = builder; }
};

static Dims dims(std::initializer_list<int64_t> sizes) {
  Dims made{};
  for (const int64_t size : sizes) made.d[made.nbDims++] = size;
  return made;
}
static PluginTensorDesc desc(std::initializer_list<int64_t> sizes, DataType type = DataType::kFLOAT) {
  return {dims(sizes), type, TensorFormat::kLINEAR, -1.0f};
}
static DynamicPluginTensorDesc wide(DataType type, TensorFormat format = TensorFormat::kLINEAR) {
  DynamicPluginTensorDesc made{};
  made.desc = {Dims{2, {-1, -1}}, type, format, -1.0f};
  made.min = dims({1, 1});
  made.max = made.opt = dims({16, 32});
  return made;
}

template <class Interface>
static Interface* capability(IPluginV3* plugin, PluginCapabilityType type) {
  return static_cast<Interface*>(plugin->getCapabilityInterface(type));
}

static std::vector<int64_t> shape_of(IPluginV3OneBuild* build, std::vector<std::vector<int64_t>> shapes,
                                     bool known, int32_t* status) {
  Builder builder;
  PublicBuilder shown(&builder);
  std::vector<DimsExprs> inputs;
  for (const auto& shape : shapes) {
    DimsExprs one{};
    for (const int64_t size : shape) one.d[one.nbDims++] = builder.make(known, size);
    inputs.push_back(one);
  }
  DimsExprs output{};
  *status = build->getOutputShapes(inputs.data(), static_cast<int32_t>(inputs.size()), nullptr, 0, &output, 1,
                                   shown);
  std::vector<int64_t> made;
  for (int32_t d = 0; *status == 0 && d < output.nbDims; ++d) made.push_back(builder.number(*output.d[d]));
  return made;
}

static void shapes(IPluginV3OneBuild* build, Finder* finder) {
  int32_t status = 0;
  for (const bool known : {false, true}) {
    CHECK((shape_of(build, {{5, 1}, {1, 4}}, known, &status) == std::vector<int64_t>{5, 4}));
    CHECK((shape_of(build, {{1}, {0}}, known, &status) == std::vector<int64_t>{0}));
    CHECK((shape_of(build, {{2, 3, 4}, {4}}, known, &status) == std::vector<int64_t>{2, 3, 4}));
    CHECK((shape_of(build, {{}, {}}, known, &status).empty() && status == 0));
  }
  finder->log.words.clear();
  shape_of(build, {{3}, {4}}, true, &status);
  CHECK(status != 0);
  CHECK(finder->log.words.find("shapes do not broadcast") != std::string::npos);
}

static void formats(IPluginV3OneBuild* build) {
  const auto fits = [&](int32_t pos, DataType a, DataType b, DataType c,
                        TensorFormat format = TensorFormat::kLINEAR) {
    const DynamicPluginTensorDesc tensors[] = {wide(a), wide(b), wide(c, format)};
    return build->supportsFormatCombination(pos, tensors, 2, 1);
  };
  const DataType f32 = DataType::kFLOAT, f16 = DataType::kHALF;
  for (const DataType type : {f32, f16, DataType::kBF16}) {
    for (int32_t pos = 0; pos < 3; ++pos) CHECK(fits(pos, type, type, type));
  }
  CHECK(!fits(1, f16, f32, f32));
  CHECK(!fits(2, f16, f16, f32));
  CHECK(!fits(0, DataType::kINT32, f32, f32));
  CHECK(!fits(2, f32, f32, f32, TensorFormat::kCHW4));
  CHECK(fits(1, f32, f32, DataType::kINT4, TensorFormat::kCHW4));  // behind pos nothing is read
  DataType out{};
  const DataType in[] = {f16, f16}, bad[] = {f16, f32}, none[] = {DataType::kFP8, DataType::kFP8};
  CHECK(build->getOutputDataTypes(&out, 1, in, 2) == 0 && out == f16);
  CHECK(build->getOutputDataTypes(&out, 1, bad, 2) != 0);
  CHECK(build->getOutputDataTypes(&out, 1, none, 2) != 0);
  CHECK(build->getOutputDataTypes(&out, 1, in, 1) != 0);
}

static void launches(IPluginV3OneRuntime* runtime, IPluginV3OneBuild* build, float slope, float bias,
                     Finder* finder) {
  for (const auto& sizes : std::vector<std::pair<int64_t, int64_t>>{{5, 7}, {1, 1}, {0, 3}, {300, 11}}) {
    const int64_t rows = sizes.first, columns = sizes.second;
    std::vector<float> x(static_cast<size_t>(rows * columns)), w(static_cast<size_t>(columns)),
        y(x.size(), 9.0f);
    for (size_t k = 0; k < x.size(); ++k) x[k] = std::sin(static_cast<float>(k));
    for (size_t k = 0; k < w.size(); ++k) w[k] = 0.3f * std::cos(static_cast<float>(k));
    const PluginTensorDesc in[] = {desc({rows, columns}), desc({columns})}, out[] = {desc({rows, columns})};
    const void* const from[] = {x.data(), w.data()};
    void* const to[] = {y.data()};
    CHECK(runtime->onShapeChange(in, 2, out, 1) == 0);
    CHECK(runtime->enqueue(in, out, from, to, nullptr, nullptr) == 0);
    for (size_t k = 0; k < y.size(); ++k) {
      const float b = w[k % static_cast<size_t>(columns)];
      const float expected = x[k] > b ? x[k] * b + bias : slope * b;
      CHECK(std::fabs(y[k] - expected) <= 1e-5f);
    }
    finder->log.words.clear();
    const PluginTensorDesc wrong[] = {desc({rows, columns + 5})};
    CHECK(runtime->enqueue(in, wrong, from, to, nullptr, nullptr) != 0);
    CHECK(finder->log.words.find("TensorRT's outputs are not those of the operator") != std::string::npos);
  }
  const DynamicPluginTensorDesc two[] = {wide(DataType::kFLOAT), wide(DataType::kFLOAT)}, one[] = {two[0]};
  CHECK(build->getWorkspaceSize(two, 2, one, 1) == 0);
}

int main(int, char** arguments) {
  void* const library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::printf("%s\n", dlerror()), 1;
  Finder finder;
  reinterpret_cast<void (*)(ILoggerFinder*)>(dlsym(library, "setLoggerFinder"))(&finder);
  const auto creators =
      reinterpret_cast<IPluginCreatorInterface* const* (*)(int32_t&)>(dlsym(library, "getCreators"));
  int32_t count = 0;
  IPluginCreatorInterface* const* const all = creators(count);
  IPluginCreatorV3One* creator = nullptr;
  for (int32_t k = 0; k < count; ++k) {
    CHECK(std::string(all[k]->getInterfaceInfo().kind) == "PLUGIN CREATOR_V3ONE");
    auto* const one = static_cast<IPluginCreatorV3One*>(all[k]);
    if (std::string(one->getPluginName()) == "test_trt_Gate") creator = one;
  }
  if (creator == nullptr) return std::printf("no creator among %d: %s\n", count, finder.log.words.c_str()), 1;
  CHECK(std::string(creator->getPluginVersion()) == "1");
  CHECK(std::string(creator->getPluginNamespace()) == "test.trt");
  std::string names;
  for (int32_t k = 0; k < creator->getFieldNames()->nbFields; ++k) {
    names += std::string(creator->getFieldNames()->fields[k].name) + " ";
  }
  CHECK(names == "slope bias opforge_inputs opforge_schema ");

  const float slope = 0.25f;
  const char counts[] = "1 1";
  const PluginField given[] = {{"slope", &slope, PluginFieldType::kFLOAT32, 1},
                               {"bias", "1.5", PluginFieldType::kCHAR, 4},
                               {"opforge_inputs", counts, PluginFieldType::kCHAR, sizeof counts}};
  const PluginFieldCollection collection{3, given};
  const std::unique_ptr<IPluginV3> plugin(creator->createPlugin("g", &collection, TensorRTPhase::kBUILD));
  if (plugin == nullptr) return std::printf("no plugin: %s\n", finder.log.words.c_str()), 1;
  auto* const core = capability<IPluginV3OneCore>(plugin.get(), PluginCapabilityType::kCORE);
  auto* const build = capability<IPluginV3OneBuild>(plugin.get(), PluginCapabilityType::kBUILD);
  CHECK(std::string(core->getPluginName()) == "test_trt_Gate");
  CHECK(std::string(core->getInterfaceInfo().kind) == "PLUGIN_V3ONE_CORE");
  CHECK(std::string(build->getInterfaceInfo().kind) == "PLUGIN_V3ONE_BUILD");
  CHECK(build->getNbOutputs() == 1);
  CHECK(std::string(build->getTimingCacheID()).find(" 0.25 1.5") != std::string::npos);
  shapes(build, &finder);
  formats(build);

  // As an engine: the fields are kept, another process makes the plugin of them, a context gets a copy.
  auto* const kept =
      capability<IPluginV3OneRuntime>(plugin.get(), PluginCapabilityType::kRUNTIME)->getFieldsToSerialize();
  CHECK(kept->nbFields == 4);
  const std::unique_ptr<IPluginV3> restored(creator->createPlugin("", kept, TensorRTPhase::kRUNTIME));
  if (restored == nullptr) return std::printf("not restored: %s\n", finder.log.words.c_str()), 1;
  auto* const first = capability<IPluginV3OneRuntime>(restored.get(), PluginCapabilityType::kRUNTIME);
  const std::unique_ptr<IPluginV3> attached(first->attachToContext(nullptr));
  launches(capability<IPluginV3OneRuntime>(attached.get(), PluginCapabilityType::kRUNTIME), build, slope,
           1.5f, &finder);

  const struct {
    PluginField field;
    const char* words;
  } refused[] = {
      {{"slop", &slope, PluginFieldType::kFLOAT32, 1}, "unknown field of a plugin"},
      {{"slope", given, PluginFieldType::kFLOAT32, 2}, "a field holds more than one number"},
      {{"slope", "x", PluginFieldType::kCHAR, 2}, "test.trt::Gate, attribute slope"},
      {{"slope", "\"a\"", PluginFieldType::kCHAR, 4}, "wrong attribute type"},
      {{"slope", &slope, PluginFieldType::kDIMS, 1}, "a type that is read nowhere"},
      {{"slope", nullptr, PluginFieldType::kFLOAT32, 1}, "a field of a plugin holds another type"},
      {{"opforge_inputs", "0 1", PluginFieldType::kCHAR, 4}, "described wrongly"},
      {{"opforge_schema", "00", PluginFieldType::kCHAR, 3}, "built with another declaration"},
  };
  for (const auto& row : refused) {
    finder.log.words.clear();
    const PluginFieldCollection bad{1, &row.field};
    const std::unique_ptr<IPluginV3> none(creator->createPlugin("g", &bad, TensorRTPhase::kBUILD));
    CHECK(none == nullptr);
    check(finder.log.words.find(row.words) != std::string::npos,
          (row.words + (": " + finder.log.words)).c_str(), __LINE__);
  }
  std::printf(failures == 0 ? "fine\n" : "%d failures\n", failures);
  return failures != 0;
}
