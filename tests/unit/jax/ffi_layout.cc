// Holds our declarations of XLA's interface against the header of the installed jaxlib; it only has to
// compile.
#include "jax/ffi.h"
#include "xla/ffi/api/c_api.h"

namespace ours = opforge::jax_host::ffi;

#define SAME(theirs, field, mine, own)                                                     \
  static_assert(offsetof(theirs, field) == offsetof(ours::mine, own), #theirs "." #field); \
  static_assert(sizeof(theirs::field) == sizeof(ours::mine::own), #theirs "." #field)

SAME(XLA_FFI_Extension_Base, struct_size, Extension, size);
SAME(XLA_FFI_Extension_Base, type, Extension, type);
SAME(XLA_FFI_Extension_Base, next, Extension, next);
SAME(XLA_FFI_Api_Version, major_version, Version, major);
SAME(XLA_FFI_Api_Version, minor_version, Version, minor);
SAME(XLA_FFI_Error_Create_Args, message, ErrorCreate, message);
SAME(XLA_FFI_Error_Create_Args, errc, ErrorCreate, code);
SAME(XLA_FFI_Error_Destroy_Args, error, ErrorDestroy, error);
SAME(XLA_FFI_Buffer, dtype, Buffer, dtype);
SAME(XLA_FFI_Buffer, data, Buffer, data);
SAME(XLA_FFI_Buffer, rank, Buffer, rank);
SAME(XLA_FFI_Buffer, dims, Buffer, dims);
SAME(XLA_FFI_ByteSpan, ptr, Span, data);
SAME(XLA_FFI_ByteSpan, len, Span, size);
SAME(XLA_FFI_Scalar, dtype, Scalar, dtype);
SAME(XLA_FFI_Scalar, value, Scalar, value);
SAME(XLA_FFI_Array, dtype, Array, dtype);
SAME(XLA_FFI_Array, size, Array, size);
SAME(XLA_FFI_Array, data, Array, data);
SAME(XLA_FFI_Args, size, Buffers, count);
SAME(XLA_FFI_Args, types, Buffers, types);
SAME(XLA_FFI_Args, args, Buffers, values);
SAME(XLA_FFI_Rets, size, Buffers, count);
SAME(XLA_FFI_Rets, types, Buffers, types);
SAME(XLA_FFI_Rets, rets, Buffers, values);
SAME(XLA_FFI_Attrs, size, Attributes, count);
SAME(XLA_FFI_Attrs, types, Attributes, types);
SAME(XLA_FFI_Attrs, names, Attributes, names);
SAME(XLA_FFI_Attrs, attrs, Attributes, values);
SAME(XLA_FFI_ThreadPool_Schedule_Args, ctx, Schedule, context);
SAME(XLA_FFI_ThreadPool_Schedule_Args, task, Schedule, task);
SAME(XLA_FFI_ThreadPool_Schedule_Args, data, Schedule, data);
SAME(XLA_FFI_ThreadPool_NumThreads_Args, ctx, ThreadCount, context);
SAME(XLA_FFI_ThreadPool_NumThreads_Args, num_threads, ThreadCount, count);
SAME(XLA_FFI_Stream_Get_Args, ctx, StreamGet, context);
SAME(XLA_FFI_Stream_Get_Args, stream, StreamGet, stream);
SAME(XLA_FFI_DeviceOrdinal_Get_Args, ctx, OrdinalGet, context);
SAME(XLA_FFI_DeviceOrdinal_Get_Args, device_ordinal, OrdinalGet, ordinal);
SAME(XLA_FFI_DeviceMemory_Allocate_Args, ctx, MemoryAllocate, context);
SAME(XLA_FFI_DeviceMemory_Allocate_Args, size, MemoryAllocate, bytes);
SAME(XLA_FFI_DeviceMemory_Allocate_Args, alignment, MemoryAllocate, alignment);
SAME(XLA_FFI_DeviceMemory_Allocate_Args, data, MemoryAllocate, data);
SAME(XLA_FFI_DeviceMemory_Free_Args, ctx, MemoryFree, context);
SAME(XLA_FFI_DeviceMemory_Free_Args, size, MemoryFree, bytes);
SAME(XLA_FFI_DeviceMemory_Free_Args, data, MemoryFree, data);
SAME(XLA_FFI_Error_GetMessage_Args, error, ErrorMessage, error);
SAME(XLA_FFI_Error_GetMessage_Args, message, ErrorMessage, message);
SAME(XLA_FFI_Api, struct_size, Api, size);
SAME(XLA_FFI_Api, XLA_FFI_Error_Create, Api, create_error);
SAME(XLA_FFI_Api, XLA_FFI_Error_GetMessage, Api, error_message);
SAME(XLA_FFI_Api, XLA_FFI_Error_Destroy, Api, destroy_error);
SAME(XLA_FFI_Api, XLA_FFI_Stream_Get, Api, stream);
SAME(XLA_FFI_Api, XLA_FFI_DeviceMemory_Allocate, Api, allocate);
SAME(XLA_FFI_Api, XLA_FFI_DeviceMemory_Free, Api, free);
SAME(XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get, Api, ordinal);
SAME(XLA_FFI_Api, XLA_FFI_ThreadPool_Schedule, Api, schedule);
SAME(XLA_FFI_Api, XLA_FFI_ThreadPool_NumThreads, Api, thread_count);
SAME(XLA_FFI_CallFrame, extension_start, CallFrame, extensions);
SAME(XLA_FFI_CallFrame, api, CallFrame, api);
SAME(XLA_FFI_CallFrame, ctx, CallFrame, context);
SAME(XLA_FFI_CallFrame, stage, CallFrame, stage);
SAME(XLA_FFI_CallFrame, args, CallFrame, arguments);
SAME(XLA_FFI_CallFrame, rets, CallFrame, results);
SAME(XLA_FFI_CallFrame, attrs, CallFrame, attributes);
SAME(XLA_FFI_Metadata, api_version, Metadata, version);
SAME(XLA_FFI_Metadata, traits, Metadata, traits);
SAME(XLA_FFI_Metadata_Extension, metadata, MetadataExtension, metadata);

#define EQUAL(theirs, mine) static_assert(static_cast<int>(theirs) == static_cast<int>(ours::mine), #theirs)

EQUAL(XLA_FFI_Extension_Metadata, kMetadataExtension);
EQUAL(XLA_FFI_ArgType_BUFFER, kBuffer);
EQUAL(XLA_FFI_RetType_BUFFER, kBuffer);
EQUAL(XLA_FFI_ExecutionStage_EXECUTE, kExecute);
EQUAL(XLA_FFI_AttrType_ARRAY, kArray);
EQUAL(XLA_FFI_AttrType_DICTIONARY, kDictionary);
EQUAL(XLA_FFI_AttrType_SCALAR, kScalar);
EQUAL(XLA_FFI_AttrType_STRING, kString);
EQUAL(XLA_FFI_Error_Code_INVALID_ARGUMENT, kInvalidArgument);
EQUAL(XLA_FFI_Error_Code_NOT_FOUND, kNotFound);
EQUAL(XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, kResourceExhausted);
EQUAL(XLA_FFI_Error_Code_UNIMPLEMENTED, kUnimplemented);
EQUAL(XLA_FFI_Error_Code_INTERNAL, kInternalError);
EQUAL(XLA_FFI_DataType_PRED, kBool);
EQUAL(XLA_FFI_DataType_S8, kS8);
EQUAL(XLA_FFI_DataType_S16, kS16);
EQUAL(XLA_FFI_DataType_S32, kS32);
EQUAL(XLA_FFI_DataType_S64, kS64);
EQUAL(XLA_FFI_DataType_U8, kU8);
EQUAL(XLA_FFI_DataType_U16, kU16);
EQUAL(XLA_FFI_DataType_U32, kU32);
EQUAL(XLA_FFI_DataType_U64, kU64);
EQUAL(XLA_FFI_DataType_F16, kF16);
EQUAL(XLA_FFI_DataType_F32, kF32);
EQUAL(XLA_FFI_DataType_F64, kF64);
EQUAL(XLA_FFI_DataType_BF16, kBF16);
EQUAL(XLA_FFI_DataType_F8E5M2, kF8E5M2);
EQUAL(XLA_FFI_DataType_F8E4M3FN, kF8E4M3FN);
EQUAL(XLA_FFI_DataType_F8E5M2FNUZ, kF8E5M2FNUZ);
EQUAL(XLA_FFI_DataType_F8E4M3FNUZ, kF8E4M3FNUZ);
EQUAL(XLA_FFI_DataType_F8E8M0FNU, kF8E8M0FNU);
