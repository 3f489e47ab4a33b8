// SPDX-License-Identifier: Apache-2.0
// In place of the driver's library, libcuda.so.1: modules load, and all else says that there is no device. So cuDNN finalises plans
// whose kernels it compiles at run time; without a driver it leaves them out, and does not say so.
namespace {
constexpr int kNoDevice = 100;
}

#define NO_DEVICE(name) \
  int name() { return kNoDevice; }

extern "C" {
NO_DEVICE(cuInit)
NO_DEVICE(cuDriverGetVersion)
NO_DEVICE(cuDeviceGetCount)
NO_DEVICE(cuCtxGetCurrent)
NO_DEVICE(cuCtxGetLimit)
NO_DEVICE(cuCtxPopCurrent)
NO_DEVICE(cuCtxPushCurrent)
NO_DEVICE(cuDeviceGet)
NO_DEVICE(cuKernelGetAttribute)
NO_DEVICE(cuKernelSetAttribute)
NO_DEVICE(cuLaunchCooperativeKernel)
NO_DEVICE(cuLaunchKernel)
NO_DEVICE(cuLaunchKernelEx)
NO_DEVICE(cuLibraryLoadFromFile)
NO_DEVICE(cuLinkAddData)
NO_DEVICE(cuLinkComplete)
NO_DEVICE(cuLinkCreate)
NO_DEVICE(cuLinkDestroy)
NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
NO_DEVICE(cuStreamGetCtx)
NO_DEVICE(cuTensorMapEncodeIm2col)
NO_DEVICE(cuTensorMapEncodeTiled)

int cuGetErrorString(int, const char** text) {
  *text = "there is no driver";
  return 0;
}
int cuGetErrorName(int, const char** text) {
  *text = "NO_DRIVER";
  return 0;
}
int cuLibraryLoadData(void** library, const void*, void*, void*, unsigned, void*, void*, unsigned) {
  static char somewhere;
  *library = &somewhere;
  return 0;
}
int cuLibraryUnload(void*) { return 0; }
int cuLibraryGetKernel(void** kernel, void*, const char*) {
  static char somewhere;
  *kernel = &somewhere;
  return 0;
}
// Versions 9.26 and later.
int cuKernelGetFunction(void** function, void*) {
  static char somewhere;
  *function = &somewhere;
  return 0;
}
int cuModuleLoadData(void** module, const void*) {
  static char somewhere;
  *module = &somewhere;
  return 0;
}
int cuModuleUnload(void*) { return 0; }
int cuModuleGetFunction(void** function, void*, const char*) {
  static char somewhere;
  *function = &somewhere;
  return 0;
}
}
