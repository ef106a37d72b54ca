// plugin.h: plugins of TensorRT (IPluginV3) whose every answer follows from an operator's declaration. The
// counterpart of src/opforge/engines/tensorrt/_plugin.py.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <NvInfer.h>

#include "tensorrt/call.h"
#include "tensorrt/log.h"
#include "tensorrt/size.h"

namespace opforge::tensorrt_host {

// An operator, and what TensorRT looks its plugin up by.
struct Definition : Plan {
  explicit Definition(const opforge_operator* made)
      : Plan(made), version(std::to_string(made->since_version)), domain(made->domain) {
    for (const char c : domain) name += c == '.' ? '_' : c;
    name += std::string("_") + made->name;
  }
  std::string name, version, domain;
};

class Plugin final : public nvinfer1::IPluginV3,
                     public nvinfer1::IPluginV3OneCore,
                     public nvinfer1::IPluginV3OneBuild,
                     public nvinfer1::IPluginV3OneRuntime {
 public:
  Plugin(const Definition& definition, std::shared_ptr<const Content> content)
      : definition_(definition), content_(std::move(content)) {
    outputs_ = static_cast<int32_t>(bound(given_counts()).dtypes.size());
    timing_ = definition.table->schema_hash;
    for (const detail::AttributeValue& value : content_->values) {
      timing_ += " " + detail::format_literal(detail::to_literal(value));
    }
  }
  Plugin(const Plugin& other)
      : IPluginV3(other),
        IPluginV3OneCore(other),
        IPluginV3OneBuild(other),
        IPluginV3OneRuntime(other),
        definition_(other.definition_),
        content_(other.content_),
        outputs_(other.outputs_),
        inputs_(other.inputs_),
        workspace_(other.workspace_),
        timing_(other.timing_) {}
  Plugin& operator=(const Plugin&) = delete;

  // ---- IPluginV3
  nvinfer1::IPluginCapability* getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept override {
    switch (type) {
      case nvinfer1::PluginCapabilityType::kCORE:
        return static_cast<nvinfer1::IPluginV3OneCore*>(this);
      case nvinfer1::PluginCapabilityType::kBUILD:
        return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
      default:
        return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
    }
  }
  nvinfer1::IPluginV3* clone() noexcept override {
    return told<nvinfer1::IPluginV3*>(nullptr, [&] { return new Plugin(*this); });
  }

  // ---- core
  const nvinfer1::AsciiChar* getPluginName() const noexcept override { return definition_.name.c_str(); }
  const nvinfer1::AsciiChar* getPluginVersion() const noexcept override {
    return definition_.version.c_str();
  }
  const nvinfer1::AsciiChar* getPluginNamespace() const noexcept override {
    return definition_.domain.c_str();
  }

  // ---- build
  int32_t getNbOutputs() const noexcept override { return outputs_; }
  const char* getTimingCacheID() noexcept override { return timing_.c_str(); }

  int32_t getOutputDataTypes(nvinfer1::DataType* outputs, int32_t n_outputs, const nvinfer1::DataType* inputs,
                             int32_t n_inputs) const noexcept override {
    return done([&] {
      std::vector<opforge_dtype> dtypes;
      for (int32_t k = 0; k < n_inputs; ++k) dtypes.push_back(known_dtype(inputs[k]));
      const auto binding = bound(input_counts(definition_, *content_, n_inputs), dtypes);
      for (int32_t k = 0; k < n_outputs; ++k) {
        const opforge_dtype dtype = static_cast<size_t>(k) < binding.dtypes.size()
                                        ? binding.dtypes[static_cast<size_t>(k)]
                                        : opforge_dtype{};
        if (!type_of(dtype, &outputs[k])) {
          throw failure(OPFORGE_STATUS_UNSUPPORTED, definition_.key, "TensorRT has no such dtype", "",
                        detail::dtype_name(dtype));
        }
      }
    });
  }

  int32_t getOutputShapes(const nvinfer1::DimsExprs* inputs, int32_t n_inputs, const nvinfer1::DimsExprs*,
                          int32_t, nvinfer1::DimsExprs* outputs, int32_t n_outputs,
                          nvinfer1::IExprBuilder& builder) noexcept override {
    return done([&] {
      std::vector<std::vector<Size>> sizes(static_cast<size_t>(n_inputs));
      for (size_t k = 0; k < sizes.size(); ++k) {
        for (int32_t d = 0; d < inputs[k].nbDims; ++d) sizes[k].push_back(size_of(inputs[k].d[d], builder));
      }
      const auto counts = input_counts(definition_, *content_, n_inputs);
      std::vector<detail::ShapeView<Size>> views;
      size_t place = 0;
      for (const int32_t count : counts) {
        if (count == 0) views.push_back({nullptr, detail::kAbsent});
        for (int32_t k = 0; k < count; ++k, ++place)
          views.push_back({sizes[place].data(), static_cast<int32_t>(sizes[place].size())});
      }
      const auto binding = bind_views(views, std::vector<opforge_dtype>(views.size(), opforge_dtype{}));
      for (int32_t k = 0; k < n_outputs; ++k) {
        const auto& dims = binding.shapes.at(static_cast<size_t>(k)).dims;
        if (dims.size() > static_cast<size_t>(nvinfer1::Dims::MAX_DIMS)) {
          throw failure(OPFORGE_STATUS_UNSUPPORTED, definition_.key,
                        "TensorRT's tensors have at most 8 dimensions", "", std::to_string(dims.size()));
        }
        outputs[k].nbDims = static_cast<int32_t>(dims.size());
        for (size_t d = 0; d < dims.size(); ++d) outputs[k].d[d] = expression_of(dims[d], builder);
      }
    });
  }

  bool supportsFormatCombination(int32_t pos, const nvinfer1::DynamicPluginTensorDesc* tensors,
                                 int32_t n_inputs, int32_t) noexcept override {
    return told(false, [&] {
      // Of what stands behind pos nothing may be read.
      for (int32_t k = 0; k <= pos; ++k) {
        if (tensors[k].desc.format != nvinfer1::TensorFormat::kLINEAR) return false;
      }
      const auto counts = input_counts(definition_, *content_, n_inputs);
      bool found = false;
      definition_.kernels.each([&](const opforge_kernel& kernel) {
        if (found || kernel.device_type != OPFORGE_DEVICE_CUDA) return;
        const std::vector<opforge_dtype> served = served_dtypes(kernel, counts);
        found = served.size() > static_cast<size_t>(pos);
        for (int32_t k = 0; found && k <= pos; ++k) {
          found = detail::same(served[static_cast<size_t>(k)], dtype_of(tensors[k].desc.type));
        }
      });
      return found;
    });
  }

  int32_t configurePlugin(const nvinfer1::DynamicPluginTensorDesc* in, int32_t n_inputs,
                          const nvinfer1::DynamicPluginTensorDesc* out, int32_t n_outputs) noexcept override {
    workspace_ = getWorkspaceSize(in, n_inputs, out, n_outputs);
    return 0;
  }

  // A formula's forward kernel needs none; others get as much as their tensors have, and a little.
  size_t getWorkspaceSize(const nvinfer1::DynamicPluginTensorDesc* in, int32_t n_inputs,
                          const nvinfer1::DynamicPluginTensorDesc* out,
                          int32_t n_outputs) const noexcept override {
    if (needs_none()) return 0;
    size_t bytes = kReserve;
    for (int32_t k = 0; k < n_inputs; ++k) bytes += bytes_of(in[k].max, in[k].desc.type);
    for (int32_t k = 0; k < n_outputs; ++k) bytes += bytes_of(out[k].max, out[k].desc.type);
    return bytes;
  }

  // ---- run
  int32_t onShapeChange(const nvinfer1::PluginTensorDesc* in, int32_t n_inputs,
                        const nvinfer1::PluginTensorDesc* out, int32_t n_outputs) noexcept override {
    inputs_ = n_inputs;
    workspace_ = needs_none() ? 0 : kReserve;
    for (int32_t k = 0; workspace_ != 0 && k < n_inputs; ++k) workspace_ += bytes_of(in[k].dims, in[k].type);
    for (int32_t k = 0; workspace_ != 0 && k < n_outputs; ++k)
      workspace_ += bytes_of(out[k].dims, out[k].type);
    return 0;
  }

  int32_t enqueue(const nvinfer1::PluginTensorDesc* input_desc, const nvinfer1::PluginTensorDesc* output_desc,
                  const void* const* inputs, void* const* outputs, void* workspace,
                  cudaStream_t stream) noexcept override {
    return done([&] {
      const Workspace memory{static_cast<char*>(workspace),
                             static_cast<char*>(workspace) + (workspace == nullptr ? 0 : workspace_)};
      launch(definition_, *content_, input_desc, inputs_, output_desc, outputs_, inputs, outputs, memory,
             static_cast<void*>(stream));
    });
  }

  nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext*) noexcept override {
    return clone();
  }

  const PluginFieldCollection* getFieldsToSerialize() noexcept override {
    return told<const PluginFieldCollection*>(nullptr, [&] {
      stored_ = std::make_unique<StoredFields>(definition_, *content_);
      return stored_->get();
    });
  }

 private:
  static constexpr size_t kReserve = size_t{1} << 20;

  bool needs_none() const {
    const uint32_t flags = definition_.table->flags;
    return (flags & OPFORGE_OPERATOR_FORMULA) != 0 && (flags & OPFORGE_OPERATOR_GRADIENT) == 0;
  }
  static size_t bytes_of(const nvinfer1::Dims& dims, nvinfer1::DataType type) {
    size_t bytes = dtype_of(type).bits / 8u;
    for (int32_t d = 0; d < dims.nbDims; ++d) bytes *= static_cast<size_t>(dims.d[d] > 0 ? dims.d[d] : 0);
    return bytes;
  }
  opforge_dtype known_dtype(nvinfer1::DataType type) const {
    const opforge_dtype dtype = dtype_of(type);
    if (!detail::is_known(dtype)) {
      throw failure(OPFORGE_STATUS_TYPE, definition_.key, "wrong dtype", definition_.table->types,
                    "TensorRT's type " + std::to_string(static_cast<int32_t>(type)));
    }
    return dtype;
  }
  // Without a field that says more, all inputs are taken to be there.
  std::vector<int32_t> given_counts() const {
    return content_->counts.empty() ? std::vector<int32_t>(definition_.signature.inputs.size(), 1)
                                    : content_->counts;
  }

  template <class D>
  detail::Binding<D> bind_views(const std::vector<detail::ShapeView<D>>& views,
                                const std::vector<opforge_dtype>& dtypes) const {
    std::vector<int64_t> integers;
    for (const detail::AttributeValue& value : content_->values) {
      integers.push_back(value.kind == OPFORGE_ATTRIBUTE_INT ? value.ints[0] : 0);
    }
    detail::Binding<D> binding;
    detail::Problem problem;
    if (!detail::bind(definition_.signature, definition_.where, views, dtypes, integers.data(), &binding,
                      &problem)) {
      throw failure_of(problem);
    }
    return binding;
  }
  // Tensors of unknown rank; `given`: the dtypes of those that are there, or none.
  detail::Binding<int64_t> bound(const std::vector<int32_t>& counts,
                                 const std::vector<opforge_dtype>& given = {}) const {
    std::vector<detail::ShapeView<int64_t>> views;
    std::vector<opforge_dtype> dtypes;
    size_t place = 0;
    for (const int32_t count : counts) {
      if (count == 0) {
        views.push_back({nullptr, detail::kAbsent});
        dtypes.push_back({});
      }
      for (int32_t k = 0; k < count; ++k, ++place) {
        views.push_back({nullptr, detail::kUnknownRank});
        dtypes.push_back(place < given.size() ? given[place] : opforge_dtype{});
      }
    }
    return bind_views(views, dtypes);
  }
  // The dtypes of all inputs and outputs together that a kernel serves.
  std::vector<opforge_dtype> served_dtypes(const opforge_kernel& kernel,
                                           const std::vector<int32_t>& counts) const {
    std::vector<opforge_dtype> dtypes;
    for (size_t p = 0; p < counts.size(); ++p) {
      const detail::Parameter& parameter = definition_.signature.inputs[p];
      const opforge_dtype dtype =
          parameter.variable < 0 ? parameter.dtype : kernel.dtypes[parameter.variable];
      dtypes.insert(dtypes.end(), static_cast<size_t>(counts[p]), dtype);
    }
    const auto binding = bound(counts, dtypes);
    dtypes.insert(dtypes.end(), binding.dtypes.begin(), binding.dtypes.end());
    return dtypes;
  }

  const Definition& definition_;
  std::shared_ptr<const Content> content_;
  int32_t outputs_ = 0;
  int32_t inputs_ = 0;
  size_t workspace_ = 0;
  std::string timing_;
  std::unique_ptr<StoredFields> stored_;
};

class Creator final : public nvinfer1::IPluginCreatorV3One {
 public:
  explicit Creator(const Definition& definition) : definition_(definition) {
    for (const detail::Attribute& attribute : definition.signature.attributes) {
      fields_.emplace_back(attribute.name.c_str(), nullptr, field_type(attribute.kind), 0);
    }
    for (const char* const name : {kInputs, kSchema})
      fields_.emplace_back(name, nullptr, PluginFieldType::kCHAR, 0);
    names_.nbFields = static_cast<int32_t>(fields_.size());
    names_.fields = fields_.data();
  }

  nvinfer1::IPluginV3* createPlugin(const nvinfer1::AsciiChar*, const PluginFieldCollection* fields,
                                    nvinfer1::TensorRTPhase) noexcept override {
    return told<nvinfer1::IPluginV3*>(
        nullptr, [&] { return new Plugin(definition_, read_fields(definition_, fields)); });
  }
  const PluginFieldCollection* getFieldNames() noexcept override { return &names_; }
  const nvinfer1::AsciiChar* getPluginName() const noexcept override { return definition_.name.c_str(); }
  const nvinfer1::AsciiChar* getPluginVersion() const noexcept override {
    return definition_.version.c_str();
  }
  const nvinfer1::AsciiChar* getPluginNamespace() const noexcept override {
    return definition_.domain.c_str();
  }

 private:
  const Definition& definition_;
  std::vector<PluginField> fields_;
  PluginFieldCollection names_{};
};

}  // namespace opforge::tensorrt_host
