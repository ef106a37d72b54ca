// NvInfer.h: the part of TensorRT's C++ API that plugins meet, declared anew from its public documentation so
// that the sources in adapters/tensorrt compile where TensorRT is not. Names, values and the order of virtual
// functions are those of TensorRT 10 and 11; nothing else is here.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;
using cudaStream_t = CUstream_st*;

namespace nvinfer1 {

using AsciiChar = char;
using InterfaceKind = const char*;

struct InterfaceInfo {
  InterfaceKind kind;
  int32_t major, minor;
};
enum class APILanguage : int32_t { kCPP = 0, kPYTHON = 1 };

class IVersionedInterface {
 public:
  virtual APILanguage getAPILanguage() const noexcept { return APILanguage::kCPP; }
  virtual InterfaceInfo getInterfaceInfo() const noexcept = 0;
  virtual ~IVersionedInterface() noexcept = default;

 protected:
  IVersionedInterface() = default;
  IVersionedInterface(const IVersionedInterface&) = default;
  IVersionedInterface& operator=(const IVersionedInterface&) & = default;
};

enum class DataType : int32_t {
  kFLOAT,
  kHALF,
  kINT8,
  kINT32,
  kBOOL,
  kUINT8,
  kFP8,
  kBF16,
  kINT64,
  kINT4,
  kFP4,
  kE8M0
};
enum class TensorFormat : int32_t { kLINEAR = 0, kCHW2 = 1, kHWC8 = 2, kCHW4 = 3 };
enum class TensorRTPhase : int32_t { kBUILD = 0, kRUNTIME = 1 };
enum class PluginCapabilityType : int32_t { kCORE = 0, kBUILD = 1, kRUNTIME = 2 };
enum class PluginFieldType : int32_t {
  kFLOAT16,
  kFLOAT32,
  kFLOAT64,
  kINT8,
  kINT16,
  kINT32,
  kCHAR,
  kDIMS,
  kUNKNOWN,
  kBF16,
  kINT64,
  kFP8,
  kINT4,
  kFP4
};
enum class DimensionOperation : int32_t {
  kSUM,
  kPROD,
  kMAX,
  kMIN,
  kSUB,
  kEQUAL,
  kLESS,
  kFLOOR_DIV,
  kCEIL_DIV
};

struct Dims {
  static constexpr int32_t MAX_DIMS = 8;
  int32_t nbDims;
  int64_t d[MAX_DIMS];
};

struct PluginTensorDesc {
  Dims dims;
  DataType type;
  TensorFormat format;
  float scale;
};
struct DynamicPluginTensorDesc {
  PluginTensorDesc desc;
  Dims min, max, opt;
};

class PluginField {
 public:
  const AsciiChar* name;
  const void* data;
  PluginFieldType type;
  int32_t length;
  PluginField(const AsciiChar* name_ = nullptr, const void* data_ = nullptr,
              PluginFieldType type_ = PluginFieldType::kUNKNOWN, int32_t length_ = 0) noexcept
      : name(name_), data(data_), type(type_), length(length_) {}
};
struct PluginFieldCollection {
  int32_t nbFields{};
  const PluginField* fields{};
};

class IDimensionExpr;

// What lies behind expressions and their builder: TensorRT's own, or a test's.
namespace apiv {
class VRoot {
 public:
  virtual ~VRoot() noexcept = default;
};
class VDimensionExpr : public VRoot {
 public:
  virtual bool isConstant() const = 0;
  virtual int64_t getConstantValue() const = 0;
  virtual bool isSizeTensor() const = 0;
};
class VExprBuilder : public VRoot {
 public:
  virtual const IDimensionExpr* constant(int64_t value) = 0;
  virtual const IDimensionExpr* operation(DimensionOperation op, const IDimensionExpr& first,
                                          const IDimensionExpr& second) = 0;
  virtual const IDimensionExpr* declareSizeTensor(int32_t output, const IDimensionExpr& opt,
                                                  const IDimensionExpr& upper) = 0;
};
}  // namespace apiv

class INoCopy {
 protected:
  INoCopy() = default;
  virtual ~INoCopy() = default;
  INoCopy(const INoCopy&) = delete;
  INoCopy& operator=(const INoCopy&) = delete;
};

class IDimensionExpr : public INoCopy {
 public:
  bool isConstant() const noexcept { return mImpl->isConstant(); }
  int64_t getConstantValue() const noexcept { return mImpl->getConstantValue(); }

 protected:
  apiv::VDimensionExpr* mImpl;
};

class IExprBuilder : public INoCopy {
 public:
  const IDimensionExpr* constant(int64_t value) noexcept { return mImpl->constant(value); }
  const IDimensionExpr* operation(DimensionOperation op, const IDimensionExpr& first,
                                  const IDimensionExpr& second) noexcept {
    return mImpl->operation(op, first, second);
  }

 protected:
  apiv::VExprBuilder* mImpl;
};

class DimsExprs {
 public:
  int32_t nbDims;
  const IDimensionExpr* d[Dims::MAX_DIMS];
};

class IPluginCapability : public IVersionedInterface {};
class IPluginCreatorInterface : public IVersionedInterface {};
class IPluginResourceContext;

class IPluginV3 : public IVersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"PLUGIN", 1, 0}; }
  virtual IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept = 0;
  virtual IPluginV3* clone() noexcept = 0;
};

class IPluginV3OneCore : public IPluginCapability {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"PLUGIN_V3ONE_CORE", 1, 0}; }
  virtual const AsciiChar* getPluginName() const noexcept = 0;
  virtual const AsciiChar* getPluginVersion() const noexcept = 0;
  virtual const AsciiChar* getPluginNamespace() const noexcept = 0;
};

class IPluginV3OneBuild : public IPluginCapability {
 public:
  static constexpr int32_t kDEFAULT_FORMAT_COMBINATION_LIMIT = 100;
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"PLUGIN_V3ONE_BUILD", 1, 0}; }
  virtual int32_t configurePlugin(const DynamicPluginTensorDesc* in, int32_t nbInputs,
                                  const DynamicPluginTensorDesc* out, int32_t nbOutputs) noexcept = 0;
  virtual int32_t getOutputDataTypes(DataType* outputTypes, int32_t nbOutputs, const DataType* inputTypes,
                                     int32_t nbInputs) const noexcept = 0;
  virtual int32_t getOutputShapes(const DimsExprs* inputs, int32_t nbInputs, const DimsExprs* shapeInputs,
                                  int32_t nbShapeInputs, DimsExprs* outputs, int32_t nbOutputs,
                                  IExprBuilder& exprBuilder) noexcept = 0;
  virtual bool supportsFormatCombination(int32_t pos, const DynamicPluginTensorDesc* inOut, int32_t nbInputs,
                                         int32_t nbOutputs) noexcept = 0;
  virtual int32_t getNbOutputs() const noexcept = 0;
  virtual size_t getWorkspaceSize(const DynamicPluginTensorDesc*, int32_t, const DynamicPluginTensorDesc*,
                                  int32_t) const noexcept {
    return 0;
  }
  virtual int32_t getValidTactics(int32_t*, int32_t) noexcept { return 0; }
  virtual int32_t getNbTactics() noexcept { return 0; }
  virtual const char* getTimingCacheID() noexcept { return nullptr; }
  virtual int32_t getFormatCombinationLimit() noexcept { return kDEFAULT_FORMAT_COMBINATION_LIMIT; }
  virtual const char* getMetadataString() noexcept { return nullptr; }
};

class IPluginV3OneRuntime : public IPluginCapability {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"PLUGIN_V3ONE_RUNTIME", 1, 0}; }
  virtual int32_t setTactic(int32_t) noexcept { return 0; }
  virtual int32_t onShapeChange(const PluginTensorDesc* in, int32_t nbInputs, const PluginTensorDesc* out,
                                int32_t nbOutputs) noexcept = 0;
  virtual int32_t enqueue(const PluginTensorDesc* inputDesc, const PluginTensorDesc* outputDesc,
                          const void* const* inputs, void* const* outputs, void* workspace,
                          cudaStream_t stream) noexcept = 0;
  virtual IPluginV3* attachToContext(IPluginResourceContext* context) noexcept = 0;
  virtual const PluginFieldCollection* getFieldsToSerialize() noexcept = 0;
};

class IPluginCreatorV3One : public IPluginCreatorInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"PLUGIN CREATOR_V3ONE", 1, 0}; }
  virtual IPluginV3* createPlugin(const AsciiChar* name, const PluginFieldCollection* fc,
                                  TensorRTPhase phase) noexcept = 0;
  virtual const PluginFieldCollection* getFieldNames() noexcept = 0;
  virtual const AsciiChar* getPluginName() const noexcept = 0;
  virtual const AsciiChar* getPluginVersion() const noexcept = 0;
  virtual const AsciiChar* getPluginNamespace() const noexcept = 0;
};

class ILogger : public IVersionedInterface {
 public:
  enum class Severity : int32_t { kINTERNAL_ERROR = 0, kERROR = 1, kWARNING = 2, kINFO = 3, kVERBOSE = 4 };
  virtual void log(Severity severity, const AsciiChar* msg) noexcept = 0;
};
class ILoggerFinder : public IVersionedInterface {
 public:
  virtual ILogger* findLogger() = 0;
};

}  // namespace nvinfer1
